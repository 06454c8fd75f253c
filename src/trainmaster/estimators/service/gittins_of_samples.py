"""The Gittins index of a job by its attained service: the value of giving it one more unit of service.

G(a) = sup over D of P(S - a <= D | S > a) / E[min(S - a, D) | S > a], S being the total service of a
job drawn at random (Gittins 1989; Tiresias, NSDI'19, section 3: the formula as printed). Ranks want
small numbers first, so policies use its inverse: the service that a completion is expected to cost.
Nothing here has a unit: service in, completions per unit of that service out.

This module computes the index of samples, and of any sequence of intervals of service. Learned
distributions have it as `gittins_cost`: by the probability of ending in each bin (gittins_by_bin.py; the
default policy), or by hazards (gittins_by_hazard.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple


class EmpiricalDistribution:
    """A distribution of service given by equally weighted samples."""

    def __init__(self, samples: Sequence[int]) -> None:
        self.samples = sorted(samples)
        self.points = sorted(set(samples))
        self._sums = [0, *accumulate(self.samples)]

    def index(self, attained: int, quantum: int | None = None) -> Fraction:
        """G at `attained`; for one service quantum where it is given. 0 beyond the last sample."""
        beyond = bisect_right(self.samples, attained)
        if beyond == len(self.samples):
            return Fraction(0)
        if quantum is not None:
            return Fraction(*self._within(attained, beyond, attained + quantum))
        best, cost = 0, 1
        for end in self.points[bisect_right(self.points, attained) :]:  # only D = s - a can be best
            finished, spent = self._within(attained, beyond, end)
            if finished * cost > best * spent:
                best, cost = finished, spent
        return Fraction(best, cost)

    def index_to_the_end(self, attained: int) -> Fraction:
        """The index for a quantum without end: one over the mean service still to come."""
        beyond = bisect_right(self.samples, attained)
        if beyond == len(self.samples):
            return Fraction(0)
        return Fraction(*self._within(attained, beyond, self.samples[-1]))

    def _within(self, attained: int, beyond: int, end: int) -> tuple[int, int]:
        """Of samples beyond `attained`: how many finish by `end`, and the service all receive until then."""
        upto = bisect_right(self.samples, end)
        spent = self._sums[upto] - self._sums[beyond] - (upto - beyond) * attained
        return upto - beyond, spent + (len(self.samples) - upto) * (end - attained)

    def next_point(self, service: int) -> int | None:
        """The smallest sample beyond."""
        place = bisect_right(self.points, service)
        return self.points[place] if place < len(self.points) else None

    def interval(self, low: int, high: int) -> ServiceInterval:
        """The interval of attained service from `low` to `high`."""
        beyond = bisect_right(self.samples, low)
        count = len(self.samples) - beyond
        if not count:
            return ServiceInterval(0.0, 0.0)
        finished, spent = self._within(low, beyond, high)
        return ServiceInterval(finished / count, spent / count)


class ServiceInterval(NamedTuple):
    """An interval of attained service: probability of completing in it, and mean service spent in it."""

    ends: float
    spends: float

    def then(self, after: ServiceInterval) -> ServiceInterval:
        """Both in a row."""
        survives = 1.0 - self.ends
        return ServiceInterval(
            self.ends + survives * after.ends, self.spends + survives * after.spends
        )

    def beats(self, other: ServiceInterval) -> bool:
        return self.ends * other.spends > other.ends * self.spends

    @property
    def inverse(self) -> float:
        """Service per completion; infinite where none ends."""
        return self.spends / self.ends if self.ends > 0 else float("inf")


def gittins_costs(intervals: Sequence[ServiceInterval]) -> list[float]:
    """1/G at the beginning of each interval, D ending at the end of any later one.

    From the last to the first, an interval is joined with the following one while that has a better
    ratio. The intervals kept are in falling order of it, so each is joined once and the cost is linear.
    """
    found: list[float] = []
    following: list[ServiceInterval] = []
    for interval in reversed(intervals):
        best = interval
        while following and following[-1].beats(best):
            best = best.then(following.pop())
        following.append(best)
        found.append(best.inverse)
    return found[::-1]
