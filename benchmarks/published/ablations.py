"""What each part of our own policy is worth: it without that part, against it whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.published.acceptance import rho_p99
from trainmaster.evaluation.comparisons import Comparison, ContenderScores, ratio
from trainmaster.evaluation.number_format import ratio_words, with_interval
from trainmaster.evaluation.report.figures import DotPanel, dot_plot
from trainmaster.evaluation.statistics import IntervalEstimate
from trainmaster.evaluation.suite import ContenderRole
from trainmaster.report.rendering import Figure, Table


@dataclass(frozen=True, slots=True)
class AblationSection:
    """The figure and the table of all ablations."""

    figure: Figure
    table: Table
    ratios: list[IntervalEstimate]


def ablations(found: Sequence[Comparison]) -> AblationSection | None:
    by_comparison = [(each, _ratios(each, each.ours)) for each in found if each.ours]
    by_comparison = [(each, ratios) for each, ratios in by_comparison if ratios]
    if not by_comparison:
        return None
    labels = list(dict.fromkeys(label for _, ratios in by_comparison for label in ratios))
    chart = dot_plot(
        "Excess without each part over that of the whole",
        dict.fromkeys(labels, "ablation"),
        [DotPanel(each.title, ratios) for each, ratios in by_comparison],
        "Excess without the part / excess of the whole (log scale)",
    )
    rows = [(label, *(_words(c, ratios, label) for c, ratios in by_comparison)) for label in labels]
    return AblationSection(
        Figure("overall-ablations", chart),
        Table(("without", *(each.title for each, _ in by_comparison)), rows),
        [estimate for _, ratios in by_comparison for estimate in ratios.values()],
    )


def _ratios(comparison: Comparison, ours: ContenderScores) -> dict[str, IntervalEstimate]:
    measure = comparison.subject.measure
    pairs = ((e.label, ratio(e, ours, measure)) for e in comparison.of_role(ContenderRole.ABLATION))
    return {label: found for label, found in pairs if found is not None}


def _words(comparison: Comparison, ratios: Mapping[str, IntervalEstimate], label: str) -> str:
    tail = _tail(comparison.contender(label), comparison.ours)
    return f"{with_interval(ratios.get(label))}; {ratio_words(tail)}"


def _tail(without: ContenderScores | None, whole: ContenderScores | None) -> float | None:
    if without is None or whole is None:
        return None
    above, below = without.mean(rho_p99), whole.mean(rho_p99)
    return None if above is None or not below else above / below
