"""What a switch costs: how long runs took lately to leave their GPUs, and suspended jobs to train again.

The cost of a switch is the time that a GPU does not train because its run gives way: from the order to
leave until it has left, and from the order to start again until it trains. A run is not preempted before
it has trained for a multiple of that (mechanisms/preemption_guards.py), so only what every switch takes
counts. A first start does not: a job makes it once, whether it is suspended later or not. Nor does a
run that was killed at the end of its grace period: that took as long as its owner had stated, which says
nothing of other runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_COUNTED = 128
"""When so many have been counted, all of them count half: a slow day is forgotten."""


@dataclass(slots=True)
class RecentMean:
    """A mean of whole numbers, of which the last ones count most."""

    count: int = 0
    total: int = 0

    def add(self, value: int) -> None:
        while self.count >= MOST_COUNTED:
            self.count, self.total = self.count // 2, self.total // 2
        self.count += 1
        self.total += value

    @property
    def mean(self) -> int:
        return self.total // self.count if self.count else 0


@dataclass(slots=True)
class SwitchTimes:
    """How long suspensions and launches took lately, in ms."""

    suspensions: RecentMean = field(default_factory=RecentMean)
    launches: RecentMean = field(default_factory=RecentMean)
    """First starts too."""
    restarts: RecentMean = field(default_factory=RecentMean)
    """Launches of jobs that had run before."""

    def switch_ms(self, restart_ms: int | None = None) -> int:
        """What a switch costs: a mean suspension, and this start of a suspended job, or a mean one."""
        return self.suspensions.mean + (self.restarts.mean if restart_ms is None else restart_ms)

    @property
    def handover_ms(self) -> int:
        """Mean time from the order to leave a GPU until another job trains on it, first starts included."""
        return self.suspensions.mean + self.launches.mean

    def counts(self) -> tuple[int, ...]:
        """As stores have them."""
        means = (self.suspensions, self.launches, self.restarts)
        return tuple(number for each in means for number in (each.count, each.total))

    @classmethod
    def of(cls, counts: Sequence[int]) -> SwitchTimes:
        """From a store of any version: the first ones counted no restarts."""
        pairs = zip(counts[::2], counts[1::2], strict=True)
        return cls(*(RecentMean(count, total) for count, total in pairs))
