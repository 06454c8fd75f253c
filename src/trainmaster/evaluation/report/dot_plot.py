"""Dot plots: ratios with their intervals, a row per contender, a panel per comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainmaster.evaluation.report.number_format import interval_words, ratio_words
from trainmaster.evaluation.statistics import Estimate, Interval
from trainmaster.report import axes, svg
from trainmaster.report.axes import Axis
from trainmaster.report.svg import Panel
from trainmaster.text import formatting as wording

WIDE = 1_060.0
"""Of every figure: what a column of a page and a letter of 13 pixels go together with."""
ROW = 21.0
HEAD, UNTITLED, FOOT = 40.0, 12.0, 50.0
GAP = 26.0
NUMBERS = 52.0
"""Room for a panel's ratios in figures, to its right."""
LONGEST_LABEL, LONGEST_ALONE, LONGEST_TITLE = 30, 60, 44
LETTER = 7.1
MOST_COLUMNS = 3
RADIUS = 4.6
FURTHEST = 2.0
"""How many times beyond the furthest mark an interval may stretch the axis; the rest is cut off."""


@dataclass(frozen=True, slots=True)
class DotRow:
    """A row's label and how its marks look: a class of chart.css."""

    label: str
    look: str = "published"


@dataclass(frozen=True, slots=True)
class DotPanel:
    """One panel: a title, and the ratio of each row that has one."""

    title: str
    ratios: Mapping[str, Estimate]
    limits: Mapping[str, float]
    """Rows with a mark of their own, such as what an oracle reaches."""


@dataclass(frozen=True, slots=True)
class DotPlot:
    """Rows in their order, panels left to right, and the ratios that get an upright line."""

    rows: tuple[DotRow, ...]
    panels: tuple[DotPanel, ...]
    axis_title: str
    references: tuple[float, ...] = (1.0,)


def dot_plot(plot: DotPlot, label: str) -> str:
    """Panels side by side on one scale, as many beneath each other as they need."""
    reach = [value for panel in plot.panels for value in _reach(panel)]
    if not reach:
        return svg.nothing_to_draw(WIDE, "Nothing to compare.")
    axis = _axis([*reach, *plot.references], plot.axis_title)
    columns = min(MOST_COLUMNS, len(plot.panels))
    longest = LONGEST_ALONE if columns == 1 else LONGEST_LABEL
    gutter = 18 + LETTER * min(longest, max(len(row.label) for row in plot.rows))
    pitch = (WIDE - gutter) / columns
    head = HEAD if any(panel.title for panel in plot.panels) else UNTITLED
    height = head + ROW * len(plot.rows) + FOOT
    drawn = []
    for place, panel in enumerate(plot.panels):
        line, column = divmod(place, columns)
        top = line * height + head
        frame = Panel(gutter + column * pitch + 8, top, pitch - NUMBERS - GAP, ROW * len(plot.rows))
        drawn.append(_panel(plot, panel, frame, axis))
        if column == 0:
            drawn.append(_labels(plot.rows, gutter, top, longest))
    lines = -(-len(plot.panels) // columns)
    return svg.drawing(WIDE, lines * height, label, drawn)


def _reach(panel: DotPanel) -> list[float]:
    """What has to be on the axis: marks, and intervals as far as they do not dwarf them."""
    values = [estimate.value for estimate in panel.ratios.values()]
    if not values:
        return []
    low, high = min(values) / FURTHEST, max(values) * FURTHEST
    intervals = [each.interval for each in panel.ratios.values() if each.interval is not None]
    ends = [max(low, min(high, end)) for each in intervals for end in (each.low, each.high)]
    return [*values, *panel.limits.values(), *ends]


def _axis(values: Sequence[float], title: str) -> Axis:
    low, high = max(min(values), 0.001), max(values)
    return axes.log_ratio_axis(low / 1.06, high * 1.06, title)


def _labels(rows: Sequence[DotRow], gutter: float, top: float, longest: int) -> str:
    drawn = []
    for place, row in enumerate(rows):
        y = top + place * ROW + ROW / 2 + 4.5
        name = wording.shortened(row.label, longest)
        hover = row.label if name != row.label else ""
        css = "policy end" if row.look == "ours" else "end"
        drawn.append(svg.text(gutter - 6, y, name, css, hover))
    return "".join(drawn)


def _panel(plot: DotPlot, panel: DotPanel, frame: Panel, axis: Axis) -> str:
    title = wording.shortened(panel.title, LONGEST_TITLE)
    drawn = [
        svg.text(
            frame.left, frame.top - 18, title, "policy", panel.title if title != panel.title else ""
        ),
        svg.vertical_grid(frame, axis),
        svg.bottom_axis(frame, axis),
    ]
    for value in plot.references:
        x = frame.x(axis, value)
        drawn.append(svg.line(x, frame.top - 4, x, frame.bottom, "reference"))
    for place, row in enumerate(plot.rows):
        y = frame.top + place * ROW + ROW / 2
        drawn.append(_mark(row, panel, frame, axis, y))
    return "".join(drawn)


def _mark(row: DotRow, panel: DotPanel, frame: Panel, axis: Axis, y: float) -> str:
    right = frame.right + NUMBERS
    estimate = panel.ratios.get(row.label)
    if estimate is None:
        return svg.text(right, y + 4.5, wording.ABSENT, "tick end")
    drawn = []
    limit = panel.limits.get(row.label)
    if limit is not None:
        x = frame.x(axis, limit)
        drawn.append(svg.line(x, y - 7, x, y + 7, "limit"))
    if estimate.interval is not None:
        drawn.append(_whisker(estimate.interval, frame, axis, y))
    drawn.append(circle(frame.x(axis, estimate.value), y, RADIUS, "dot"))
    css = "policy end" if row.look == "ours" else "tick end"
    drawn.append(svg.text(right, y + 4.5, ratio_words(estimate.value), css))
    hover = f"{row.label}: {ratio_words(estimate.value)} {interval_words(estimate)}".strip()
    return svg.group(f"standing {row.look}", drawn, f"{panel.title}, {hover}")


def _whisker(interval: Interval, frame: Panel, axis: Axis, y: float) -> str:
    """An end beyond the axis is cut off there, and has no bar across."""
    ends = (interval.low, interval.high)
    low, high = (frame.x(axis, min(max(end, axis.low), axis.high)) for end in ends)
    bars = [
        svg.line(x, y - 3.5, x, y + 3.5, "whisker")
        for x, end in ((low, interval.low), (high, interval.high))
        if axis.low <= end <= axis.high
    ]
    return svg.line(low, y, high, y, "whisker") + "".join(bars)


def circle(x: float, y: float, radius: float, css: str) -> str:
    centre = f'cx="{svg.number(x)}" cy="{svg.number(y)}" r="{svg.number(radius)}"'
    return f'<circle {centre} class="{css}"/>'
