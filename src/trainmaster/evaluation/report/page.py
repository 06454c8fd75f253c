"""The report of a suite result: one HTML page, the same as Markdown with figures, and all scores as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path

from trainmaster.evaluation.comparisons import Comparison, comparisons
from trainmaster.evaluation.number_format import DAGGER, FOOTNOTE, basis_words
from trainmaster.evaluation.report.delay_breakdown import delay_figures
from trainmaster.evaluation.report.experiments import experiments
from trainmaster.evaluation.report.methods import conditions_table, contenders_table, missing
from trainmaster.evaluation.report.ranking import records, records_table, wins, wins_table
from trainmaster.evaluation.score import BLOCKS, SERVICE_FLOOR_S, Score, ScoredTrial, SuiteResult
from trainmaster.evaluation.statistics import RESAMPLES
from trainmaster.evaluation.suite import WARM_UP
from trainmaster.report.atomic_write import ReportFile, publish
from trainmaster.report.charts import standalone
from trainmaster.report.page import PAGE, text_file
from trainmaster.report.rendering import FIGURES, Article, Header, article, quoted
from trainmaster.text import formatting as wording

TEMPLATE = Path(__file__).with_name("comparison.md")
NOTES = {DAGGER: FOOTNOTE}
MARK = 'data-by="trainmaster"'
"""Marks figures that a report wrote and may replace."""
KINDS = (".svg", ".pdf", ".png")
TRIAL = ("experiment", "track", "workload", "conditions", "contender", "policy", "standing", "seed")
APART = ("chosen", "delays", "bins", "excess_blocks_s", "remarks")
SCORES = tuple(each.name for each in fields(Score) if each.name not in APART)

Compose = Callable[[SuiteResult, tuple[Comparison, ...]], Article]


def write_report(result: SuiteResult, directory: Path, compose: Compose | None = None) -> Path:
    """Write page, Markdown, figures and scores into a directory; the page's path comes back.

    The same result gives the same bytes. An earlier report there is replaced. All or nothing: when
    the directory cannot be written, ReportError says what to do, and nothing is left behind.
    """
    made = list(report_files(result, compose))
    publish(made, directory)
    written = {directory / each.name for each in made}
    for path in sorted(
        (directory / FIGURES).glob("*.svg")
    ):  # figures that this report does not have
        if path not in written and MARK in path.read_text(encoding="utf-8", errors="replace"):
            for kind in KINDS:
                path.with_suffix(kind).unlink(missing_ok=True)
    return directory / PAGE


def report_files(result: SuiteResult, compose: Compose | None = None) -> Iterator[ReportFile]:
    """Every file of the report, the page last."""
    made = (compose or compose_report)(result, comparisons(result))
    yield text_file("scores.csv", scores_csv(result))
    for figure in made.figures:
        name = f"{FIGURES}/{figure.slug}"
        yield text_file(f"{name}.svg", standalone(figure.svg))
        yield ReportFile(f"{name}.pdf", partial(figure.chart.drawing, "pdf"))
        yield ReportFile(f"{name}.png", partial(figure.chart.png, figure.chart.label))
    yield text_file("README.md", made.markdown)
    yield text_file(PAGE, made.page)


def compose_report(result: SuiteResult, found: tuple[Comparison, ...]) -> Article:
    """The report: rankings, every experiment, causes of waiting, and methods."""
    return article(header_of(result, found), TEMPLATE, context_of(result, found), NOTES)


def header_of(result: SuiteResult, found: Sequence[Comparison]) -> Header:
    best, won = next(iter(records(found)), None), wins(found)
    title = "There is nothing to compare."
    if best is not None:
        title = (
            f"{quoted(best.label)} comes nearest to the lowest excess over"
            f" {wording.plural(len(won), 'comparison')}, and has it on {best.wins}."
        )
    labels = {each.label for comparison in found for each in comparison.contenders}
    counts = {
        "Experiments": len({each.experiment.name for each in found}),
        "Comparisons": len(found),
        "Contenders": len(labels),
        "Trials": len(result.scored),
        "Jobs measured": sum(each.score.jobs for each in result.scored),
    }
    return Header(
        title,
        f"{result.suite.title} ({result.suite.name})",
        tuple(_cautions(result, found)),
        [(name, wording.count(number)) for name, number in counts.items()],
    )


def _cautions(result: SuiteResult, found: Sequence[Comparison]) -> Iterator[str]:
    if any(each.is_transient for each in found):
        yield "Results at a load of 1 or more are transient and labelled so."
    absent = len(result.skipped) + len(result.failures)
    if absent:
        yield f"Not everything could be run here: {absent} skipped or failed, listed at the end."


def context_of(result: SuiteResult, found: Sequence[Comparison]) -> dict[str, object]:
    """What the template shows."""
    won = wins(found)
    return {
        "wins": won,
        "records_table": records_table(records(found)),
        "wins_table": wins_table(won),
        "tracks": experiments(found),
        "delays": delay_figures(found),
        "contenders": contenders_table(found),
        "conditions": conditions_table(found),
        "missing": missing(result, found),
        "plural": wording.plural,
        "basis_words": basis_words,
        "dagger": DAGGER,
        "footnote": FOOTNOTE,
        "warm_up": WARM_UP,
        "service_floor_s": SERVICE_FLOOR_S,
        "resamples": RESAMPLES,
        "blocks": BLOCKS,
    }


# -- scores.csv --------------------------------------------------------------------------------------


def scores_csv(result: SuiteResult) -> str:
    """A line per trial in the suite's order; an absent value is an empty field."""
    tracks = {each.name: each.track for each in result.suite.experiments}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*TRIAL, *SCORES, "chosen"])
    for each in result.scored:
        writer.writerow(_line(each, tracks[each.trial.experiment]))
    return text.getvalue()


def _line(scored: ScoredTrial, track: str) -> list[str]:
    trial, score = scored.trial, scored.score
    chosen = " ".join(f"{key}={value}" for key, value in (score.chosen or {}).items())
    return [
        trial.experiment,
        track,
        trial.workload.name,
        trial.conditions.name,
        trial.contender.label,
        trial.contender.policy,
        trial.contender.role.value,
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
