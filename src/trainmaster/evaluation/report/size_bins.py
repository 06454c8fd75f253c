"""Completion times by bins of size and length, as Tiresias' authors gave theirs."""

from __future__ import annotations

from trainmaster.evaluation.report.comparisons import Comparison, Entrant
from trainmaster.evaluation.report.document_model import Column, Entry, Row, Table
from trainmaster.evaluation.score import SHORT_S, SMALL_GPUS, BinTimes
from trainmaster.evaluation.suite import Standing
from trainmaster.text import formatting as wording
from trainmaster.text.formatting import ABSENT


def bin_table(comparison: Comparison) -> Table:
    """Mean and 95th percentile of each bin, means over seeds."""
    labels = list(
        dict.fromkeys(
            each.label
            for entrant in comparison.entrants
            for score in entrant.scores.values()
            for each in score.bins
        )
    )
    columns = (Column("contender", is_number=False), *(Column(label) for label in labels))
    rows = tuple(
        Row(
            (Entry(entrant.label), *(Entry(_words(entrant, label)) for label in labels)),
            is_emphasised=entrant.standing is Standing.OURS,
        )
        for entrant in comparison.entrants
    )
    caption = (
        f"{comparison.title}: mean JCT, and its 95th percentile, by bins. Small: up to {SMALL_GPUS} GPUs;"
        f" short: up to {SHORT_S} s."
    )
    return Table(caption, columns, rows)


def _words(entrant: Entrant, label: str) -> str:
    found = [
        each for score in entrant.scores.values() for each in score.bins if each.label == label
    ]
    if not found:
        return ABSENT
    return f"{wording.duration(_mean(found))}, {wording.duration(_p95(found))}"


def _mean(found: list[BinTimes]) -> float:
    return sum(each.mean_jct_s for each in found) / len(found)


def _p95(found: list[BinTimes]) -> float:
    return sum(each.p95_s for each in found) / len(found)
