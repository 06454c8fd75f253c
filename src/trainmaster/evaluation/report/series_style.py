"""The colour that each contender has throughout a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.evaluation.comparisons import Comparison
from trainmaster.evaluation.suite import Standing

DRAWN_AS_LINES = ("sweep", "seed")
"""Tracks whose figures tell contenders apart by colour."""
GREY = 7
"""The palette's slot for the first bound, which is not a rival."""


@dataclass(frozen=True, slots=True)
class Cast:
    """Every label of the suite with its place in the palette, whose strongest colours come first."""

    slots: dict[str, int]

    def slot(self, label: str) -> int:
        return self.slots[label]

    @property
    def size(self) -> int:
        """How many slots of the palette are used, gaps included."""
        return max(self.slots.values(), default=-1) + 1


def cast_of(found: Sequence[Comparison]) -> Cast:
    """Ours first, a bound grey, the others by how often they are drawn as lines."""
    contenders = {each.label: each.contender for c in found for each in c.entrants}
    lines = Counter(
        each.label for c in found if c.experiment.track in DRAWN_AS_LINES for each in c.entrants
    )
    bound = next((c.label for c in contenders.values() if c.standing is Standing.BOUND), None)
    rivals = sorted(
        (each for each in contenders.values() if each.label != bound),
        key=lambda each: (each.standing is not Standing.OURS, -lines[each.label]),
    )
    free = (slot for slot in range(len(contenders) + 1) if slot != GREY)
    slots = {each.label: slot for each, slot in zip(rivals, free, strict=False)}
    return Cast(slots if bound is None else slots | {bound: GREY})
