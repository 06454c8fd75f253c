"""The published report: what `compare` writes, and the project's own case around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.published.ablations import ablations
from benchmarks.published.acceptance import Verdict, goal, verdicts
from benchmarks.published.claims import orderings
from benchmarks.published.size_bins import size_bins
from trainmaster.evaluation.comparisons import Comparison
from trainmaster.evaluation.number_format import change_words
from trainmaster.evaluation.report.page import compose_report
from trainmaster.evaluation.report.ranking import wins
from trainmaster.evaluation.score import Campaign
from trainmaster.evaluation.statistics import geometric_mean
from trainmaster.evaluation.suite import Standing
from trainmaster.report.document import Document, Heading, quoted
from trainmaster.text import formatting as wording


def compose(campaign: Campaign, found: tuple[Comparison, ...]) -> Document:
    """The goal first; claims, bins and ablations before the sections on waiting and method."""
    general, judged = compose_report(campaign, found), verdicts(found)
    blocks = general.blocks
    later = next(i for i, b in enumerate(blocks) if _is_heading(b, "waiting", "methods"))
    return replace(
        general,
        title=_sentence(judged) or general.title,
        abstract=(*_abstract(judged, found), *general.abstract),
        blocks=(
            *goal(judged),
            *blocks[:later],
            *size_bins(found),
            *orderings(found),
            *ablations(found),
            *blocks[later:],
        ),
    )


def _is_heading(block: object, *anchors: str) -> bool:
    return isinstance(block, Heading) and block.anchor in anchors


def _sentence(judged: Sequence[Verdict]) -> str | None:
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


def _abstract(judged: Sequence[Verdict], found: Sequence[Comparison]) -> Iterator[str]:
    if judged:
        won = wins(found)
        met = sum(each.is_met for each in judged)
        lowest = sum(win.winner.standing is Standing.OURS for win in won)
        yield (
            f"It meets its goal on {met} of {len(judged)} and has the lowest excess in {lowest} of"
            f" {wording.plural(len(won), 'comparison')}; every miss is listed with its size."
        )
