"""Completion times by bins of size and length, as Tiresias' authors gave theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainmaster.evaluation.comparisons import Comparison, Entrant
from trainmaster.evaluation.score import SHORT_S, SMALL_GPUS
from trainmaster.evaluation.suite import Standing
from trainmaster.report.document import Block, Column, Heading, Row, Table, plain
from trainmaster.text import formatting as wording
from trainmaster.text.formatting import ABSENT

BINNED = "tiresias"
"""Experiments with this in their name show times by bins of size and length, as that paper does."""


def size_bins(found: Sequence[Comparison]) -> Iterator[Block]:
    binned = [each for each in found if BINNED in each.experiment.name]
    if binned:
        yield Heading("By size and length, as in Tiresias", "bins")
    for each in binned:
        yield bin_table(each)


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
    rows = tuple(
        Row(
            plain(each.label, *(_words(each, label) for label in labels)),
            is_emphasised=each.standing is Standing.OURS,
        )
        for each in comparison.entrants
    )
    caption = (
        f"{comparison.title}: mean JCT, and its 95th percentile, by bins. Small: up to {SMALL_GPUS} GPUs;"
        f" short: up to {SHORT_S} s."
    )
    return Table(caption, (Column("contender", False), *map(Column, labels)), rows)


def _words(entrant: Entrant, label: str) -> str:
    found = [
        each for score in entrant.scores.values() for each in score.bins if each.label == label
    ]
    if not found:
        return ABSENT
    mean_s = sum(each.mean_jct_s for each in found) / len(found)
    p95_s = sum(each.p95_s for each in found) / len(found)
    return f"{wording.duration(mean_s)}, {wording.duration(p95_s)}"
