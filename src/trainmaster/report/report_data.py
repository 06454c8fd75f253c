"""What a simulation's report shows: its figures with their numbers, and the tables around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trainmaster.model.result import Result
from trainmaster.model.units import to_seconds
from trainmaster.report import csvs, figures
from trainmaster.report.charts import Chart
from trainmaster.report.gantt import Gantt, GanttHour, gantt_hour
from trainmaster.report.series import Contender, line_up
from trainmaster.report.step_function import completion_times, first_submit_s, rho_values
from trainmaster.text import formatting as wording


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure with the words around it, and its numbers."""

    slug: str
    title: str
    explained: str
    chart: Chart
    csv: Callable[[], str] | None = None
    is_wide: bool = False
    is_gantt: bool = False


def plots(results: Sequence[Result]) -> Iterator[Plot]:
    """Every figure of the report, in the order of the page."""
    contenders = line_up(results)
    yield Plot(
        "jct_bars",
        "Job completion time",
        "From submission to finish; each panel has its own scale.",
        figures.jct_bars(contenders),
        is_wide=True,
    )
    jct = figures.lines_of(contenders, completion_times)
    yield Plot(
        "jct_cdf",
        "How many jobs are done after how long",
        "Further left is better. A line that ends below 100 % left jobs unfinished.",
        figures.jct_distribution(jct),
        lambda: csvs.distribution_csv(jct, "jct_s"),
    )
    yield Plot(
        "jct_by_size",
        "Completion time by job size",
        "Mean over the jobs of each size that ended.",
        figures.size_bars(contenders),
        lambda: csvs.sizes_csv(contenders),
    )
    rho = figures.lines_of(contenders, rho_values)
    yield Plot(
        "rho_cdf",
        "Fairness",
        f"{wording.RHO} above 1 (dotted): slower than with an equal share of the cluster.",
        figures.rho_distribution(rho),
        lambda: csvs.distribution_csv(rho, "rho"),
    )
    yield Plot(
        "delays",
        "Why jobs waited",
        "All waiting of all jobs, by its cause.",
        figures.delay_bars(contenders),
        lambda: csvs.delays_csv(contenders),
    )
    yield from _over_time(contenders, first_submit_s(results))
    hour = gantt_hour(contenders)
    if hour is not None:
        for gantt in hour.charts:
            yield _gantt(gantt, hour, first_submit_s(results))


def _over_time(contenders: Sequence[Contender], origin_s: float) -> Iterator[Plot]:
    drawn = {q.slug: figures.strips_of(q, contenders, origin_s) for q in figures.QUANTITIES}
    ends = [float(strip.steps.xs[-1]) for strips in drawn.values() for strip in strips]
    for quantity in figures.QUANTITIES:
        strips = drawn[quantity.slug]
        explained = quantity.explained
        if any(figures.is_dense(strip) for strip in strips):
            explained += " Bold: the mean over short stretches; pale: every swing between."
        yield Plot(
            quantity.slug,
            quantity.title,
            explained,
            figures.strips(quantity, strips, max(ends, default=0.0)),
            lambda quantity=quantity: csvs.curve_csv(quantity, contenders),  # type: ignore[misc]
            is_wide=True,
        )


def _gantt(gantt: Gantt, hour: GanttHour, origin_s: float) -> Plot:
    own = gantt.contender
    return Plot(
        f"gantt-{own.slug}",
        f"{own.label}: who held which GPU in the busiest hour",
        " ".join(_cuts(gantt)),
        figures.gantt_chart(gantt, hour.window, origin_s),
        lambda: csvs.stints_csv(own.result.stints, hour.window),
        is_gantt=True,
    )


def _cuts(gantt: Gantt) -> Iterator[str]:
    """What a chart leaves out, in words."""
    if gantt.hidden_nodes:
        shown = len({row.label for row in gantt.rows})
        yield f"Shown: the first {shown} of {shown + gantt.hidden_nodes:,} nodes."
    if gantt.hidden_stays:
        stays = len(gantt.stays)
        yield f"Shown: the {stays:,} longest of {stays + gantt.hidden_stays:,} stays."


def gantt_words(contenders: Sequence[Contender]) -> str:
    """What the charts of the busiest hour show."""
    hour = gantt_hour(contenders)
    if hour is None:
        return "No stay on a GPU was recorded."
    origin_s = first_submit_s([each.result for each in contenders])
    start_s = to_seconds(hour.window.start_ms) - origin_s
    return (
        f"From {wording.clock(start_s)} after the first submission: {hour.window.chosen} "
        f"under {contenders[0].label}, shown for every policy. "
        "One colour per job, the same in every chart; point at a bar to see all stays of its job. "
        "A dark end means that the job left its GPUs there and came back later (suspended, moved "
        "or run again), so the gap until its next bar is time suspended."
    )
