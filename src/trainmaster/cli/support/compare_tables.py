"""The tables that a comparison ends with: contenders by excess, or the best of each comparison."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trainmaster.cli.support.console import screen
from trainmaster.evaluation.comparisons import (
    MEAN_JCT,
    Comparison,
    ContenderScores,
    Subject,
    comparisons,
    excess,
    lowest,
    ratio,
)
from trainmaster.evaluation.number_format import DAGGER, FOOTNOTE, with_interval
from trainmaster.evaluation.score import SuiteResult
from trainmaster.evaluation.suite import ContenderRole
from trainmaster.report.metrics import named, signed_duration
from trainmaster.text.formatting import ABSENT, plural

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

MOST_TABLES = 6
"""More comparisons than this are shown by a line each."""
UNBOUNDED = 100_000


SHOWN = named(
    *("avg_excess_s", "avg_jct_s", "passed_jct_s", "p50_jct_s", "p95_jct_s", "p99_jct_s"),
    *("avg_queue_s", "p99_rho", "rho_over_1", "max_rho", "gpu_util", "preemptions", "cost"),
)
COUNTS = named("rejected", "unfinished")
"""Jobs without a time; shown where there are some."""


class MeasureRow(NamedTuple):
    """One measure of all contenders, in words."""

    title: str
    cells: tuple[str, ...]


def show(result: SuiteResult, *, is_wide: bool = False) -> None:
    """On standard output: a table for each comparison, or one for all if they are many."""
    found = comparisons(result)
    console = screen()
    if len(found) > MOST_TABLES:
        table = overview(found)
        if is_wide:
            console.width = max(console.width, _width(table, console))
        console.print(table)
        if any(DAGGER in cell for each in found for cell in _leaders(each)):
            console.print(FOOTNOTE)
        return
    for each in found:
        console.print(_headline(each), style="bold", markup=False)
        for part in _laid_out(each, console, is_wide=is_wide):
            console.print(part)


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


def _laid_out(
    comparison: Comparison, console: Console, *, is_wide: bool
) -> Iterator[RenderableType]:
    """Contenders below each other if all measures fit; else beside each other; else what fits is said."""
    names = [_name(each) for each in comparison.contenders]
    measures, counts = _measures(comparison), _counts(comparison)
    whole = _across(names, [*measures, *counts])
    if is_wide:
        console.width = max(console.width, _width(whole, console))
    upright = _upright(names, [*measures, *counts])
    footnotes = [FOOTNOTE] if any(DAGGER in cell for cell in measures[0].cells) else []
    for table in (whole, upright):
        if _width(table, console) <= console.width:
            yield table
            yield from footnotes
            return
    fitting = range(len(measures) - 1, 1, -1)
    tables = {n: _across(names, [*measures[:n], *counts]) for n in fitting}
    kept = next((n for n in fitting if _width(tables[n], console) <= console.width), 2)
    yield tables.get(kept, whole)
    yield from footnotes
    if left_out := ", ".join(each.title for each in measures[kept:]):
        yield f"Left out for want of room: {left_out}. --wide shows them, --json FILE writes them."


def _width(table: Table, console: Console) -> int:
    """Columns of a screen on which nothing of it is cut."""
    from rich.measure import Measurement

    return Measurement.get(console, console.options.update(max_width=UNBOUNDED), table).maximum


def _measures(comparison: Comparison) -> list[MeasureRow]:
    """The ratio to the baseline, then what anybody has."""
    contenders, baseline, subject = comparison.contenders, comparison.baseline, comparison.subject
    against = baseline.label if baseline is not None else ABSENT
    ratios = tuple(_ratio(each, baseline, subject) for each in contenders)
    lines = [MeasureRow(f"{subject.name} against {against}", ratios)]
    for metric in SHOWN:
        values = [each.mean(metric.of) for each in contenders]
        if any(value is not None for value in values):
            lines.append(MeasureRow(metric.label, tuple(map(metric.words, values))))
    return lines


def _counts(comparison: Comparison) -> list[MeasureRow]:
    lines = []
    for metric in COUNTS:
        totals = [sum(metric.of(s) or 0 for s in e.scores.values()) for e in comparison.contenders]
        if any(totals):
            lines.append(MeasureRow(metric.label, tuple(f"{count:,.0f}" for count in totals)))
    return lines


def _across(names: Sequence[str], lines: Sequence[MeasureRow]) -> Table:
    """A row for each contender."""
    return table(
        ["", *(line.title for line in lines)],
        zip(names, *(line.cells for line in lines), strict=True),
    )


def _upright(names: Sequence[str], lines: Sequence[MeasureRow]) -> Table:
    """A column for each contender."""
    return table(["", *names], ((line.title, *line.cells) for line in lines))


def table(
    titles: Iterable[str],
    rows: Iterable[Sequence[str]],
    words: Sequence[str] = ("",),
    folded: Sequence[str] = (),
) -> Table:
    """Words to the left, numbers to the right; only columns that may be folded are."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    made = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in titles:
        how: Any = {"overflow": "fold"} if title in folded else {"no_wrap": True}
        made.add_column(escape(title), justify="left" if title in words else "right", **how)
    for row in rows:
        made.add_row(*map(escape, row))
    return made


def _name(contender: ContenderScores) -> str:
    mark = " (bound)" if contender.role is ContenderRole.BOUND else ""
    return f"{contender.label}{mark}"


def _ratio(contender: ContenderScores, baseline: ContenderScores | None, subject: Subject) -> str:
    if baseline is None or contender is baseline:
        return ABSENT
    return with_interval(ratio(contender, baseline, subject.measure))


def overview(found: Sequence[Comparison]) -> Table:
    """A line per comparison: the best published contender, and ours against it."""
    words = ("experiment", "workload", "conditions", "best published")
    titles = (*words[:3], "load", words[3], "its excess", "ours", "against it")
    rows = (
        (
            *(each.experiment.name, each.workload.name, each.conditions.name),
            ABSENT if each.load is None else f"{each.load:.2f}",
            *_leaders(each),
        )
        for each in found
    )
    return table(titles, rows, words, folded=[title for title in titles if title != "load"])


def _leaders(comparison: Comparison) -> tuple[str, str, str, str]:
    published, subject = comparison.of_role(ContenderRole.PUBLISHED), comparison.subject
    best, ours = lowest(published, subject.measure), comparison.ours
    name = ABSENT if best is None else best.label
    its = ABSENT if best is None else signed_duration(best.mean(excess))
    if ours is None:
        return name, its, ABSENT, ABSENT
    against = _ratio(ours, best, subject)
    compared = f"{against} of {subject.name}" if subject is MEAN_JCT else against
    return name, its, signed_duration(ours.mean(excess)), compared
