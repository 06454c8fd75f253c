"""A report of simulations: one page with everything inline, its figures as files, its numbers as CSV."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainmaster.model.result import Result
from trainmaster.model.units import to_seconds
from trainmaster.report import csvs, figures
from trainmaster.report.atomic_write import ReportFile, publish
from trainmaster.report.charts import Chart
from trainmaster.report.deadlines import deadline_table, slips_by_policy
from trainmaster.report.gantt import Gantt, GanttHour, gantt_hour
from trainmaster.report.headline import advantage_over_first, headline
from trainmaster.report.metrics import METRICS, Metric, shown
from trainmaster.report.policy_run import PolicyRun, name_runs
from trainmaster.report.rendering import Cell, Column, Header, Row, Table, page, quoted
from trainmaster.report.step_function import completion_times, first_submit_s, rho_values
from trainmaster.text import formatting as wording

PAGE = "index.html"
MOST_WARNINGS = 20


def write_report(
    results: Sequence[Result], directory: Path, *, title: str, trace_name: str
) -> Path:
    """Write the page, its plots as PNG, SVG and PDF and its numbers as CSV; the page's path comes back.

    All or nothing: when the directory cannot be written, ReportError says what to do and nothing
    is left behind.
    """
    publish(report_files(results, title, trace_name), directory)
    return directory / PAGE


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure with the words around it, and its numbers."""

    slug: str
    title: str
    explained: str
    chart: Chart
    csv: Callable[[], str] | None = None
    is_wide: bool = False
    label: str = ""
    """Of the policy, if it shows one alone."""

    @property
    def svg(self) -> str:
        return self.chart.svg()


def report_files(results: Sequence[Result], title: str, trace_name: str) -> Iterator[ReportFile]:
    """Every file of the report, the page last."""
    runs = name_runs(results)
    hour = gantt_hour(runs)
    drawn = [*plots(runs), *gantts(hour, first_submit_s(results))]
    yield text_file("summary.csv", csvs.summary_csv(runs))
    for run in runs:
        yield text_file(f"jobs-{run.slug}.csv", csvs.jobs_csv(run.result))
    yield text_file("queues.csv", csvs.queues_csv(runs))
    for plot in drawn:
        if plot.csv is not None:
            yield text_file(f"{plot.slug}.csv", plot.csv())
        yield ReportFile(f"{plot.slug}.png", partial(plot.chart.png, plot.title))
        yield from drawings(plot.slug, plot.chart)
    yield text_file(PAGE, _page(runs, title, trace_name, drawn, hour))


def drawings(name: str, chart: Chart) -> Iterator[ReportFile]:
    """A chart for papers."""
    for kind in ("svg", "pdf"):
        yield ReportFile(f"{name}.{kind}", partial(chart.drawing, kind))


def text_file(name: str, content: str) -> ReportFile:
    return ReportFile(name, content.encode("utf-8", errors="backslashreplace"))


def _page(
    runs: Sequence[PolicyRun],
    title: str,
    trace_name: str,
    drawn: Sequence[Plot],
    hour: GanttHour | None,
) -> str:
    found = headline(runs)
    window, origin_s = hour and hour.window, first_submit_s([run.result for run in runs])
    return page(
        "simulation.html",
        header=Header(_unbroken(found.sentence), title, found.details, _facts(runs, trace_name)),
        runs=runs,
        summary=summary_table(runs),
        plots=[plot for plot in drawn if not plot.label],
        queue_costs=_queue_costs(runs),
        deadlines=deadline_table(runs),
        slips=slips_by_policy(runs),
        hour=window,
        hour_start=window and wording.clock(to_seconds(window.start_ms) - origin_s),
        gantts=[plot for plot in drawn if plot.label],
        options=Table(
            ("policy", Column("options", is_words=True)),
            [(run.label, _options(run)) for run in runs],
        ),
        warnings=list(dict.fromkeys(w for run in runs for w in run.result.warnings)),
        most_warnings=MOST_WARNINGS,
    )


def _unbroken(sentence: str) -> str:
    """A number and its unit stay on one line."""
    return re.sub(r"(?<=\d) (?=(?:ms|s|min|h|d|times)\b|%)", "\N{NO-BREAK SPACE}", sentence)


def _facts(runs: Sequence[PolicyRun], trace_name: str) -> list[tuple[str, str]]:
    facts = [("Trace", trace_name)]
    if runs:
        first = runs[0].result
        facts.append(("Jobs", wording.count(first.summary.jobs)))
        facts.append(("Cluster", f"{first.cluster} · {wording.plural(first.gpus, 'GPU')}"))
        if first.summary.load is not None:
            facts.append(("Load", f"{first.summary.load:.2f}"))
    return [*facts, ("Policies", wording.count(len(runs)))]


def _options(run: PolicyRun) -> str:
    def option(value: object) -> str:
        if isinstance(value, list | tuple):
            return ",".join(str(part) for part in value)
        return "none" if value is None else str(value)

    pairs = (f"{key}={option(value)}" for key, value in run.result.options.items())
    return " ".join(map(quoted, pairs)) or "none"


# -- tables ------------------------------------------------------------------------------------------


def summary_table(runs: Sequence[PolicyRun]) -> Table:
    """A row per policy, the best of each column marked, sortable by a click on a heading."""
    summaries = [run.result.summary for run in runs]
    metrics = shown((metric for metric in METRICS.values() if metric.group), summaries)
    columns = [Column(each.label, hint=each.hint, group=each.group) for each in metrics]
    cells = [_column(metric, summaries) for metric in metrics]
    if len(runs) > 1:
        place = next(i for i, each in enumerate(metrics) if each.key == "avg_jct_s") + 1
        hint = f"Mean JCT of {runs[0].label} over this one's"
        columns.insert(place, Column("gain", hint=hint, group=columns[place - 1].group))
        cells.insert(place, [_gain(run, runs[0]) for run in runs])
    rows = [
        Row((Cell(run.label, value=run.slot), *(column[row] for column in cells)), slot=run.slot)
        for row, run in enumerate(runs)
    ]
    return Table(("policy", *columns), rows, is_sortable=True)


def _column(metric: Metric, summaries: Sequence[object]) -> list[Cell]:
    values = [metric.of(summary) for summary in summaries]
    best = metric.best(values)
    return [
        Cell(words, "best" if words == best else "", value)
        for value in values
        for words in [metric.words(value)]
    ]


def _gain(run: PolicyRun, first: PolicyRun) -> Cell:
    factor = advantage_over_first(run, first)
    words = wording.ABSENT if factor is None else f"{wording.significant(factor)}{wording.TIMES}"
    return Cell(words, value=factor)


def _queue_costs(runs: Sequence[PolicyRun]) -> Table | None:
    """Cost of each queue's jobs under each policy; None if GPUs have no price."""
    queues = list(dict.fromkeys(q.queue for run in runs for q in run.result.queues))
    costs = {(q.queue, run.slot): q.cost for run in runs for q in run.result.queues}
    if len(queues) < 2 or all(cost is None for cost in costs.values()):
        return None
    rows = []
    for place, queue in enumerate(queues):
        found = [costs.get((queue, run.slot)) for run in runs]
        cells = (Cell(wording.decimal(cost), value=cost) for cost in found)
        rows.append((Cell(queue, value=place), *cells))
    return Table(("queue", *(run.label for run in runs)), rows, is_sortable=True)


# -- figures -----------------------------------------------------------------------------------------


def plots(runs: Sequence[PolicyRun]) -> Iterator[Plot]:
    """Every figure that compares the policies, in the order of the page."""
    yield Plot(
        "jct_bars",
        "Job completion time",
        "From submission to finish; each panel has its own scale.",
        figures.jct_bars(runs),
        is_wide=True,
    )
    jct = figures.lines_of(runs, completion_times)
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
        figures.size_bars(runs),
        lambda: csvs.sizes_csv(runs),
    )
    rho = figures.lines_of(runs, rho_values)
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
        figures.delay_bars(runs),
        lambda: csvs.delays_csv(runs),
    )
    origin_s = first_submit_s([run.result for run in runs])
    strips = {q: figures.strips_of(q, runs, origin_s) for q in figures.QUANTITIES}
    ends = [float(strip.steps.xs[-1]) for found in strips.values() for strip in found]
    for quantity, found in strips.items():
        dense = any(figures.is_dense(strip) for strip in found)
        swings = "; pale: every swing between" if quantity.shows_swings else ""
        more = f" Bold: the mean over short stretches{swings}." if dense else ""
        yield Plot(
            quantity.slug,
            quantity.title,
            quantity.explained + more,
            figures.strips(quantity, found, max(ends, default=0.0)),
            partial(csvs.curve_csv, quantity, runs),
            is_wide=True,
        )


def gantts(hour: GanttHour | None, origin_s: float) -> Iterator[Plot]:
    """The busiest hour under each policy."""
    if hour is None:
        return
    for gantt in hour.charts:
        own = gantt.run
        yield Plot(
            f"gantt-{own.slug}",
            f"{own.label}: which job held which GPU in the busiest hour",
            " ".join(_cuts(gantt)),
            figures.gantt_chart(gantt, hour.window, origin_s),
            partial(csvs.stints_csv, own.result.stints, hour.window),
            label=own.label,
        )


def _cuts(gantt: Gantt) -> Iterator[str]:
    """What a chart leaves out, in words."""
    if gantt.hidden_nodes:
        shown = len({row.label for row in gantt.rows})
        yield f"Shown: the first {shown} of {shown + gantt.hidden_nodes:,} nodes."
    if gantt.hidden_stays:
        stays = len(gantt.stays)
        yield f"Shown: the {stays:,} longest of {stays + gantt.hidden_stays:,} stays."
