"""The report as a whole: what it says first, and its sections in their order."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.evaluation.report.ablations import ablations
from trainmaster.evaluation.report.acceptance_check import Verdict, verdicts
from trainmaster.evaluation.report.acceptance_section import goal
from trainmaster.evaluation.report.comparisons import Comparison
from trainmaster.evaluation.report.delay_breakdown import waiting
from trainmaster.evaluation.report.document_model import Article, Block, quoted
from trainmaster.evaluation.report.experiments import experiments
from trainmaster.evaluation.report.footnotes import footnoted
from trainmaster.evaluation.report.methods import methods
from trainmaster.evaluation.report.number_format import change_words
from trainmaster.evaluation.report.published_orderings import orderings
from trainmaster.evaluation.report.ranking_tables import Win, records, standings, wins
from trainmaster.evaluation.report.series_style import Cast
from trainmaster.evaluation.score import Campaign
from trainmaster.evaluation.statistics import geometric_mean
from trainmaster.evaluation.suite import Standing
from trainmaster.text import formatting as wording


def article(campaign: Campaign, found: Sequence[Comparison], cast: Cast) -> Article:
    """Everything that the page and the Markdown say."""
    judged = verdicts(tuple(found))
    won = wins(found)
    blocks: list[Block] = [
        *goal(judged),
        *standings(found),
        *experiments(found, cast),
        *orderings(found),
        *waiting(found),
        *ablations(found),
        *methods(campaign, found),
    ]
    return Article(
        title=_sentence(judged, won, found),
        kicker=f"{campaign.suite.title} ({campaign.suite.name})",
        abstract=tuple(_abstract(campaign, judged, won, found)),
        facts=_facts(campaign, found),
        blocks=tuple(footnoted(blocks)),
    )


def _sentence(judged: Sequence[Verdict], won: Sequence[Win], found: Sequence[Comparison]) -> str:
    """The finding to read aloud."""
    if judged:
        ours = quoted(judged[0].ours.label)
        ratios = [each.to_best.value for each in judged if each.to_best is not None]
        middle = geometric_mean(ratios)
        if middle is not None:
            against = "that of the best published policy"
            change = change_words(middle)
            amount = f"like {against}" if change == "alike" else f"{change} than {against}"
            where = wording.plural(len(ratios), "workload")
            return f"The excess of {ours} is {amount}, on the geometric mean of {where}."
    best = next(iter(records(found)), None)
    if best is not None:
        return (
            f"{quoted(best.label)} comes nearest to the lowest excess over"
            f" {wording.plural(len(won), 'comparison')}, and has it on {best.wins}."
        )
    return "There is nothing to compare."


def _abstract(
    campaign: Campaign,
    judged: Sequence[Verdict],
    won: Sequence[Win],
    found: Sequence[Comparison],
) -> list[str]:
    said = []
    if judged:
        met = sum(each.is_met for each in judged)
        lowest = sum(win.winner.standing is Standing.OURS for win in won)
        said.append(
            f"It meets its goal on {met} of {len(judged)} and has the lowest excess in {lowest} of"
            f" {wording.plural(len(won), 'comparison')}; every miss is listed with its size."
        )
    if any(each.is_transient for each in found):
        said.append("Results at a load of 1 or more are transient and labelled so.")
    absent = len(campaign.skipped) + len(campaign.failures)
    if absent:
        said.append(
            f"Not everything could be run here: {absent} skipped or failed, listed at the end."
        )
    return said


def _facts(campaign: Campaign, found: Sequence[Comparison]) -> tuple[tuple[str, str], ...]:
    labels = {each.label for comparison in found for each in comparison.entrants}
    jobs = sum(score.score.jobs for score in campaign.scored)
    return (
        ("Experiments", wording.count(len({each.experiment.name for each in found}))),
        ("Comparisons", wording.count(len(found))),
        ("Contenders", wording.count(len(labels))),
        ("Trials", wording.count(len(campaign.scored))),
        ("Jobs measured", wording.count(jobs)),
    )
