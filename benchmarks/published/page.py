"""The published report: what `compare` writes, and the project's own case around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.published.ablations import ablations
from benchmarks.published.acceptance import AcceptanceVerdict, goal_context, verdicts
from benchmarks.published.claims import claims_context
from benchmarks.published.size_bins import size_bins
from trainmaster.evaluation.comparisons import Comparison
from trainmaster.evaluation.number_format import change_words
from trainmaster.evaluation.report import page
from trainmaster.evaluation.report.ranking import wins
from trainmaster.evaluation.score import SHORT_S, SMALL_GPUS, SuiteResult
from trainmaster.evaluation.statistics import geometric_mean
from trainmaster.evaluation.suite import ContenderRole
from trainmaster.report.rendering import Article, article, quoted
from trainmaster.text import formatting as wording

TEMPLATE = Path(__file__).with_name("published.md")


def compose(result: SuiteResult, found: tuple[Comparison, ...]) -> Article:
    """The goal first; claims, bins and ablations before the sections on waiting and method."""
    judged, header = verdicts(found), page.header_of(result, found)
    header = replace(
        header,
        title=_sentence(judged) or header.title,
        abstract=(*_abstract(judged, found), *header.abstract),
    )
    context = {
        **page.context_of(result, found),
        **goal_context(judged),
        **claims_context(found),
        "bins": size_bins(found),
        "ablations": ablations(found),
        "small_gpus": SMALL_GPUS,
        "short_s": SHORT_S,
    }
    return article(header, TEMPLATE, context, page.NOTES, [page.TEMPLATE.parent])


def _sentence(judged: Sequence[AcceptanceVerdict]) -> str | None:
    """The finding to read aloud."""
    ratios = [each.to_best.value for each in judged if each.to_best is not None]
    middle = geometric_mean(ratios)
    if middle is None:
        return None
    against = "that of the best published policy"
    change = change_words(middle)
    amount = f"like {against}" if change == "alike" else f"{change} than {against}"
    where = wording.plural(len(ratios), "workload")
    ours = quoted(judged[0].ours.label)
    return f"The excess of {ours} is {amount}, on the geometric mean of {where}."


def _abstract(judged: Sequence[AcceptanceVerdict], found: Sequence[Comparison]) -> Iterator[str]:
    if judged:
        won = wins(found)
        met = sum(each.is_met for each in judged)
        lowest = sum(win.winner.role is ContenderRole.OURS for win in won)
        yield (
            f"It meets its goal on {met} of {len(judged)} and has the lowest excess in {lowest} of"
            f" {wording.plural(len(won), 'comparison')}; every miss is listed with its size."
        )
