"""Who takes part in a report, each with the colour and the look that it has throughout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.evaluation.report.comparisons import Comparison
from trainmaster.evaluation.suite import Contender, Standing

ORDER = (Standing.OURS, Standing.PUBLISHED, Standing.BOUND, Standing.ABLATION)


@dataclass(frozen=True, slots=True)
class Cast:
    """Every label of the suite with its place in the palette; ours comes first."""

    slots: dict[str, int]

    def slot(self, label: str) -> int:
        return self.slots[label]

    @property
    def size(self) -> int:
        return len(self.slots)


def cast_of(found: Sequence[Comparison]) -> Cast:
    contenders = {each.label: each.contender for c in found for each in c.entrants}
    ordered = sorted(contenders.values(), key=_place)
    return Cast({each.label: slot for slot, each in enumerate(ordered)})


def _place(contender: Contender) -> int:
    return ORDER.index(contender.standing)


def look(contender: Contender) -> str:
    """The class of chart.css that its marks have."""
    return contender.standing.value
