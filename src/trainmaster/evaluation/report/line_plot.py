"""Line plots of sweeps: a measure over what was varied, a line per contender, named at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainmaster.evaluation.report.dot_plot import WIDE, circle
from trainmaster.evaluation.statistics import Estimate
from trainmaster.report import palette, svg
from trainmaster.report.axes import Axis, Tick
from trainmaster.report.svg import Panel
from trainmaster.text import formatting as wording

LABEL_PITCH = 15.5
LONGEST_LABEL = 24
LETTER = 6.9
TOP, FOOT = 40.0, 56.0
LEFT = 66.0
LEAST_HEIGHT = 250.0
CROWDED = 0.08
"""Part of an axis: values nearer to each other than this are set at equal steps instead."""


@dataclass(frozen=True, slots=True)
class Series:
    """One contender over the sweep; None where it has no value."""

    label: str
    slot: int
    look: str
    points: tuple[Estimate | None, ...]


@dataclass(frozen=True, slots=True)
class LinePanel:
    """One measure, with its axis."""

    y: Axis
    series: tuple[Series, ...]
    reference: float | None = None


@dataclass(frozen=True, slots=True)
class Steps:
    """What was varied: its name, the values in their order and how they are written."""

    title: str
    values: tuple[float, ...] | None
    """None when the steps are no numbers."""
    labels: tuple[str, ...]

    @property
    def axis(self) -> Axis:
        places, is_even = self._places()
        note = " (equal steps)" if is_even and self.values is not None else ""
        ticks = tuple(Tick(at, label) for at, label in zip(places, self.labels, strict=True))
        room = 0.04 * (max(places) - min(places)) or 0.5
        return Axis(min(places) - room, max(places) + room, ticks, f"{self.title}{note}")

    def _places(self) -> tuple[tuple[float, ...], bool]:
        even = tuple(float(place) for place in range(len(self.labels)))
        values = self.values
        if values is None or len(values) < 2:
            return even, True
        span = max(values) - min(values)
        ordered = sorted(values)
        gaps = [b - a for a, b in pairwise(ordered)]
        is_crowded = span <= 0 or min(gaps) < CROWDED * span
        return (even, True) if is_crowded else (values, False)

    @property
    def places(self) -> tuple[float, ...]:
        return self._places()[0]


def line_plot(steps: Steps, panels: Sequence[LinePanel], label: str) -> str:
    """The panels side by side, over the same steps."""
    if not panels or not any(panel.series for panel in panels):
        return svg.nothing_to_draw(WIDE, "Nothing to draw.")
    pitch = WIDE / len(panels)
    most = max(len(panel.series) for panel in panels)
    height = max(LEAST_HEIGHT, most * LABEL_PITCH)
    x = steps.axis
    drawn = []
    for place, panel in enumerate(panels):
        names = _names_width(panel.series)
        frame = Panel(place * pitch + LEFT, TOP, pitch - LEFT - names, height)
        drawn.append(_panel(steps, panel, frame, x))
    return svg.drawing(WIDE, TOP + height + FOOT, label, drawn)


def _names_width(series: Sequence[Series]) -> float:
    if len(series) < 2:
        return 34.0
    return 34 + LETTER * min(LONGEST_LABEL, max((len(each.label) for each in series), default=0))


def _panel(steps: Steps, panel: LinePanel, frame: Panel, x: Axis) -> str:
    drawn = [svg.left_axis(frame, panel.y), svg.bottom_axis(frame, x)]
    if panel.reference is not None:
        y = frame.y(panel.y, panel.reference)
        drawn.append(svg.line(frame.left, y, frame.right, y, "reference"))
    ours_last = sorted(panel.series, key=lambda each: each.look == "ours")
    drawn += [_band(each, steps, panel, frame, x) for each in ours_last]
    drawn += [_line(each, steps, panel, frame, x) for each in ours_last]
    if len(panel.series) > 1:
        drawn.append(_end_labels(panel, frame))
    return "".join(drawn)


def _line(series: Series, steps: Steps, panel: LinePanel, frame: Panel, x: Axis) -> str:
    corners = [
        (frame.x(x, at), frame.y(panel.y, point.value))
        for at, point in zip(steps.places, series.points, strict=True)
        if point is not None
    ]
    outline = "M" + "L".join(f"{svg.number(px)} {svg.number(py)}" for px, py in corners)
    dash = "2 4" if series.look == "bound" else palette.policy_dash(series.slot)
    width = "line thick" if series.look == "ours" else "line thin"
    parts = [svg.path(outline, width, dash)] if len(corners) > 1 else []
    parts += [circle(px, py, 3.2, "fill") for px, py in corners]
    return svg.group(f"series s{series.slot}", parts, series.label)


def _band(series: Series, steps: Steps, panel: LinePanel, frame: Panel, x: Axis) -> str:
    ends = [
        (frame.x(x, at), point.interval)
        for at, point in zip(steps.places, series.points, strict=True)
        if point is not None and point.interval is not None
    ]
    if len(ends) < 2:
        return ""
    y = panel.y
    over = [(px, frame.y(y, min(interval.high, y.high))) for px, interval in ends]
    under = [(px, frame.y(y, max(interval.low, y.low))) for px, interval in reversed(ends)]
    corners = "L".join(f"{svg.number(px)} {svg.number(py)}" for px, py in over + under)
    return svg.group(f"series s{series.slot}", [svg.path(f"M{corners}Z", "band")])


def _end_labels(panel: LinePanel, frame: Panel) -> str:
    """Names beside the lines' ends, pushed apart where they would lie on each other."""
    ends = []
    for each in panel.series:
        last = next((point for point in reversed(each.points) if point is not None), None)
        if last is not None:
            ends.append((frame.y(panel.y, last.value), each))
    ends.sort(key=lambda end: end[0])
    drawn = []
    for (wanted, each), y in zip(ends, _apart([y for y, _ in ends], frame), strict=True):
        name = wording.shortened(each.label, LONGEST_LABEL)
        css = "policy" if each.look == "ours" else "lesser"
        parts = [
            svg.line(frame.right + 1, wanted, frame.right + 15, y, "leader"),
            svg.text(
                frame.right + 18, y + 4.3, name, css, each.label if name != each.label else ""
            ),
        ]
        drawn.append(svg.group(f"series named s{each.slot}", parts))
    return "".join(drawn)


def _apart(wanted: Sequence[float], frame: Panel) -> list[float]:
    """Heights a label apart and as near to the wanted (ascending) ones as can be, in least squares.

    With the pitch taken off, that is the nearest ascending sequence: neighbours in the wrong order are
    pooled to their mean.
    """
    pools: list[tuple[float, int]] = []
    for place, y in enumerate(wanted):
        pools.append((y - place * LABEL_PITCH, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (b, m), (a, n) = pools.pop(), pools.pop()
            pools.append(((a * n + b * m) / (n + m), n + m))
    flat = [mean for mean, number in pools for _ in range(number)]
    lowest, highest = frame.top, frame.bottom + 4 - (len(flat) - 1) * LABEL_PITCH
    return [
        max(lowest, min(mean, highest)) + place * LABEL_PITCH for place, mean in enumerate(flat)
    ]
