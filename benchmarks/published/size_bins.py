"""Completion times by bins of size and length, as Tiresias' authors gave theirs."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.evaluation.comparisons import Comparison, ContenderScores
from trainmaster.evaluation.suite import ContenderRole
from trainmaster.report.rendering import Row, Table
from trainmaster.text import formatting as wording
from trainmaster.text.formatting import ABSENT

BINNED = "tiresias"
"""Experiments with this in their name show times by bins of size and length, as that paper does."""


def size_bins(found: Sequence[Comparison]) -> list[tuple[Comparison, Table]]:
    return [(each, bin_table(each)) for each in found if BINNED in each.experiment.name]


def bin_table(comparison: Comparison) -> Table:
    """Mean and 95th percentile of each bin, means over seeds."""
    scores = [score for contender in comparison.contenders for score in contender.scores.values()]
    labels = list(dict.fromkeys(each.label for score in scores for each in score.bins))
    rows = [
        Row(
            (each.label, *(_words(each, label) for label in labels)),
            each.role is ContenderRole.OURS,
        )
        for each in comparison.contenders
    ]
    return Table(("contender", *labels), rows)


def _words(contender: ContenderScores, label: str) -> str:
    found = [
        each for score in contender.scores.values() for each in score.bins if each.label == label
    ]
    if not found:
        return ABSENT
    mean_s = sum(each.mean_jct_s for each in found) / len(found)
    p95_s = sum(each.p95_s for each in found) / len(found)
    return f"{wording.duration(mean_s)}, {wording.duration(p95_s)}"
