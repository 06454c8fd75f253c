"""Which jobs of a stream are measured: not those that fill the cluster, nor those that keep it full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.model.trace import TracedJob


@dataclass(frozen=True, slots=True)
class Window:
    """Jobs submitted in it are measured; ms, both ends included."""

    from_ms: int
    until_ms: int

    def measured(self, jobs: Sequence[TracedJob]) -> list[TracedJob]:
        return [each for each in jobs if self.from_ms <= each.job.submit_ms <= self.until_ms]

    def before(self, jobs: Sequence[TracedJob]) -> list[TracedJob]:
        """The disjoint prefix: what contenders are tuned on."""
        return [each for each in jobs if each.job.submit_ms < self.from_ms]


def window_of(jobs: Sequence[TracedJob], warm_up: float, tail: float) -> Window:
    """What is left of the span without its first part, and without the last that only keeps it busy.

    With neither, all jobs are measured.
    """
    first, last = jobs[0].job.submit_ms, jobs[-1].job.submit_ms
    span = last - first
    return Window(first + round(span * warm_up), last - round(span * tail))
