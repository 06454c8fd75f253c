"""The section on why jobs waited: by size and by cause, as Philly's authors asked."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.evaluation.comparisons import Comparison, ContenderScores
from trainmaster.evaluation.report.figures import stacked_bars
from trainmaster.evaluation.report.ranking import rivals
from trainmaster.report.rendering import Figure, slug

ASKED = "delay"
"""An experiment with this in its name is about waiting."""
MOST_PANELS = 9


def delay_figures(found: Sequence[Comparison]) -> list[tuple[Comparison, Figure]]:
    """Of the experiments on delays; without one, of the first comparison with locality."""
    recorded = [each for each in found if any(_sizes(contender) for contender in each.contenders)]
    asked = [each for each in recorded if ASKED in each.experiment.name]
    chosen = asked or [each for each in recorded if each.experiment.track == "placement"][:1]
    return [(each, _figure(each, place)) for place, each in enumerate(chosen, 1)]


def _figure(comparison: Comparison, place: int) -> Figure:
    contenders = [each for each in rivals(comparison) if _sizes(each)][:MOST_PANELS]
    label = f"Waiting by size and cause: {comparison.experiment.title}, {comparison.title}"
    chart = stacked_bars(label, {each.label: _sizes(each) for each in contenders})
    return Figure(f"overall-waiting-{slug(comparison.title)}-{place}", chart)


def _sizes(contender: ContenderScores) -> dict[str, tuple[float, float, float]]:
    """Mean over seeds, by size class in order of first mention."""
    number = len(contender.scores)
    sums: dict[str, tuple[float, float, float]] = {}
    for _, score in sorted(contender.scores.items()):
        for each in score.delays:
            a, b, c = sums.get(each.size, (0.0, 0.0, 0.0))
            sums[each.size] = (
                a + each.fair_share_s / number,
                b + each.fragmentation_s / number,
                c + each.contention_s / number,
            )
    return sums
