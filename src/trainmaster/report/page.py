"""A simulation's report: one page with everything inline, its figures as PNG, its numbers as CSV."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainmaster.model.result import Result
from trainmaster.report import csvs
from trainmaster.report.atomic_write import ReportFile, publish
from trainmaster.report.deadlines import deadlines
from trainmaster.report.document import (
    Block,
    Column,
    Document,
    Entry,
    Figure,
    Heading,
    Listing,
    Paragraph,
    Row,
    Table,
    Tone,
    html,
    quoted,
)
from trainmaster.report.headline import advantage_over_first, headline
from trainmaster.report.metrics import METRICS, Metric, shown
from trainmaster.report.report_data import Plot, gantt_words, plots
from trainmaster.report.series import Contender, line_up
from trainmaster.text import formatting as wording

PAGE = "index.html"
MOST_WARNINGS = 20


def write_report(
    results: Sequence[Result], directory: Path, *, title: str, trace_name: str
) -> Path:
    """Write the page, its plots as PNG and its numbers as CSV; the page's path comes back.

    All or nothing: when the directory cannot be written, ReportError says what to do and nothing
    is left behind.
    """
    publish(report_files(results, title, trace_name), directory)
    return directory / PAGE


def report_files(results: Sequence[Result], title: str, trace_name: str) -> Iterator[ReportFile]:
    """Every file of the report, one at a time, the page last."""
    contenders = line_up(results)
    yield text_file("summary.csv", csvs.summary_csv(contenders))
    for each in contenders:
        yield text_file(f"jobs-{each.slug}.csv", csvs.jobs_csv(each.result))
    yield text_file("queues.csv", csvs.queues_csv(contenders))
    sections: list[Block] = []
    gantts: list[Block] = []
    for plot in plots(results):
        (gantts if plot.is_gantt else sections).extend(_section(plot))
        if plot.csv is not None:
            yield text_file(f"{plot.slug}.csv", plot.csv())
        yield ReportFile(f"{plot.slug}.png", plot.chart.png(plot.title))
    document = _document(contenders, title, trace_name, sections, gantts)
    yield text_file(PAGE, html(document, "simulation.html", [each.label for each in contenders]))


def text_file(name: str, content: str) -> ReportFile:
    return ReportFile(name, content.encode("utf-8", errors="backslashreplace"))


def _section(plot: Plot) -> Iterator[Block]:
    if plot.is_gantt:
        yield Heading(plot.title.partition(":")[0], plot.slug, 3)
    else:
        yield Heading(plot.title, plot.slug, is_wide=plot.is_wide)
    if plot.explained:
        yield Paragraph(plot.explained)
    yield Figure(plot.slug, "", plot.chart.svg())


def _document(
    contenders: Sequence[Contender],
    title: str,
    trace_name: str,
    sections: Sequence[Block],
    gantts: Sequence[Block],
) -> Document:
    found = headline(contenders)
    return Document(
        title=_unbroken(found.sentence),
        kicker=title,
        abstract=found.details,
        facts=tuple(_facts(contenders, trace_name)),
        blocks=(
            Heading("Summary", "summary"),
            Paragraph(
                "The best of each column is marked; click a heading to sort, point at it to read on."
            ),
            summary_table(contenders),
            *sections,
            *_queue_costs(contenders),
            *deadlines(contenders),
            Heading("Who held which GPU in the busiest hour", "gantt"),
            Paragraph(gantt_words(contenders)),
            *gantts,
            *_notes(contenders),
        ),
    )


def _unbroken(sentence: str) -> str:
    """A number and its unit stay on one line."""
    return re.sub(r"(?<=\d) (?=(?:ms|s|min|h|d|times)\b|%)", "\N{NO-BREAK SPACE}", sentence)


def _facts(contenders: Sequence[Contender], trace_name: str) -> Iterator[tuple[str, str]]:
    yield "Trace", trace_name
    if contenders:
        first = contenders[0].result
        yield "Jobs", wording.count(first.summary.jobs)
        yield "Cluster", f"{first.cluster} · {wording.plural(first.gpus, 'GPU')}"
        if first.summary.load is not None:
            yield "Load", f"{first.summary.load:.2f}"
    yield "Policies", wording.count(len(contenders))


def summary_table(contenders: Sequence[Contender]) -> Table:
    """A row per policy, the best of each column marked, sortable by a click on a heading."""
    runs = [each.result.summary for each in contenders]
    metrics = shown((metric for metric in METRICS.values() if metric.group), runs)
    columns = [Column(each.label, hint=each.hint, group=each.group) for each in metrics]
    cells = [_column(metric, runs) for metric in metrics]
    if len(contenders) > 1:
        place = next(i for i, each in enumerate(metrics) if each.key == "avg_jct_s") + 1
        hint = f"Mean JCT of {contenders[0].label} over this one's"
        columns.insert(place, Column("gain", hint=hint, group=columns[place - 1].group))
        cells.insert(place, [_gain(each, contenders[0]) for each in contenders])
    rows = tuple(
        Row(
            (Entry(each.label, value=each.slot), *(column[row] for column in cells)), slot=each.slot
        )
        for row, each in enumerate(contenders)
    )
    return Table("", (Column("policy", False), *columns), rows, is_sortable=True)


def _column(metric: Metric, runs: Sequence[object]) -> list[Entry]:
    values = [metric.of(run) for run in runs]
    best = metric.best(values)
    return [
        Entry(words, Tone.BEST if words == best else Tone.PLAIN, value)
        for value in values
        for words in [metric.words(value)]
    ]


def _gain(contender: Contender, first: Contender) -> Entry:
    factor = advantage_over_first(contender, first)
    words = wording.ABSENT if factor is None else f"{wording.significant(factor)}{wording.TIMES}"
    return Entry(words, value=factor)


def _queue_costs(contenders: Sequence[Contender]) -> Iterator[Block]:
    """What each queue's jobs cost under each policy; nothing where GPUs have no price."""
    queues = list(dict.fromkeys(q.queue for each in contenders for q in each.result.queues))
    costs = {(q.queue, e.slot): q.cost for e in contenders for q in e.result.queues}
    if len(queues) < 2 or all(cost is None for cost in costs.values()):
        return
    yield Heading("Cost by queue", "queues")
    yield Paragraph("The price of the GPU time that each queue's jobs held.")
    rows = []
    for place, queue in enumerate(queues):
        found = [costs.get((queue, each.slot)) for each in contenders]
        entries = (Entry(wording.decimal(cost), value=cost) for cost in found)
        rows.append(Row((Entry(queue, value=place), *entries)))
    columns = (Column("queue", False), *(Column(each.label) for each in contenders))
    yield Table("", columns, tuple(rows), is_sortable=True)


def _notes(contenders: Sequence[Contender]) -> Iterator[Block]:
    yield Heading("Notes", "notes")
    yield Paragraph("The same plots lie beside this page as PNG, and their numbers as CSV.")
    yield Heading("Options in effect", "options", 3)
    columns = (Column("policy", False), Column("options", False))
    yield Table("", columns, tuple(Row((Entry(e.label), Entry(_options(e)))) for e in contenders))
    warnings = list(dict.fromkeys(w for each in contenders for w in each.result.warnings))
    if warnings:
        yield Heading("Warnings", "warnings", 3)
        more = len(warnings) - MOST_WARNINGS
        cut = [f"and {more:,} more"] if more > 0 else []
        yield Listing((*warnings[:MOST_WARNINGS], *cut))


def _options(contender: Contender) -> str:
    pairs = (f"{key}={_option(value)}" for key, value in contender.result.options.items())
    return " ".join(map(quoted, pairs)) or "none"


def _option(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(str(part) for part in value)
    return "none" if value is None else str(value)
