"""The figures of a comparison: ratios as dots, sweeps as lines, waiting as stacked bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from trainmaster.evaluation.number_format import interval_words, ratio_words
from trainmaster.evaluation.statistics import IntervalEstimate
from trainmaster.report import charts, palette
from trainmaster.report.charts import AXIS, CARD, INK, SOFT, WIDE_IN, Chart, empty_chart, styled
from trainmaster.text import formatting as wording
from trainmaster.text.formatting import HOUR_S

MOST_COLUMNS = 3
LONGEST_LABEL, LONGEST_TITLE = 60, 44
FURTHEST = 2.0
"""How many times beyond the furthest mark an interval may stretch the axis; the rest is cut off."""
CROWDED = 0.08
"""Part of an axis: values nearer to each other than this are set at equal steps instead."""
HOLLOW = ("bound", "missed")


def _grid(
    label: str, number: int, rows: Sequence[str], height_in: Callable[[int], float]
) -> tuple[Chart, list[Any]]:
    """A grid of this many panels, all with the same rows."""
    columns = min(MOST_COLUMNS, number)
    lines = -(-number // columns)
    chart = Chart(label, WIDE_IN, height_in(lines))
    found = chart.panels(lines, columns, sharex=True, sharey=True)
    found[0].set_yticks(range(len(rows)), rows)
    found[0].set_ylim(len(rows) - 0.5, -0.5)
    for axes in found[number:]:
        axes.set_visible(False)
    return chart, found[:number]


# -- dots --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DotPanel:
    """One panel: a title, and the ratio of each row that has one."""

    title: str
    ratios: Mapping[str, IntervalEstimate]
    limits: Mapping[str, float] = field(default_factory=dict)
    """An extra mark in some rows, such as an oracle's value."""


@styled
def dot_plot(
    label: str,
    rows: Mapping[str, str],
    panels: Sequence[DotPanel],
    axis_title: str,
    references: Sequence[float] = (1.0,),
) -> Chart:
    """Ratios with their intervals: a row per label (with its role), a panel per comparison."""
    reach = [value for panel in panels for value in _reach(panel)]
    if not reach:
        return empty_chart("Nothing to compare.")
    names = [wording.shortened(name, LONGEST_LABEL) for name in rows]
    chart, found = _grid(label, len(panels), names, lambda lines: lines * (0.9 + 0.22 * len(rows)))
    low, high = min(*reach, *references), max(*reach, *references)
    charts.set_log(found[0].xaxis, max(low, 0.001) / 1.06, high * 1.06, "")
    for axes, panel in zip(found, panels, strict=True):
        axes.set_title(wording.shortened(panel.title, LONGEST_TITLE))
        axes.tick_params(labelbottom=True)
        axes.tick_params(axis="y", labelcolor=INK)
        for value in references:
            axes.axvline(value, color=SOFT, lw=0.9)
        for place, (name, role) in enumerate(rows.items()):
            _dot(chart, axes, place, name, role, panel)
    chart.figure.supxlabel(axis_title, fontsize=10, color=SOFT)
    return chart


def _reach(panel: DotPanel) -> list[float]:
    """Values that the axis must show: marks, and intervals unless they dwarf the marks."""
    values = [estimate.value for estimate in panel.ratios.values()]
    if not values:
        return []
    low, high = min(values) / FURTHEST, max(values) * FURTHEST
    intervals = [each.interval for each in panel.ratios.values() if each.interval is not None]
    ends = [max(low, min(high, end)) for each in intervals for end in (each.low, each.high)]
    return [*values, *panel.limits.values(), *ends]


def _dot(chart: Chart, axes: Any, place: int, name: str, role: str, panel: DotPanel) -> None:
    estimate = panel.ratios.get(name)
    words = wording.ABSENT if estimate is None else ratio_words(estimate.value)
    weight = "bold" if role == "ours" else "normal"
    axes.text(
        1.02, place, words, transform=axes.get_yaxis_transform(), va="center", fontsize=9,
        fontweight=weight, color=SOFT,
    )  # fmt: skip
    if estimate is None:
        return
    shade = palette.MARKS[role].light
    if name in panel.limits:
        axes.plot(panel.limits[name], place, "|", color=AXIS, ms=9, mew=2)
    if estimate.interval is not None:
        ends = (estimate.interval.low, estimate.interval.high)
        axes.plot(ends, (place, place), "-", color=shade, lw=1.3, marker="|", ms=5)
    face = CARD if role in HOLLOW else shade
    (dot,) = axes.plot(estimate.value, place, "o", color=shade, mfc=face, ms=5.5, mew=1.3)
    said = f"{panel.title}, {name}: {words} {interval_words(estimate)}"
    chart.mark(dot, "standing", said.strip(" ,"))


# -- lines -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SweptValues:
    """The varied quantity: its name, its values in order, and their labels."""

    title: str
    values: tuple[float, ...]
    labels: tuple[str, ...]

    @property
    def is_crowded(self) -> bool:
        ordered = sorted(self.values)
        span = ordered[-1] - ordered[0]
        return any(b - a < CROWDED * span for a, b in pairwise(ordered)) or span <= 0

    @property
    def places(self) -> tuple[float, ...]:
        """Where they lie on the axis: at equal steps where the values are crowded."""
        return tuple(map(float, range(len(self.labels)))) if self.is_crowded else self.values


@dataclass(frozen=True, slots=True)
class Series:
    """One contender over the sweep; None where it has no value."""

    label: str
    slot: int
    role: str
    points: tuple[IntervalEstimate | None, ...]


@dataclass(frozen=True, slots=True)
class LinePanel:
    """One measure: its title, its lines, and whether they are times or ratios, on a log scale or not."""

    title: str
    series: tuple[Series, ...]
    is_time: bool = True
    is_log: bool = True
    reference: float | None = None
    room: float = 1.0
    """Margin around the lines of a log axis, as a factor; bands are cut off there."""

    @property
    def points(self) -> list[IntervalEstimate]:
        return [point for each in self.series for point in each.points if point is not None]


@styled
def line_plot(label: str, steps: SweptValues, panels: Sequence[LinePanel]) -> Chart:
    """The panels side by side, over the same steps."""
    drawn = [panel for panel in panels if panel.points]
    if not drawn:
        return empty_chart("Nothing to draw.")
    most = max(len(panel.series) for panel in drawn)
    chart = Chart(label, WIDE_IN, max(3.4, 0.2 * most + 0.8))
    for axes, panel in zip(chart.panels(1, len(drawn)), drawn, strict=True):
        if panel.reference is not None:
            axes.axhline(panel.reference, color=SOFT, lw=0.9)
        for each in sorted(panel.series, key=lambda series: series.role == "ours"):
            _line(chart, axes, each, steps)
        _scale(axes, panel)
        axes.set_title(panel.title)
        axes.set_xticks(steps.places, steps.labels)
        axes.set_xlabel(f"{steps.title}{' (equal steps)' if steps.is_crowded else ''}")
    if most > 1:
        _name_lines(chart, drawn[-1])
    return chart


def _scale(axes: Any, panel: LinePanel) -> None:
    lows = [point.low for point in panel.points]
    highs = [point.high for point in panel.points]
    values = [point.value for point in panel.points]
    if panel.room > 1:
        lows, highs = [min(values) / panel.room], [max(values) * panel.room]
    if panel.is_log and panel.is_time:
        charts.set_log_duration(axes.yaxis, min(lows), max(highs), "")
    elif panel.is_log:
        charts.set_log(axes.yaxis, min(lows), max(highs), "")
    elif panel.is_time:
        charts.set_duration(axes.yaxis, max(highs), "Time")
    else:
        charts.set_linear(axes.yaxis, max(highs), "")


def _style(series: Series) -> dict[str, Any]:
    is_ours = series.role == "ours"
    dash = (0, (1, 2)) if series.role == "bound" else charts.dashes(series.slot)
    shade = palette.policy_shade(series.slot).light
    return {"color": shade, "ls": dash, "lw": 2.6 if is_ours else 1.4, "marker": "o", "ms": 3.6}


def _line(chart: Chart, axes: Any, series: Series, steps: SweptValues) -> None:
    found = [(x, p) for x, p in zip(steps.places, series.points, strict=True) if p is not None]
    (line,) = axes.plot([x for x, _ in found], [p.value for _, p in found], **_style(series))
    chart.mark(line, f"series s{series.slot}", series.label)
    ends = [(x, p.interval) for x, p in found if p.interval is not None]
    if len(ends) > 1:
        lows, highs = [i.low for _, i in ends], [i.high for _, i in ends]
        shade = _style(series)["color"]
        axes.fill_between([x for x, _ in ends], lows, highs, color=shade, alpha=0.1, lw=0)


def _name_lines(chart: Chart, panel: LinePanel) -> None:
    """Beside the last panel, from top to bottom as its lines end."""
    from matplotlib.lines import Line2D

    def end(series: Series) -> float:
        return next((p.value for p in reversed(series.points) if p is not None), 0.0)

    ordered = sorted(panel.series, key=end, reverse=True)
    chart.figure.legend(
        [Line2D([], [], **_style(each)) for each in ordered],
        [wording.shortened(each.label, 28) for each in ordered],
        loc="outside right upper", fontsize=8.5, frameon=False, handlelength=2.6,
    )  # fmt: skip


# -- stacked bars ------------------------------------------------------------------------------------

CAUSES = ("fair share", "fragmentation", "contention")
"""In the order of the palette."""
Parts = Mapping[str, tuple[float, float, float]]
"""Job-seconds of waiting by cause, for each size of job."""


@styled
def stacked_bars(label: str, contenders: Mapping[str, Parts]) -> Chart:
    """Each bar is the whole waiting of its size, in parts; its job-hours stand beside it."""
    sizes = list(dict.fromkeys(size for parts in contenders.values() for size in parts))
    if not sizes:
        return empty_chart("No job waited.")
    chart, found = _grid(
        label, len(contenders), sizes, lambda lines: 0.4 + lines * (0.6 + 0.24 * len(sizes))
    )
    charts.set_share(found[0].xaxis)
    handles: list[Any] = []
    for axes, (name, parts) in zip(found, contenders.items(), strict=True):
        axes.set_title(wording.shortened(name, 34))
        axes.grid(False, axis="y")
        handles = _stack(chart, axes, name, [parts.get(size, (0.0, 0.0, 0.0)) for size in sizes])
    chart.legend(handles, CAUSES)
    return chart


def _stack(
    chart: Chart, axes: Any, name: str, rows: Sequence[tuple[float, float, float]]
) -> list[Any]:
    totals = [sum(parts) for parts in rows]
    before, handles = [0.0] * len(rows), []
    for cause, shade in enumerate(palette.CAUSES):
        shares = [
            parts[cause] / total if total > 0 else 0.0
            for parts, total in zip(rows, totals, strict=True)
        ]
        bars = axes.barh(range(len(rows)), shares, 0.62, before, color=shade.light)
        handles.append(bars[0])
        for bar, parts, part in zip(bars, rows, shares, strict=True):
            hours = wording.significant(parts[cause] / HOUR_S)
            said = f"{name}, {CAUSES[cause]}: {hours} job-hours ({wording.share(part)})"
            chart.mark(bar, f"cause{cause}", said)
        before = [start + share for start, share in zip(before, shares, strict=True)]
    for place, total in enumerate(totals):
        words = f"{wording.significant(total / HOUR_S)} h" if total > 0 else "no waiting"
        where = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 9}
        axes.text(1.02, place, words, color=SOFT, **where)
    return handles
