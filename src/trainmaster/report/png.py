"""The same plots as PNG, for slides; matplotlib is loaded when the first one is drawn."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainmaster.model.units import to_seconds
from trainmaster.report import axes, gantt_chart, palette
from trainmaster.report import bar_chart as bars
from trainmaster.report.axes import Axis
from trainmaster.report.cdf_chart import FAIR_RHO, Drawn
from trainmaster.report.gantt import Gantt
from trainmaster.report.series import Contender
from trainmaster.report.step_function import Window, mean, smoothed, thinned, thinned_ranks
from trainmaster.report.timeseries_chart import Quantity, Strip
from trainmaster.text.formatting import HOUR_S

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 130
WIDTH_IN, HEIGHT_IN = 12.3, 6.9
MOST_LEGEND_COLUMNS = 5
HAIR, SOFT, INK = "#e3e6eb", "#5b6472", "#1b1f27"


def distribution_png(lines: Sequence[Drawn], axis: Axis | None, title: str) -> bytes:
    """Completion times or fairness; `axis` is None when there is nothing to draw."""
    figure = _figure(HEIGHT_IN)
    plot = _plot(figure, title)
    if axis is None:
        return _png(_say_empty(figure, plot))
    _horizontal(plot, axis)
    _vertical(plot, axes.share_axis("Part of the jobs"))
    for each in reversed(lines):
        steps, slot = thinned_ranks(each.steps), each.contender.slot
        # The line starts on the floor and runs on to the right edge, as on the page.
        xs = [max(float(steps.xs[0]), axis.low), *steps.xs.clip(axis.low).tolist(), axis.high]
        ys = [0.0, *steps.ys.tolist(), float(steps.ys[-1])]
        plot.step(xs, ys, where="post", color=_colour(slot), lw=2.4, ls=_dash(slot))
    if not axis.title.startswith("Job"):
        plot.axvline(FAIR_RHO, color=SOFT, lw=1.2, ls=":")
    _legend(figure, [each.contender for each in lines])
    return _png(figure)


def jct_bars_png(contenders: Sequence[Contender]) -> bytes:
    figure = _figure(1.6 + 0.5 * len(contenders))
    for place, measure in enumerate(bars.MEASURES):
        plot = figure.add_subplot(1, len(bars.MEASURES), place + 1)
        plot.set_title(measure.title, loc="left", color=SOFT, fontsize=13)
        values = [measure.value(each.result.summary) for each in contenders]
        longest = max((value for value in values if value), default=1.0)
        for row, (each, value) in enumerate(zip(contenders, values, strict=True)):
            plot.barh(row, value or 0.0, color=_colour(each.slot), height=0.72)
            said = bars.worded_measure(each, value)
            plot.text((value or 0.0) + 0.02 * longest, row, said, va="center", fontsize=12)
        names = [_plain(each.label) for each in contenders] if place == 0 else []
        plot.set_yticks(range(len(contenders)) if names else [], names, fontsize=13)
        plot.set_ylim(max(len(contenders), 1) - 0.5, -0.5)
        plot.set_xlim(0, 1.35 * longest)
        plot.set_xticks([])
        _bare(plot)
    _headed(figure, "Job completion time")
    return _png(figure)


def sizes_png(contenders: Sequence[Contender]) -> bytes:
    figure = _figure(HEIGHT_IN)
    plot = _plot(figure, "Completion time by job size")
    labels = bars.size_labels(contenders)
    known = [b.avg_jct_s for each in contenders for b in each.result.bins if b.avg_jct_s]
    if not known:
        return _png(_say_empty(figure, plot))
    _vertical(plot, axes.duration_axis(max(known), "Mean completion time"))
    width = 0.8 / len(contenders)
    for place, each in enumerate(contenders):
        found = [bars.find_bin(each, label) for label in labels]
        heights = [b.avg_jct_s or 0.0 if b else 0.0 for b in found]
        lefts = [group - 0.4 + place * width for group in range(len(labels))]
        plot.bar(lefts, heights, width * 0.94, align="edge", color=_colour(each.slot))
    plot.set_xticks(range(len(labels)), [_plain(label) for label in labels])
    _legend(figure, contenders)
    return _png(figure)


def delays_png(contenders: Sequence[Contender]) -> bytes:
    figure = _figure(2.2 + 0.5 * len(contenders))
    plot = _plot(figure, "Why jobs waited")
    known = [each for each in contenders if each.result.delays is not None]
    if not known:
        return _png(_say_empty(figure, plot))
    totals = [bars.total_delay_s(each.result.delays) or 0.0 for each in known]
    _horizontal(plot, axes.amount_axis(max(totals) / HOUR_S, "Waiting (job-hours)"))
    lefts = [0.0] * len(known)
    for cause, shade in zip(bars.CAUSES, palette.CAUSES, strict=True):
        hours = [cause.value(each.result.delays) / HOUR_S for each in known if each.result.delays]
        plot.barh(range(len(known)), hours, 0.72, lefts, color=shade.light, label=cause.title)
        lefts = [left + part for left, part in zip(lefts, hours, strict=True)]
    plot.set_yticks(range(len(known)), [_plain(each.label) for each in known], fontsize=13)
    plot.set_ylim(len(known) - 0.4, -0.6)
    figure.legend(ncols=3, frameon=False, fontsize=13, loc="outside lower left")
    return _png(figure)


def strips_png(quantity: Quantity, strips: Sequence[Strip], x: Axis) -> bytes:
    figure = _figure(1.5 + 1.35 * max(len(strips), 1))
    if not strips:
        return _png(_say_empty(figure, _plot(figure, quantity.title)))
    y = quantity.axis(strips)
    for row, strip in enumerate(strips):
        plot = figure.add_subplot(len(strips), 1, row + 1)
        _horizontal(plot, x, is_labelled=row == len(strips) - 1)
        _vertical(plot, y)
        drawn, colour = thinned(strip.steps), _colour(strip.contender.slot)
        plot.fill_between(drawn.xs, drawn.ys, step="post", color=colour, alpha=0.13, lw=0)
        width, alpha = (0.6, 0.4) if strip.is_dense else (2.2, 1.0)
        plot.step(drawn.xs, drawn.ys, where="post", color=colour, lw=width, alpha=alpha)
        if strip.is_dense:
            means = smoothed(strip.steps)
            plot.plot(means.xs, means.ys, color=colour, lw=2.2)
        plot.set_title(_plain(strip.contender.label), loc="left", fontsize=12, fontweight="bold")
        average = f"mean {quantity.worded(mean(strip.steps))}"
        plot.set_title(average, loc="right", fontsize=11, color=SOFT)
    _headed(figure, quantity.title)
    return _png(figure)


def gantt_png(chart: Gantt, window: Window) -> bytes:
    lane_in = gantt_chart.lane_height(chart) / 72
    figure = _figure(1.6 + lane_in * chart.gpus)
    plot = _plot(figure, f"{chart.contender.label}: who held which GPU in the busiest hour")
    if not chart.stays:
        return _png(_say_empty(figure, plot))
    x = axes.elapsed_axis(to_seconds(window.length_ms), gantt_chart.WINDOW_TITLE)
    _horizontal(plot, x)
    plot.set_facecolor("#f0f2f5")
    _draw_stays(plot, chart, window)
    every = max(1, round(14 / 72 / (lane_in * chart.gpus / len(chart.rows))))
    labelled = chart.rows[::every]
    middles = [row.first_gpu + row.gpus / 2 for row in labelled]
    plot.set_yticks(middles, [_plain(row.label) for row in labelled], fontsize=9)
    plot.set_ylim(chart.gpus, 0)
    return _png(figure)


def _draw_stays(plot: Axes, chart: Gantt, window: Window) -> None:
    from matplotlib.collections import LineCollection, PolyCollection

    boxes, colours, edges = [], [], []
    for stay in chart.stays:
        for bar in stay.bars:
            left = to_seconds(bar.start_ms - window.start_ms)
            right = to_seconds(bar.end_ms - window.start_ms)
            top, bottom = bar.top, bar.top + bar.depth
            boxes.append([(left, top), (right, top), (right, bottom), (left, bottom)])
            colours.append(palette.JOBS[stay.colour % len(palette.JOBS)])
            if stay.away_ms is not None and stay.stint.end_ms <= window.end_ms:
                edges.append([(right, top), (right, bottom)])
    plot.add_collection(PolyCollection(boxes, facecolors=colours, edgecolors="white", lw=0.4))
    plot.add_collection(LineCollection(edges, colors=INK, linewidths=1.4))


def _figure(height_in: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH_IN, height_in), dpi=DPI, layout="constrained")


def _plot(figure: Figure, title: str) -> Axes:
    plot = figure.add_subplot()
    _headed(figure, title)
    return plot


def _headed(figure: Figure, title: str) -> None:
    figure.suptitle(_plain(title), x=0.01, ha="left", fontsize=18, fontweight="bold")


def _horizontal(plot: Axes, axis: Axis, is_labelled: bool = True) -> None:
    if axis.is_log:
        plot.set_xscale("log")
    plot.set_xlim(axis.low, axis.high)
    labels = [tick.label if is_labelled else "" for tick in axis.ticks]
    plot.set_xticks([tick.at for tick in axis.ticks], labels)
    plot.set_xticks([], minor=True)
    if is_labelled:
        plot.set_xlabel(axis.title, color=SOFT, fontsize=13)
    plot.grid(axis="x", color=HAIR)
    _bare(plot)


def _vertical(plot: Axes, axis: Axis) -> None:
    plot.set_ylim(axis.low, axis.high)
    plot.set_yticks([tick.at for tick in axis.ticks], [tick.label for tick in axis.ticks])
    plot.set_ylabel(axis.title, color=SOFT, fontsize=13)
    plot.grid(axis="y", color=HAIR)
    _bare(plot)


def _bare(plot: Axes) -> None:
    plot.set_axisbelow(True)
    plot.tick_params(length=0, labelcolor=INK, labelsize=12)
    for side in ("top", "right", "left", "bottom"):
        plot.spines[side].set_visible(side == "bottom")


def _legend(figure: Figure, contenders: Sequence[Contender]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=_colour(each.slot), lw=2.6, ls=_dash(each.slot)) for each in contenders
    ]
    names = [_plain(each.label) for each in contenders]
    columns = min(MOST_LEGEND_COLUMNS, len(names))
    figure.legend(
        handles, names, frameon=False, fontsize=13, loc="outside lower left", ncols=columns
    )


def _say_empty(figure: Figure, plot: Axes) -> Figure:
    plot.text(0.5, 0.5, "nothing to show", ha="center", color=SOFT, fontsize=14)
    plot.set_xticks([])
    plot.set_yticks([])
    _bare(plot)
    return figure


def _colour(slot: int) -> str:
    return palette.policy_shade(slot).light


def _dash(slot: int) -> str | tuple[int, tuple[float, ...]]:
    lengths = tuple(float(length) / 2 for length in palette.policy_dash(slot).split())
    return (0, lengths) if lengths else "-"


def _plain(text: str) -> str:
    """Text that matplotlib takes literally: a dollar would start a formula."""
    return text.replace("$", r"\$")


def _png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name in a script that the font lacks, a tight layout
        figure.savefig(stream, format="png")
    return stream.getvalue()
