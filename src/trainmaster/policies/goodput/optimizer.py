"""Divides GPUs so that speedups over fair shares are highest (Pollux, OSDI'21).

The speedup of a job is s(n) = speed on n GPUs / speed on its fair share, times f < 1 if n is not its current
size, since resizing costs. The division sought has the highest power mean of s over all jobs. Because the
mean is a sum with one term per job, it is found greedily: always the step with the best gain per GPU, each
step as long as its gain per GPU is highest. This is exact except for GPUs that the last steps leave over, and
never worse than the current division.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import log

from trainmaster.core.state import JobRecord
from trainmaster.mechanisms.gpu_claims import GpuClaim, Pool
from trainmaster.model.units import WHOLE

LEAST = 1e-3
"""Added to every speedup, so that speedups of 0 can still be compared."""


@dataclass(frozen=True, slots=True)
class JobTerms:
    """What the optimizer needs to know about a job besides its speedup curve."""

    held: int
    """GPUs that it has; 0 while it waits."""
    most: int
    """Most GPUs it may get in this division."""
    penalty: float = 1.0
    """Factor on its speedup if its number of GPUs changes."""
    fixed: int | None = None
    """Number of GPUs to give if available; None if the optimizer may choose."""


Step = tuple[float, int]
"""(gain per GPU, number of GPUs after it)."""


class GoodputOptimizer:
    """Gives every job its minimum, in the order asked, and the rest where the mean gains most."""

    def __init__(
        self, pool: Pool, terms_of: Callable[[JobRecord], JobTerms], fair: int, power: float
    ) -> None:
        self._pool = pool
        self._terms_of = terms_of
        self._fair = fair
        self._power = power
        self._open: list[Candidate] = []
        self.claims: list[GpuClaim] = []

    def admit(self, claim: GpuClaim) -> bool:
        self.claims.append(claim)
        terms = self._terms_of(claim.record)
        if claim.curve is None:
            return self._give(claim, claim.low, claim.need)
        if terms.fixed is not None:
            least = min(terms.held, claim.high)
            wanted = max(least, min(terms.fixed, claim.high))
            return self._give(claim, wanted) or self._give(claim, least)
        if not self._give(claim, claim.low):
            return False
        most = min(claim.high, max(claim.low, terms.most))
        if most > claim.low:
            self._open.append(Candidate(claim, terms, most, self._fair, self._power))
        return True

    def _give(self, claim: GpuClaim, count: int, need: int | None = None) -> bool:
        if not self._pool.take(claim.kinds, count * WHOLE if need is None else need):
            return False
        claim.count = count
        return True

    def finish(self) -> None:
        """The current division or the one found by greedy steps, whichever is better."""
        self._by_steps()
        candidates = self._open
        if all(candidate.claim.low <= candidate.held <= candidate.most for candidate in candidates):
            more = sum(candidate.held - candidate.claim.count for candidate in candidates)
            is_better = sum(candidate.gain for candidate in candidates) > 0
            if not is_better and more * WHOLE <= self._pool.total:
                for candidate in candidates:
                    candidate.claim.count = candidate.held

    def _by_steps(self) -> None:
        """Take the best step repeatedly."""
        queue: list[tuple[float, int, int]] = []
        for index, candidate in enumerate(self._open):
            self._enter(queue, index, candidate, candidate.most)
        heapify(queue)
        while queue and self._pool.total >= WHOLE:
            _, index, count = heappop(queue)
            candidate = self._open[index]
            claim = candidate.claim
            if self._pool.take(claim.kinds, (count - claim.count) * WHOLE):
                claim.count = count
                self._enter(queue, index, candidate, candidate.most)
            else:
                self._enter(
                    queue, index, candidate, min(count - 1, claim.count + self._left(claim))
                )

    def _enter(
        self, queue: list[tuple[float, int, int]], index: int, candidate: Candidate, most: int
    ) -> None:
        step = candidate.best_step(most)
        if step is not None:
            heappush(queue, (-step[0], index, step[1]))

    def _left(self, claim: GpuClaim) -> int:
        """Whole GPUs that it could still get."""
        left = self._pool.left
        return min(self._pool.total, sum(left[kind] for kind in claim.kinds)) // WHOLE


class Candidate:
    """A job that could get more GPUs."""

    def __init__(
        self, claim: GpuClaim, terms: JobTerms, most: int, fair: int, power: float
    ) -> None:
        curve = claim.curve
        assert curve is not None
        self.claim = claim
        self.held = terms.held
        self.most = most
        unit = curve.speeds[min(max(fair, curve.low), curve.high)]
        factors = [terms.penalty] * (most + 1)
        if not terms.held:
            factors = [1.0] * (most + 1)
        elif terms.held <= most:
            factors[terms.held] = 1.0
        self._worth = [
            worth(curve.speeds[n] / unit * factors[n], power) if n >= claim.low else 0.0
            for n in range(most + 1)
        ]

    @property
    def gain(self) -> float:
        """Gain of its new size over its current one."""
        return self._worth[self.claim.count] - self._worth[self.held]

    def best_step(self, most: int) -> Step | None:
        """The step from its new size to at most `most` GPUs with the best gain per GPU, if any."""
        start, values = self.claim.count, self._worth
        now, best, end = values[start], 0.0, 0
        for count in range(start + 1, most + 1):
            gain = (values[count] - now) / (count - start)
            if gain > best:
                best, end = gain, count
        return (best, end) if end else None


def worth(speedup: float, power: float) -> float:
    """A job's term of the power mean: the larger the sum of these, the larger the mean."""
    speedup += LEAST
    value: float = speedup**power / power if power else log(speedup)
    return value
