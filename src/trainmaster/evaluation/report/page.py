"""A campaign as a report: one HTML page, the same as Markdown with figures, and all scores as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path

from trainmaster.evaluation.comparisons import Comparison, comparisons
from trainmaster.evaluation.number_format import DAGGER, FOOTNOTE
from trainmaster.evaluation.report.delay_breakdown import waiting
from trainmaster.evaluation.report.experiments import experiments
from trainmaster.evaluation.report.methods import methods
from trainmaster.evaluation.report.ranking import records, standings, wins
from trainmaster.evaluation.report.series_style import cast_of
from trainmaster.evaluation.score import Campaign, Score, Scored
from trainmaster.report.atomic_write import ReportFile, publish
from trainmaster.report.charts import standalone
from trainmaster.report.document import (
    FIGURES,
    Block,
    Document,
    Figure,
    Listing,
    Paragraph,
    Table,
    html,
    markdown,
    quoted,
)
from trainmaster.report.page import PAGE, text_file
from trainmaster.text import formatting as wording

MARK = 'data-by="trainmaster"'
"""Tells a figure of ours from any other."""
TRIAL = ("experiment", "track", "workload", "conditions", "contender", "policy", "standing", "seed")
APART = ("chosen", "delays", "bins", "excess_blocks_s", "remarks")
SCORES = tuple(each.name for each in fields(Score) if each.name not in APART)

Compose = Callable[[Campaign, tuple[Comparison, ...]], Document]


def write_report(campaign: Campaign, directory: Path, compose: Compose | None = None) -> Path:
    """Write page, Markdown, figures and scores into a directory; the page's path comes back.

    The same campaign gives the same bytes. An earlier report there is replaced. All or nothing: when
    the directory cannot be written, ReportError says what to do, and nothing is left behind.
    """
    made = list(report_files(campaign, compose))
    publish(made, directory)
    written = {directory / each.name for each in made}
    for path in sorted((directory / FIGURES).glob("*.svg")):  # figures that this report has not
        if path not in written and MARK in path.read_text(encoding="utf-8", errors="replace"):
            path.unlink()
    return directory / PAGE


def report_files(campaign: Campaign, compose: Compose | None = None) -> Iterator[ReportFile]:
    """Every file of the report, the page last."""
    document = (compose or compose_report)(campaign, comparisons(campaign))
    document = replace(document, blocks=tuple(_footnoted(document.blocks)))
    yield text_file("scores.csv", scores_csv(campaign))
    for block in document.blocks:
        if isinstance(block, Figure):
            yield text_file(f"{FIGURES}/{block.slug}.svg", standalone(block.svg))
    yield text_file("README.md", markdown(document))
    yield text_file(PAGE, html(document, "comparison.html"))


def compose_report(campaign: Campaign, found: tuple[Comparison, ...]) -> Document:
    """Who comes first where, every experiment, why jobs waited, and the method."""
    best, won = next(iter(records(found)), None), wins(found)
    title = "There is nothing to compare."
    if best is not None:
        title = (
            f"{quoted(best.label)} comes nearest to the lowest excess over"
            f" {wording.plural(len(won), 'comparison')}, and has it on {best.wins}."
        )
    return Document(
        title=title,
        kicker=f"{campaign.suite.title} ({campaign.suite.name})",
        abstract=tuple(cautions(campaign, found)),
        facts=facts(campaign, found),
        blocks=(
            *standings(found),
            *experiments(found, cast_of(found)),
            *waiting(found),
            *methods(campaign, found),
        ),
    )


def cautions(campaign: Campaign, found: Sequence[Comparison]) -> Iterator[str]:
    if any(each.is_transient for each in found):
        yield "Results at a load of 1 or more are transient and labelled so."
    absent = len(campaign.skipped) + len(campaign.failures)
    if absent:
        yield f"Not everything could be run here: {absent} skipped or failed, listed at the end."


def facts(campaign: Campaign, found: Sequence[Comparison]) -> tuple[tuple[str, str], ...]:
    labels = {each.label for comparison in found for each in comparison.entrants}
    jobs = sum(score.score.jobs for score in campaign.scored)
    return (
        ("Experiments", wording.count(len({each.experiment.name for each in found}))),
        ("Comparisons", wording.count(len(found))),
        ("Contenders", wording.count(len(labels))),
        ("Trials", wording.count(len(campaign.scored))),
        ("Jobs measured", wording.count(jobs)),
    )


def _footnoted(blocks: Iterable[Block]) -> Iterator[Block]:
    """The same blocks: tables with marked ratios explain them in their caption, lists in a line below."""
    for block in blocks:
        match block:
            case Table() if any(DAGGER in e.words for row in block.rows for e in row.entries):
                yield replace(block, caption=f"{block.caption} {FOOTNOTE}")
            case Listing() if any(DAGGER in each for each in block.items):
                yield block
                yield Paragraph(FOOTNOTE)
            case _:
                yield block


# -- scores.csv --------------------------------------------------------------------------------------


def scores_csv(campaign: Campaign) -> str:
    """A line per trial in the suite's order; an absent value is an empty field."""
    tracks = {each.name: each.track for each in campaign.suite.experiments}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*TRIAL, *SCORES, "chosen"])
    for each in campaign.scored:
        writer.writerow(_line(each, tracks[each.trial.experiment]))
    return text.getvalue()


def _line(scored: Scored, track: str) -> list[str]:
    trial, score = scored.trial, scored.score
    chosen = " ".join(f"{key}={value}" for key, value in (score.chosen or {}).items())
    return [
        trial.experiment,
        track,
        trial.workload.name,
        trial.conditions.name,
        trial.contender.label,
        trial.contender.policy,
        trial.contender.standing.value,
        str(trial.seed),
        *(_field(getattr(score, name)) for name in SCORES),
        chosen,
    ]


def _field(value: float | bool | None) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, int) else f"{value:.6f}".rstrip("0").rstrip(".")
