"""Memory of what queues have used, fading by a half-life, in integers that replay exactly.

What is remembered is the average of what a queue held, where the past counts for less the longer ago
it is: after one half-life at h GPUs it has come half the way from where it was to h. A queue that has
used twice its share in the past thus stands where one stands that holds twice its share now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainmaster.model.codec import stored_as
from trainmaster.model.plan import FrozenMap

FINE = 1 << 20
"""Averages are kept in this part of a thousandth of a GPU, so that many short steps do not stall."""
FACTOR_BITS = 40
WEIGHT_UNIT = 64
"""Lessened weights are in these parts, so that crumbs of usage do not cost a queue a whole GPU."""


@stored_as("fair-share.Usage")
@dataclass(frozen=True, slots=True)
class Usage:
    """Averages up to a time, and what has been held since."""

    as_of_ms: int = 0
    average: FrozenMap[str, int] = field(default_factory=FrozenMap)
    held: FrozenMap[str, int] = field(default_factory=FrozenMap)

    def at(self, now: int, half_life_ms: int) -> dict[str, int]:
        """The averages now, in fine units; queues that have faded away are left out."""
        span = now - self.as_of_ms
        factor = round(2.0 ** (-span / half_life_ms) * (1 << FACTOR_BITS))
        found = {}
        for queue in sorted({*self.average, *self.held}):
            held = self.held.get(queue, 0) * FINE
            average = held + ((self.average.get(queue, 0) - held) * factor >> FACTOR_BITS)
            if average >= FINE:
                found[queue] = average
        return found


def in_thousandths(averages: Mapping[str, int]) -> dict[str, int]:
    return {queue: average // FINE for queue, average in averages.items()}


def lessened(weight: int, remembered: int, share: int) -> int:
    """A weight times 2^-(remembered / share): halved for who has used just its share."""
    if not remembered:
        return weight * WEIGHT_UNIT
    factor: float = 2.0 ** (-remembered / max(1, share))
    return max(1, round(weight * WEIGHT_UNIT * factor))
