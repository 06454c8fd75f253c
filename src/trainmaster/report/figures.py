"""The figures of a simulation's report, each drawn from the results of all policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster.model.result import Bin, Curve, Delays, Result
from trainmaster.model.units import to_seconds
from trainmaster.report import charts, palette
from trainmaster.report.charts import HALF_IN, INK, SOFT, WIDE_IN, Chart, Mark, empty_chart, styled
from trainmaster.report.gantt import Gantt, Stay
from trainmaster.report.metrics import BAR_METRICS
from trainmaster.report.policy_run import PolicyRun
from trainmaster.report.step_function import (
    SMOOTH_POINTS,
    Steps,
    TimeWindow,
    from_curve,
    mean,
    smoothed,
    thinned,
    thinned_ranks,
)
from trainmaster.text import formatting as wording
from trainmaster.text.formatting import HOUR_S, RHO

FAIR_RHO = 1.0
LONGEST_NAME = 20
THIN_ABOVE = 64
SMALLEST_LABEL_PT = 9.0


def colour(run: PolicyRun) -> str:
    return palette.policy_shade(run.slot).light


def _css(run: PolicyRun) -> str:
    return f"series s{run.slot}"


def _name(run: PolicyRun) -> str:
    return wording.shortened(run.label, LONGEST_NAME)


def _legend(chart: Chart, runs: Sequence[PolicyRun], *, are_lines: bool = True) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Line2D([], [], color=colour(each), lw=2.2, ls=charts.dashes(each.slot))
        if are_lines
        else Patch(color=colour(each))
        for each in runs
    ]
    chart.legend(handles, [_name(each) for each in runs])


# -- distributions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PolicyLine:
    """One policy's line."""

    run: PolicyRun
    steps: Steps


def lines_of(
    runs: Sequence[PolicyRun], values: Callable[[Result], Steps]
) -> tuple[PolicyLine, ...]:
    """Of the policies that have anything to draw."""
    lines = (PolicyLine(each, values(each.result)) for each in runs)
    return tuple(line for line in lines if not line.steps.is_empty)


@styled
def jct_distribution(lines: Sequence[PolicyLine]) -> Chart:
    if not lines:
        return empty_chart("No job finished.", HALF_IN)
    chart, panel, low, high = _distribution(lines, "Part of all accepted jobs done")
    charts.set_log_duration(panel.xaxis, low, high, "Job completion time, log scale")
    return _with_lines(chart, panel, lines)


@styled
def rho_distribution(lines: Sequence[PolicyLine]) -> Chart:
    if not lines:
        return empty_chart(f"No job has a {RHO}.", HALF_IN)
    chart, panel, low, high = _distribution(lines, "Part of the finished jobs")
    title = f"{RHO}, log scale: completion time over that of a fair share"
    charts.set_log(panel.xaxis, min(low, FAIR_RHO / 2), max(high, FAIR_RHO * 2), title)
    panel.axvline(FAIR_RHO, color=SOFT, lw=1.1, ls=":")
    return _with_lines(chart, panel, lines)


def _distribution(lines: Sequence[PolicyLine], title: str) -> tuple[Chart, Any, float, float]:
    """The empty chart, and the smallest positive and the largest value: a log scale has no zero."""
    chart = Chart(title, HALF_IN, 3.7)
    (panel,) = chart.panels()
    charts.set_share(panel.yaxis, title)
    panel.tick_params(axis="x", pad=11)  # its first label would touch the other axis' 0 %
    positive = [float(x) for each in lines for x in each.steps.xs[each.steps.xs > 0][:1]]
    return chart, panel, min(positive, default=1.0), max(float(e.steps.xs[-1]) for e in lines)


def _with_lines(chart: Chart, panel: Any, lines: Sequence[PolicyLine]) -> Chart:
    low, high = panel.get_xlim()
    for each in lines:  # a dashed one over a solid one: where they coincide, both show
        steps, own = thinned_ranks(each.steps), each.run
        # The line starts on the floor and runs on to the right edge.
        xs = [max(float(steps.xs[0]), low), *steps.xs.clip(low).tolist(), high]
        ys = [0.0, *steps.ys.tolist(), float(steps.ys[-1])]
        (line,) = panel.step(
            xs, ys, where="post", color=colour(own), lw=1.9, ls=charts.dashes(own.slot)
        )
        chart.mark(line, _css(own), own.label)
    _legend(chart, [each.run for each in lines])
    return chart


# -- bars --------------------------------------------------------------------------------------------


@styled
def jct_bars(runs: Sequence[PolicyRun]) -> Chart:
    """Mean, p95 and p99 side by side, each on its own scale, a bar per policy."""
    if not runs:
        return empty_chart("No policy was run.")
    chart = Chart("Job completion times by policy", WIDE_IN, 0.7 + 0.3 * len(runs))
    for place, panel in enumerate(chart.panels(1, len(BAR_METRICS))):
        metric = BAR_METRICS[place]
        values = [metric.of(each.result.summary) for each in runs]
        longest = max((value for value in values if value), default=1.0)
        for row, (each, value) in enumerate(zip(runs, values, strict=True)):
            unknown = "unfinished jobs" if each.result.summary.unfinished else "not known"
            said = unknown if value is None else wording.duration(value)
            (bar,) = panel.barh(row, max(value or 0.0, 0.004 * longest), 0.72, color=colour(each))
            bar.set_visible(value is not None)
            chart.mark(bar, _css(each), f"{each.label}: {said}")
            style = "italic" if value is None else "normal"
            panel.text((value or 0.0) + 0.02 * longest, row, said, va="center", style=style)
        panel.set_title(metric.label)
        panel.set(xlim=(0, 1.35 * longest), xticks=[])
        _name_rows(panel, [_name(each) for each in runs] if place == 0 else [])
        panel.set_ylim(len(runs) - 0.5, -0.5)
    return chart


def _name_rows(panel: Any, names: Sequence[str]) -> None:
    panel.set_yticks(range(len(names)), names)
    panel.tick_params(axis="y", labelcolor=INK)
    panel.grid(False, axis="y")
    panel.spines["bottom"].set_visible(False)


@styled
def size_bars(runs: Sequence[PolicyRun]) -> Chart:
    """Mean completion time by size class, a group of bars per class."""
    labels = list(dict.fromkeys(b.label for each in runs for b in each.result.bins if b.jobs))
    known = [b.avg_jct_s for each in runs for b in each.result.bins if b.avg_jct_s]
    if not labels or not known:
        return empty_chart("No job finished.", HALF_IN)
    chart = Chart("Mean completion time by job size", HALF_IN, 3.7)
    (panel,) = chart.panels()
    charts.set_duration(panel.yaxis, max(known), "Mean completion time")
    width = min(0.24, 0.84 / len(runs))
    for place, each in enumerate(runs):
        for group, label in enumerate(labels):
            found = _bin(each, label)
            if found is None or found.avg_jct_s is None:
                continue
            left = group + (place - len(runs) / 2) * width
            (bar,) = panel.bar(
                left, found.avg_jct_s, width * 0.92, align="edge", color=colour(each)
            )
            said = (
                f"mean {wording.duration(found.avg_jct_s)}, p95 {wording.duration(found.p95_jct_s)}"
            )
            chart.mark(bar, _css(each), f"{each.label}, {label}: {said}")
    jobs = [max(b.jobs for e in runs if (b := _bin(e, label))) for label in labels]
    names = [f"{name}\n{wording.plural(n, 'job')}" for name, n in zip(labels, jobs, strict=True)]
    panel.set_xticks(range(len(labels)), names, fontsize=9 if len(labels) < 6 else 7.5)
    panel.grid(False, axis="x")
    _legend(chart, runs, are_lines=False)
    return chart


def _bin(run: PolicyRun, label: str) -> Bin | None:
    return next((b for b in run.result.bins if b.label == label), None)


CAUSES: dict[str, Callable[[Delays], float]] = {
    "fair share": lambda delays: delays.fair_share_s,
    "fragmentation": lambda delays: delays.fragmentation_s,
    "contention": lambda delays: delays.contention_s,
}
"""Causes of waiting, in the order of the palette."""


@styled
def delay_bars(runs: Sequence[PolicyRun]) -> Chart:
    """Waiting by cause, stacked, a bar per policy."""
    known = [(each, each.result.delays) for each in runs if each.result.delays is not None]
    if not known:
        return empty_chart("Not recorded.", HALF_IN)
    totals = [sum(cause(delays) for cause in CAUSES.values()) for _, delays in known]
    chart = Chart("Waiting by cause", HALF_IN, max(2.0, 1.2 + 0.34 * len(known)))
    (panel,) = chart.panels()
    before = [0.0] * len(known)
    handles = []
    for shade, (title, cause) in zip(palette.CAUSES, CAUSES.items(), strict=True):
        hours = [cause(delays) / HOUR_S for _, delays in known]
        bars = panel.barh(range(len(known)), hours, 0.7, before, color=shade.light)
        handles.append(bars[0])
        for (each, _), bar, length, total in zip(known, bars, hours, totals, strict=True):
            part = wording.share(length * HOUR_S / total) if total else "0 %"
            said = f"{wording.significant(length)} job-hours ({part})"
            chart.mark(bar, _css(each), f"{each.label}, {title}: {said}")
        before = [start + length for start, length in zip(before, hours, strict=True)]
    charts.set_linear(panel.xaxis, max(totals) / HOUR_S, "Waiting (job-hours)")
    _name_rows(panel, [_name(each) for each, _ in known])
    panel.set_ylim(len(known) - 0.4, -0.6)
    chart.legend(handles, list(CAUSES))
    return chart


# -- over time ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something followed over time."""

    slug: str
    title: str
    explained: str
    curve: Callable[[Result], Curve]
    words: Callable[[float | None], str]
    is_share: bool = True
    shows_swings: bool = True
    """Whether every step is drawn where there are too many to follow; else their mean alone is."""


QUANTITIES = (
    Quantity(
        "utilisation",
        "Utilisation over time",
        "Part of the cluster's GPUs that make progress.",
        lambda result: result.utilisation,
        wording.share,
    ),
    Quantity(
        "queue_length",
        "Queue length over time",
        "Jobs that wait, suspended ones included.",
        lambda result: result.queue_length,
        lambda value: f"{wording.decimal(value)} jobs",
        is_share=False,
    ),
    Quantity(
        "fragmentation",
        "Fragmentation over time",
        "Part of the free GPUs that lie on partly used nodes.",
        lambda result: result.fragmentation,
        wording.share,
        shows_swings=False,
    ),
)


def strips_of(
    quantity: Quantity, runs: Sequence[PolicyRun], origin_s: float
) -> tuple[PolicyLine, ...]:
    """The curve of each policy that recorded the quantity, over the time since the first submission."""
    return lines_of(runs, lambda result: from_curve(quantity.curve(result), origin_s))


def is_dense(strip: PolicyLine) -> bool:
    """Whether there are too many steps to follow by eye: a mean is drawn over them."""
    return len(strip.steps.xs) > SMOOTH_POINTS


@styled
def strips(quantity: Quantity, drawn: Sequence[PolicyLine], span_s: float) -> Chart:
    """A strip per policy, above each other, on the same scales."""
    if not drawn:
        return empty_chart("Not recorded.")
    chart = Chart(quantity.title, WIDE_IN, 0.6 + 1.15 * len(drawn))
    highest = max(float(each.steps.ys.max()) for each in drawn)
    panels = chart.panels(len(drawn), 1, sharex=True, sharey=True)
    for panel, strip in zip(panels, drawn, strict=True):
        own, steps = strip.run, thinned(strip.steps)
        if is_dense(strip) and not quantity.shows_swings:
            steps = smoothed(strip.steps)
        width, alpha = (0.6, 0.4) if is_dense(strip) else (1.8, 1.0)
        area = panel.fill_between(
            steps.xs, steps.ys, step="post", color=colour(own), alpha=0.13, lw=0
        )
        (line,) = panel.step(
            steps.xs, steps.ys, where="post", color=colour(own), lw=width, alpha=alpha
        )
        for artist in (area, line):
            chart.mark(artist, _css(own), own.label)
        if is_dense(strip):
            means = smoothed(strip.steps)
            (line,) = panel.plot(means.xs, means.ys, color=colour(own), lw=1.8)
            chart.mark(line, _css(own), own.label)
        panel.set_title(own.label)
        average = f"mean {quantity.words(mean(strip.steps))}"
        panel.set_title(average, loc="right", color=SOFT, fontsize=9, fontweight="normal")
    if quantity.is_share:
        charts.set_share(panels[0].yaxis, parts=2)
    else:
        charts.set_linear(panels[0].yaxis, max(highest, 1.0), "", wanted=3, is_whole=True)
    title = "Time since the first submission"
    charts.set_duration(panels[-1].xaxis, span_s, title, wanted=8, ends_round=False)
    return chart


# -- GPUs over time ----------------------------------------------------------------------------------


@styled
def gantt_chart(gantt: Gantt, window: TimeWindow, origin_s: float) -> Chart:
    """The stays of one policy in the window, one colour per job."""
    if not gantt.stays:
        return empty_chart("No GPU was held in this hour.")
    lane_pt = _lane_pt(gantt.gpus)
    chart = Chart(f"GPUs held under {gantt.run.label}", WIDE_IN, 0.6 + lane_pt * gantt.gpus / 72)
    (panel,) = chart.panels()
    panel.set_facecolor(charts.IDLE)
    length_s = to_seconds(window.length_ms)
    charts.set_duration(panel.xaxis, length_s, "Time into the hour", wanted=8, ends_round=False)
    _draw_stays(chart, panel, gantt, window, origin_s, lane_pt)
    every = max(1, round(12 / (lane_pt * gantt.gpus / len(gantt.rows))))
    labelled = gantt.rows[::every]
    middles = [row.first_gpu + row.gpus / 2 for row in labelled]
    panel.set_yticks(middles, [wording.shortened(row.label, 12) for row in labelled], fontsize=8.5)
    panel.hlines(
        [row.first_gpu for row in gantt.rows], 0, length_s, color=charts.CARD, lw=0.9, zorder=3
    )
    panel.grid(False, axis="y")
    panel.set_ylim(gantt.gpus, 0)
    return chart


def _lane_pt(gpus: int) -> float:
    """Height of one GPU: tall on a small cluster, a thin line of its node's row on a large one."""
    return max(6.0, min(16.5, 240 / gpus)) if gpus <= THIN_ABOVE else max(2.6, 480 / gpus)


def _draw_stays(
    chart: Chart, panel: Any, gantt: Gantt, window: TimeWindow, origin_s: float, lane_pt: float
) -> None:
    from matplotlib.collections import LineCollection, PolyCollection

    boxes, colours, marks, ends = [], [], [], []
    point_s = to_seconds(window.length_ms) / (72 * (WIDE_IN - 1))
    for stay in gantt.stays:
        for bar in stay.bars:
            left = to_seconds(bar.start_ms - window.start_ms)
            right = to_seconds(bar.end_ms - window.start_ms)
            top, bottom = bar.top, bar.top + bar.depth
            boxes.append([(left, top), (right, top), (right, bottom), (left, bottom)])
            colours.append(palette.JOBS[stay.colour % len(palette.JOBS)])
            marks.append(Mark("stay", described(stay, origin_s), stay.stint.job_id))
            if stay.away_ms is not None and stay.stint.end_ms <= window.end_ms:
                ends.append([(right, top), (right, bottom)])
            fits = (right - left) / point_s >= 8 + 5.4 * len(stay.stint.job_id)
            if bar is stay.bars[0] and bar.depth * lane_pt >= SMALLEST_LABEL_PT and fits:
                panel.text(
                    left + 4 * point_s, (top + bottom) / 2, stay.stint.job_id,
                    va="center", fontsize=8, color="#1a1f27", in_layout=False,
                )  # fmt: skip
    edge = 0.4 if lane_pt > 3 else 0.0
    stays = PolyCollection(boxes, facecolors=colours, edgecolors="white", linewidths=edge)
    chart.mark_each(stays, marks)
    panel.add_collection(stays, autolim=False)
    panel.add_collection(LineCollection(ends, colors="#1a1f27", linewidths=1.6), autolim=False)


def described(stay: Stay, origin_s: float) -> str:
    """The tooltip of a bar."""
    stint = stay.stint
    length_s = to_seconds(stint.end_ms - stint.start_ms)
    start_s, end_s = to_seconds(stint.start_ms) - origin_s, to_seconds(stint.end_ms) - origin_s
    when = f"{wording.clock(start_s)} to {wording.clock(end_s)} ({wording.duration(length_s)})"
    gpus = wording.plural(len(stint.gpus), "GPU")
    after = ""
    if stay.away_ms:
        after = f"\nthen off its GPUs for {wording.duration(to_seconds(stay.away_ms))}"
    elif stay.away_ms is not None:
        after = "\nthen moved at once"
    return f"{stint.job_id}\n{when}\n{gpus}{after}"
