"""The Gittins index from hazards: the rate of ending per GPU-second, constant within a bin.

For each class of jobs and each bin we count the jobs that ended there and the service that all jobs
received in it, unfinished ones included (finished jobs alone are a censored sample, which lacks the long
ones). Their quotient is the hazard (Kaplan and Meier 1958). A class with few jobs is
shrunk towards the class that contains it, and all jobs together towards a hazard that falls with
service, under which the order is least attained service first.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import exp, expm1, inf
from typing import TypeVar

from trainmaster.estimators.service.bins import (
    BINS,
    EDGES,
    EMPTY,
    GPU_SECOND,
    PRIOR,
    WIDTHS,
    as_service,
    bin_of,
)
from trainmaster.estimators.service.gittins_of_samples import ServiceInterval, gittins_costs
from trainmaster.model.codec import stored_as

K = TypeVar("K", bound=Hashable)

MIN_JOBS = 30
"""A class with fewer jobs is not used; the class that contains it is used instead."""
ONE = 1_000
"""Weight of one job: counts are in thousandths, since they fade."""
HALF_LIFE = 40_000
"""An ended job counts half after this many more have ended."""


class HazardForecast:
    """The rest of a job's service, by the bin that it has reached."""

    def __init__(self, hazards: Sequence[float]) -> None:
        self.hazards = hazards
        """Probability of ending per GPU-second in each bin."""
        self._left = list(accumulate(zip(hazards, WIDTHS, strict=False), _survives, initial=1.0))
        """Fraction of all jobs that reaches the bin."""
        ahead = [self._left[-1] / hazards[-1]]
        for index in range(BINS - 2, -1, -1):
            spent = (self._left[index] - self._left[index + 1]) / hazards[index]
            ahead.append(ahead[-1] + spent)
        self._ahead = ahead[::-1]
        """GPU-seconds that they receive from there on, per job ever started."""
        self._within: dict[tuple[int, int | None], int] = {}

    def gittins_cost(self, step: int) -> int:
        """1/G at the beginning of a bin for the quantum that makes it least, as service."""
        return self._best[step]

    @cached_property
    def _best(self) -> list[int]:
        intervals = [_constant(*piece) for piece in zip(self.hazards, WIDTHS, strict=False)]
        last = ServiceInterval(1.0, 1.0 / self.hazards[-1])
        return [as_service(inverse) for inverse in gittins_costs([*intervals, last])]

    def gittins_cost_within(self, step: int, quantum: int | None) -> int:
        """1/G at the beginning of a bin for one service quantum, or one without end, as service."""
        found = self._within.get((step, quantum))
        if found is None:
            found = self._within[step, quantum] = as_service(self._cost_within(step, quantum))
        return found

    def _cost_within(self, step: int, quantum: int | None) -> float:
        left, ahead = self._left[step], self._ahead[step]
        if quantum is not None:
            end = EDGES[step] + quantum
            last = bin_of(end)
            hazard, before = self.hazards[last], self._left[last]
            after = before * exp(-hazard * (end - EDGES[last]) / GPU_SECOND)
            left -= after
            ahead -= self._ahead[last] - (before - after) / hazard
        return ahead / left if left > 0 else inf


@stored_as("service.Tally")
@dataclass(frozen=True, slots=True)
class HazardHistogram:
    """Jobs of a class by the bin that they have reached, in thousandths of a job."""

    ended: tuple[int, ...] = EMPTY
    going: tuple[int, ...] = EMPTY
    """Jobs that have not ended, by the bin reached so far."""
    inside: tuple[int, ...] = EMPTY
    """Service received in the bin by the jobs that got no further."""

    @staticmethod
    def observed(service: int) -> int:
        return service

    @property
    def jobs(self) -> int:
        return (sum(self.ended) + sum(self.going)) // ONE

    def with_ended(self, services: Iterable[int]) -> HazardHistogram:
        """Jobs ended after these amounts of service."""
        ended, inside = list(self.ended), list(self.inside)
        _count(services, ended, inside)
        return HazardHistogram(tuple(ended), self.going, tuple(inside))

    def with_going(self, services: Iterable[int]) -> HazardHistogram:
        """Jobs have received these amounts and have not ended."""
        going, inside = list(self.going), list(self.inside)
        _count(services, going, inside)
        return HazardHistogram(self.ended, tuple(going), tuple(inside))

    def faded(self, ends: int) -> HazardHistogram:
        """With less weight, after `ends` more jobs have ended."""
        kept = 0.5 ** (ends / HALF_LIFE)
        ended = tuple([int(count * kept) for count in self.ended])
        inside = tuple([int(service * kept) for service in self.inside])
        return HazardHistogram(ended, self.going, inside)

    def forecast(self, wider: HazardForecast, weight: float) -> HazardForecast:
        if self.jobs < MIN_JOBS:
            return wider
        return HazardForecast(self.hazards(wider.hazards, weight))

    def hazards(self, wider: Sequence[float], weight: float) -> list[float]:
        """Probability of ending per GPU-second, by bin, as if with `weight` more ends at the wider rate."""
        found = [0.0] * BINS
        beyond = 0
        for index in range(BINS - 1, -1, -1):
            passed = beyond / ONE * WIDTHS[index] if beyond else 0.0
            served = self.inside[index] / GPU_SECOND + passed
            found[index] = (self.ended[index] / ONE + weight) / (served + weight / wider[index])
            beyond += self.ended[index] + self.going[index]
        return found


def fade(past: Mapping[K, HazardHistogram], ends: int) -> dict[K, HazardHistogram]:
    """Histograms with less weight, after `ends` more jobs have ended; empty ones are dropped."""
    found = {each: counts.faded(ends) for each, counts in past.items()}
    return {each: counts for each, counts in found.items() if counts.jobs}


def _count(services: Iterable[int], jobs: list[int], inside: list[int]) -> None:
    for service in services:
        index = bin_of(service)
        jobs[index] += ONE
        inside[index] += service - EDGES[index]


def _survives(left: float, piece: tuple[float, float]) -> float:
    hazard, width = piece
    return left * exp(-hazard * width)


def _constant(hazard: float, width: float) -> ServiceInterval:
    """A interval of constant hazard."""
    ends = -expm1(-hazard * width)
    return ServiceInterval(ends, ends / hazard)


UNKNOWN = HazardForecast(PRIOR)
