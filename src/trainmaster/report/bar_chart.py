"""Bar charts: completion times by policy and by job size, delays by cause."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainmaster.model.result import Bin, Delays, Summary
from trainmaster.report import axes, svg
from trainmaster.report.series import Contender
from trainmaster.report.svg import Panel
from trainmaster.text import formatting as wording
from trainmaster.text.formatting import HOUR_S

ROW, ROW_GAP = 22.0, 8.0
LONGEST_NAME = 20


@dataclass(frozen=True, slots=True)
class Measure:
    """A number of the summary that gets a panel of bars."""

    title: str
    value: Callable[[Summary], float | None]


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause of waiting; its position settles its colour."""

    title: str
    value: Callable[[Delays], float]


MEASURES = (
    Measure("Mean", lambda summary: summary.avg_jct_s),
    Measure("95th percentile", lambda summary: summary.p95_jct_s),
    Measure("99th percentile", lambda summary: summary.p99_jct_s),
)
CAUSES = (
    Cause("fair share", lambda delays: delays.fair_share_s),
    Cause("fragmentation", lambda delays: delays.fragmentation_s),
    Cause("contention", lambda delays: delays.contention_s),
)


def jct_bars(contenders: Sequence[Contender]) -> str:
    """Mean, p95 and p99 side by side, each on its own scale, a bar per policy."""
    gutter = _name_width(contenders)
    pitch = (svg.WIDE - gutter) / len(MEASURES)
    height = 34 + len(contenders) * (ROW + ROW_GAP)
    drawn = [_names(contenders, Panel(0, 34, gutter, height), ROW + ROW_GAP)]
    for place, measure in enumerate(MEASURES):
        panel = Panel(gutter + place * pitch, 34, pitch - 96, height - 34)
        drawn.append(_measure_panel(contenders, measure, panel))
    return svg.drawing(svg.WIDE, height, "Job completion times by policy", drawn)


def _measure_panel(contenders: Sequence[Contender], measure: Measure, panel: Panel) -> str:
    values = [measure.value(each.result.summary) for each in contenders]
    longest = max((value for value in values if value), default=1.0)
    drawn = [svg.text(panel.left, 18, measure.title, "name")]
    for row, (each, value) in enumerate(zip(contenders, values, strict=True)):
        y = panel.top + row * (ROW + ROW_GAP)
        width = panel.width * (value or 0) / longest
        said = worded_measure(each, value)
        css = "tick" if value is not None else "absent"
        bar = svg.rect(panel.left, y, max(width, 1.5), ROW, "fill", f"{each.label}: {said}")
        label = svg.text(panel.left + width + 8, y + 16, said, css)
        parts = [label] if value is None else [bar, label]
        drawn.append(svg.group(f"series s{each.slot}", parts))
    drawn.append(svg.line(panel.left, panel.top - 4, panel.left, panel.bottom, "axis"))
    return "".join(drawn)


def worded_measure(contender: Contender, value: float | None) -> str:
    if value is None:
        return "unfinished jobs" if contender.result.summary.unfinished else "not known"
    return wording.duration(value)


def size_bars(contenders: Sequence[Contender]) -> str:
    """Mean completion time by size class, a group of bars per class."""
    labels = size_labels(contenders)
    known = [b.avg_jct_s for each in contenders for b in each.result.bins if b.avg_jct_s]
    if not labels or not known:
        return svg.nothing_to_draw(svg.HALF, "No job finished.")
    y = axes.duration_axis(max(known), "Mean completion time", wanted=4)
    panel = Panel(left=62, top=34, width=svg.HALF - 78, height=246)
    pitch = panel.width / len(labels)
    drawn = [svg.left_axis(panel, y)]
    for place, label in enumerate(labels):
        left = panel.left + place * pitch
        drawn.append(_size_group(contenders, label, Panel(left, panel.top, pitch, panel.height), y))
    drawn.append(svg.line(panel.left, panel.bottom, panel.right, panel.bottom, "axis"))
    return svg.drawing(svg.HALF, 336, "Mean completion time by job size", drawn)


def _size_group(contenders: Sequence[Contender], label: str, panel: Panel, y: axes.Axis) -> str:
    room = panel.width * 0.8
    each_width = min(34.0, room / len(contenders))
    left = panel.left + (panel.width - each_width * len(contenders)) / 2
    drawn = []
    for place, each in enumerate(contenders):
        found = find_bin(each, label)
        if found is None or found.avg_jct_s is None:
            continue
        top = panel.y(y, found.avg_jct_s)
        said = f"{each.label}, {label}: mean {wording.duration(found.avg_jct_s)}, " + (
            f"p95 {wording.duration(found.p95_jct_s)}"
        )
        x, height = left + place * each_width, max(panel.bottom - top, 1.0)
        bar = svg.rect(x, panel.bottom - height, each_width - 1.5, height, "fill", said)
        drawn.append(svg.group(f"series s{each.slot}", [bar]))
    middle, fits = panel.left + panel.width / 2, max(4, int(panel.width / 7))
    jobs = max((b.jobs for each in contenders if (b := find_bin(each, label))), default=0)
    drawn.append(svg.text(middle, panel.bottom + 18, wording.shortened(label, fits), "tick mid"))
    said = wording.plural(jobs, "job") if panel.width >= 78 else wording.count(jobs)
    drawn.append(svg.text(middle, panel.bottom + 36, said, "fine mid"))
    return "".join(drawn)


def size_labels(contenders: Sequence[Contender]) -> list[str]:
    """Every size class in order of first mention."""
    labels = (b.label for each in contenders for b in each.result.bins if b.jobs)
    return list(dict.fromkeys(labels))


def find_bin(contender: Contender, label: str) -> Bin | None:
    return next((b for b in contender.result.bins if b.label == label), None)


def delay_bars(contenders: Sequence[Contender]) -> str:
    """Waiting by cause, stacked, a bar per policy."""
    totals = [total_delay_s(each.result.delays) for each in contenders]
    if all(total is None for total in totals):
        return svg.nothing_to_draw(svg.HALF, "Not recorded.")
    gutter = _name_width(contenders)
    highest = max(total for total in totals if total is not None) / HOUR_S
    x = axes.amount_axis(highest, "Waiting (job-hours)")
    pitch = max(ROW + ROW_GAP, min(60.0, 240.0 / len(contenders)))
    panel = Panel(gutter, 14, svg.HALF - gutter - 30, len(contenders) * pitch + 6)
    drawn = [svg.vertical_grid(panel, x), svg.bottom_axis(panel, x)]
    drawn.append(_names(contenders, Panel(0, panel.top + 6, gutter, panel.height), pitch))
    for row, each in enumerate(contenders):
        band = Panel(panel.left, panel.top + 6 + row * pitch, panel.width, pitch - ROW_GAP)
        drawn.append(_delay_bar(each, band, x))
    return svg.drawing(svg.HALF, panel.bottom + 52, "Waiting by cause", drawn)


def _delay_bar(contender: Contender, band: Panel, x: axes.Axis) -> str:
    delays = contender.result.delays
    if delays is None:
        return svg.text(band.left + 8, band.top + band.height / 2 + 5, "not recorded", "absent")
    total = total_delay_s(delays) or 0.0
    drawn, before = [], 0.0
    for place, cause in enumerate(CAUSES):
        hours = cause.value(delays) / HOUR_S
        part = wording.share(hours * HOUR_S / total) if total else "0 %"
        said = f"{contender.label}, {cause.title}: {wording.significant(hours)} job-hours ({part})"
        left, right = band.x(x, before), band.x(x, before + hours)
        bar = svg.rect(left, band.top, right - left, band.height, f"cause{place}", said)
        drawn.append(bar)
        before += hours
    return svg.group(f"series s{contender.slot}", drawn)


def total_delay_s(delays: Delays | None) -> float | None:
    return None if delays is None else sum(cause.value(delays) for cause in CAUSES)


def _names(contenders: Sequence[Contender], gutter: Panel, pitch: float) -> str:
    drawn = []
    for row, each in enumerate(contenders):
        y = gutter.top + row * pitch + (pitch - ROW_GAP) / 2 + 5
        name = wording.shortened(each.label, LONGEST_NAME)
        words = svg.text(gutter.right - 12, y, name, "policy end", each.label)
        drawn.append(svg.group(f"series s{each.slot}", [words]))
    return "".join(drawn)


def _name_width(contenders: Sequence[Contender]) -> float:
    longest = max((len(each.label) for each in contenders), default=0)
    return 24 + 7.6 * min(longest, LONGEST_NAME)
