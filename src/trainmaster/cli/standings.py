"""The tables that a comparison ends with: contenders by excess, or who leads where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from trainmaster.cli.wording import screen
from trainmaster.evaluation.report.comparisons import (
    MEAN_JCT,
    Comparison,
    Entrant,
    Measure,
    Subject,
    comparisons,
    excess,
    lowest,
    mean_jct,
    measure_named,
    ratio,
)
from trainmaster.evaluation.report.phrases import seconds_words, with_interval
from trainmaster.evaluation.score import Campaign, Score
from trainmaster.evaluation.suite import Standing
from trainmaster.sim.report.wording import ABSENT, RHO, decimal, duration, plural, share

if TYPE_CHECKING:
    from rich.table import Table

MOST_TABLES = 6
"""More comparisons than this are shown by a line each."""
NAMES_WIDTH, MEASURE_WIDTH = 46, 11
"""Columns of the screen for a contender with its ratio, and for a measure."""


class Column(NamedTuple):
    """One measure: how it is called, found and written; shown where somebody has it."""

    title: str
    measure: Measure
    wording: Callable[[float | None], str]


COLUMNS = (
    Column("excess", excess, seconds_words),
    Column("mean JCT", mean_jct, duration),
    Column("passed", measure_named("passed_jct_s"), duration),
    Column("p50", measure_named("p50_s"), duration),
    Column("p95", measure_named("p95_s"), duration),
    Column("p99", measure_named("p99_s"), duration),
    Column("queueing", measure_named("queue_s"), duration),
    Column(f"p99 {RHO}", measure_named("rho_p99"), decimal),
    Column(f"{RHO} > 1", measure_named("rho_over_1"), share),
    Column(f"max {RHO}", measure_named("rho_max"), decimal),
    Column("utilisation", measure_named("gpu_util"), share),
    Column("preemptions", measure_named("preemptions"), decimal),
    Column("cost", measure_named("cost"), decimal),
)


class Count(NamedTuple):
    """Jobs without a time; shown where there are some."""

    title: str
    count: Callable[[Score], int]


COUNTS = (
    Count("rejected", lambda score: score.rejected),
    Count("unfinished", lambda score: score.unfinished),
)


def show(campaign: Campaign) -> None:
    """On standard output: a table for each comparison, or one for all if they are many."""
    found = comparisons(campaign)
    console = screen()
    if len(found) > MOST_TABLES:
        console.print(overview(found))
        return
    for each in found:
        console.print(_headline(each), style="bold", markup=False)
        console.print(_standings(each, console.width))


def _headline(comparison: Comparison) -> str:
    workload, load = comparison.workload, comparison.load
    where = workload.cluster if isinstance(workload.cluster, str) else f"{comparison.gpus} GPUs"
    parts = [
        f"{workload.title or workload.name} on {where}, {comparison.conditions.name}",
        f"{plural(comparison.jobs, 'measured job')}",
    ]
    if load is not None:
        parts.append(f"load {load:.2f}{' (transient)' if comparison.is_transient else ''}")
    if comparison.seeds > 1:
        parts.append(f"{comparison.seeds} seeds")
    return f"{comparison.experiment.name}: {', '.join(parts)}"


def _standings(comparison: Comparison, width: int) -> Table:
    """As many measures as the screen has room for."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    entrants = comparison.entrants
    known = [c for c in COLUMNS if any(each.mean(c.measure) is not None for each in entrants)]
    shown = known[: max(1, (width - NAMES_WIDTH) // MEASURE_WIDTH)]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    baseline, subject = comparison.baseline, comparison.subject
    against = baseline.label if baseline is not None else ABSENT
    table.add_column(f"{subject.name} against {escape(against)}", justify="right")
    for column in shown:
        table.add_column(column.title, justify="right", no_wrap=True)
    counted = [each for each in COUNTS if any(entrant.total(each.count) for entrant in entrants)]
    for count in counted:
        table.add_column(count.title, justify="right")
    for entrant in entrants:
        cells = [column.wording(entrant.mean(column.measure)) for column in shown]
        counts = [f"{entrant.total(each.count):,}" for each in counted]
        table.add_row(_name(entrant), _ratio(entrant, baseline, subject), *cells, *counts)
    return table


def _name(entrant: Entrant) -> str:
    from rich.markup import escape

    mark = " (bound)" if entrant.standing is Standing.BOUND else ""
    return escape(f"{entrant.label}{mark}")


def _ratio(entrant: Entrant, baseline: Entrant | None, subject: Subject) -> str:
    from rich.markup import escape

    if baseline is None or entrant is baseline:
        return ABSENT
    return escape(with_interval(ratio(entrant, baseline, subject.measure)))


def overview(found: Sequence[Comparison]) -> Table:
    """A line per comparison: the best published contender, and ours against it."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("experiment", "workload", "conditions"):
        table.add_column(title)
    table.add_column("load", justify="right")
    table.add_column("best published")
    for title in ("its excess", "ours", "against it"):
        table.add_column(title, justify="right")
    for each in found:
        names = (each.experiment.name, each.workload.name, each.conditions.name)
        load = ABSENT if each.load is None else f"{each.load:.2f}"
        table.add_row(*map(escape, names), load, *_leaders(each))
    return table


def _leaders(comparison: Comparison) -> tuple[str, str, str, str]:
    from rich.markup import escape

    published, subject = comparison.of_standing(Standing.PUBLISHED), comparison.subject
    best, ours = lowest(published, subject.measure), comparison.ours
    name = ABSENT if best is None else escape(best.label)
    its = ABSENT if best is None else seconds_words(best.mean(excess))
    if ours is None:
        return name, its, ABSENT, ABSENT
    against = _ratio(ours, best, subject)
    compared = f"{against} of {subject.name}" if subject is MEAN_JCT else against
    return name, its, seconds_words(ours.mean(excess)), compared
