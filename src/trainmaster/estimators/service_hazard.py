"""How much service jobs take, estimated from those that ended and those that have not yet.

Service is counted in bins that grow by the square root of two. In each bin, of each class of jobs:
how many ended there, and how much service all who came that far received in it, the unfinished
included (finished jobs alone are a censored sample: the long ones are missing from it). Their
quotient is the hazard, the chance of ending per unit of service (Kaplan and Meier 1958, for constant
hazard within a bin). A class with few jobs is shrunk towards the class that contains it, and all of
them together towards a hazard that falls with service, under which the order is least attained
service first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from math import exp, expm1, inf

from trainmaster.estimators.gittins_index import Stretch, inverse_indices
from trainmaster.model.codec import stored_as
from trainmaster.model.units import SECOND, WHOLE

GPU_SECOND = WHOLE * SECOND
"""Attained service of one GPU in one second."""
FIRST_BIN_GPU_S = 60
GROWTH = 2**0.5
LAST_EDGE_GPU_S = 4e8
ENTRIES = 30
"""A class with fewer jobs than that says nothing: the class that contains it speaks for it."""
ONE = 1_000
"""Weight of one job: counts are in thousandths, for they fade."""
PRIOR_WEIGHT = 2.0
NO_END = 1 << 62
"""1/G where nothing known ends any more: behind all others."""


def _edges() -> tuple[int, ...]:
    found, edge = [0], float(FIRST_BIN_GPU_S)
    while edge <= LAST_EDGE_GPU_S:
        found.append(round(edge) * GPU_SECOND)
        edge *= GROWTH
    return tuple(found)


EDGES = _edges()
"""Where the bins begin, in thousandths of a GPU x ms; the last one has no end."""
UPPER: tuple[int | None, ...] = (*EDGES[1:], None)
"""Where they end."""
BINS = len(EDGES)
WIDTHS = [(high - low) / GPU_SECOND for low, high in pairwise(EDGES)]
MIDDLES = [low / GPU_SECOND + width / 2 for low, width in zip(EDGES, WIDTHS, strict=False)]
PRIOR = [0.5 / max(middle, FIRST_BIN_GPU_S) for middle in (*MIDDLES, EDGES[-1] / GPU_SECOND)]
"""Hazard per GPU-second before anything is known: half a chance to end before doubling its age."""


def bin_of(attained: int) -> int:
    return bisect_right(EDGES, attained) - 1


@stored_as("service.Tally")
@dataclass(frozen=True, slots=True)
class Tally:
    """Jobs of a class by the bin that they have come to, in thousandths of a job."""

    ended: tuple[int, ...] = (0,) * BINS
    going: tuple[int, ...] = (0,) * BINS
    """Those that have not ended: they count as having come this far."""
    inside: tuple[int, ...] = (0,) * BINS
    """Service received in the bin by those who came no further, in thousandths of a GPU x ms."""

    @property
    def entries(self) -> int:
        return (sum(self.ended) + sum(self.going)) // ONE

    def with_ended(self, services: Iterable[int]) -> Tally:
        """Jobs ended after these amounts of service."""
        ended, inside = list(self.ended), list(self.inside)
        _count(services, ended, inside)
        return Tally(tuple(ended), self.going, tuple(inside))

    def with_going(self, services: Iterable[int]) -> Tally:
        """Jobs have received these amounts and go on."""
        going, inside = list(self.going), list(self.inside)
        _count(services, going, inside)
        return Tally(self.ended, tuple(going), tuple(inside))

    def faded(self, kept: float) -> Tally:
        """What ended long ago counts less."""
        ended = tuple([int(count * kept) for count in self.ended])
        return Tally(ended, self.going, tuple([int(service * kept) for service in self.inside]))

    def hazards(self, parent: Sequence[float], weight: float) -> list[float]:
        """Chance of ending per GPU-second in each bin, as if `weight` ends at the parent's rate."""
        found = [0.0] * BINS
        beyond = 0
        for index in range(BINS - 1, -1, -1):
            passed = beyond / ONE * WIDTHS[index] if beyond else 0.0
            served = self.inside[index] / GPU_SECOND + passed
            found[index] = (self.ended[index] / ONE + weight) / (served + weight / parent[index])
            beyond += self.ended[index] + self.going[index]
        return found


def _count(services: Iterable[int], jobs: list[int], inside: list[int]) -> None:
    for service in services:
        index = bin_of(service)
        jobs[index] += ONE
        inside[index] += service - EDGES[index]


class Outlook:
    """What lies ahead of a job of a class, by the bin that it has come to."""

    def __init__(self, hazards: Sequence[float]) -> None:
        self.hazards = hazards
        """Chance of ending per GPU-second in each bin."""
        self._left = list(accumulate(zip(hazards, WIDTHS, strict=False), _survives, initial=1.0))
        """Part of all jobs that comes to the bin."""
        ahead = [self._left[-1] / hazards[-1]]
        for index in range(BINS - 2, -1, -1):
            spent = (self._left[index] - self._left[index + 1]) / hazards[index]
            ahead.append(ahead[-1] + spent)
        self._ahead = ahead[::-1]
        """GPU-seconds that they receive from there on, per job that ever began."""
        self._within: dict[tuple[int, int | None], int] = {}
        self._after: dict[tuple[int, int], int] = {}

    @cached_property
    def best(self) -> list[int]:
        """1/G at the beginning of each bin for the quantum that makes it least, as service."""
        stretches = [_constant(*piece) for piece in zip(self.hazards, WIDTHS, strict=False)]
        last = Stretch(1.0, 1.0 / self.hazards[-1])
        return [as_service(inverse) for inverse in inverse_indices([*stretches, last])]

    def within(self, first: int, quantum: int | None) -> int:
        """1/G at the beginning of a bin for one service quantum, or one without end, as service."""
        found = self._within.get((first, quantum))
        if found is None:
            found = self._within[first, quantum] = as_service(self._inverse(first, quantum))
        return found

    def after(self, first: int, expense: int) -> int:
        """The least 1/G at the beginning of a bin if the service begins with a fruitless expense."""
        if not expense:
            return self.best[first]
        found = self._after.get((first, expense))
        if found is None:
            left, ahead = (
                self._left[first],
                self._ahead[first] + expense / GPU_SECOND * self._left[first],
            )
            pairs = zip(self._ahead[first + 1 :], self._left[first + 1 :], strict=True)
            costs = [(ahead - beyond) / (left - stay) for beyond, stay in pairs if stay < left]
            least = min((*costs, ahead / left)) if left > 0 else inf
            found = self._after[first, expense] = as_service(least)
        return found

    def _inverse(self, first: int, quantum: int | None) -> float:
        left, ahead = self._left[first], self._ahead[first]
        if quantum is not None:
            end = EDGES[first] + quantum
            last = bin_of(end)
            hazard, before = self.hazards[last], self._left[last]
            after = before * exp(-hazard * (end - EDGES[last]) / GPU_SECOND)
            left -= after
            ahead -= self._ahead[last] - (before - after) / hazard
        return ahead / left if left > 0 else inf


def _survives(left: float, piece: tuple[float, float]) -> float:
    hazard, width = piece
    return left * exp(-hazard * width)


def _constant(hazard: float, width: float) -> Stretch:
    """A stretch of constant hazard."""
    ends = -expm1(-hazard * width)
    return Stretch(ends, ends / hazard)


def as_service(gpu_s: float) -> int:
    """For ranks: to the GPU-ms, for finer differences are noise, in thousandths of a GPU x ms."""
    return round(gpu_s * SECOND) * WHOLE if gpu_s * GPU_SECOND < NO_END else NO_END
