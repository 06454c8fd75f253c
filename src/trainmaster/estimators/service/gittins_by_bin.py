"""The Gittins index of `trainmaster`, from the probability of ending in each bin of service.

For each class of jobs we count in which bin its jobs ended, and which bins the running ones have passed.
The probability that a job which reached a bin ends in it is

    (ended there + weight x the wider class's probability) / (reached it + weight)

A running job counts only for the bins that it has passed; the bin that it is in says nothing yet. The
widest class is shrunk to probabilities under which the order is least attained service first. A job's
siblings narrow its class further: each is weighted by its nearness, and its bin is blurred into the two
next to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import exp

from trainmaster.estimators.service.bins import (
    BINS,
    EDGES,
    EMPTY,
    GPU_SECOND,
    PRIOR,
    UPPER,
    WIDTHS,
    as_service,
    bin_of,
)
from trainmaster.model.codec import stored_as
from trainmaster.model.units import MINUTE

MAX_PROBABILITY = 0.9999
NEGLIGIBLE = 0.01
"""The cost is not summed beyond the bin that a job reaches with this probability."""
PRIOR_PROBABILITIES = [
    *[1 - exp(-hazard * width) for hazard, width in zip(PRIOR, WIDTHS, strict=False)],
    0.5,
]
"""Probabilities before any job has been observed."""
BEYOND_GPU_S = 2 * EDGES[-1] / GPU_SECOND
"""Service that a job beyond the last bin still takes."""

APART_MS = 30 * MINUTE
"""A sibling submitted this much earlier or later counts a third, ..."""
TOO_FAR_MS = 4 * APART_MS
"""... and not at all from here on."""
PLACES = 20
"""A sibling with this many submissions in between counts a third."""
CLASS_WEIGHT = 1.0
"""Weight of the class, in siblings."""
Sibling = tuple[float, int, bool]
"""(weight, the bin that it has reached, whether it ended there)."""


def nearness(place: int, apart_ms: int) -> float:
    """How much a sibling counts; 0 = not at all."""
    return exp(-place / PLACES - apart_ms / APART_MS) if apart_ms <= TOO_FAR_MS else 0.0


class BinProbabilityForecast:
    """The expected cost of completing a job with these probabilities of ending, from any bin on."""

    __slots__ = ("_known", "probabilities")

    def __init__(self, probabilities: Sequence[float]) -> None:
        self.probabilities = probabilities
        self._known: dict[tuple[int, int], int] = {}

    def gittins_cost(self, step: int, expense: int = 0) -> int:
        """1/G at the beginning of a bin: the least service per completion over all quanta.

        `expense` is service spent before any progress, such as a start.
        """
        found = self._known.get((step, expense))
        if found is None:
            found = self._known[step, expense] = as_service(
                self._least_cost(step, expense / GPU_SECOND)
            )
        return found

    def _least_cost(self, step: int, spent: float) -> float:
        """The least expected service / probability of ending, over all bins to stop after."""
        ends, goes_on, least = 0.0, 1.0, float("inf")
        for chance, width in zip(self.probabilities_from(step), WIDTHS[step:], strict=False):
            spent += goes_on * width * (1 - chance / 2)
            ends += goes_on * chance
            goes_on *= 1 - chance
            if spent < least * ends:
                least = spent / ends
            if goes_on < NEGLIGIBLE or spent >= least:  # no chance beyond is larger than 1
                return least
        return min(least, spent + goes_on * BEYOND_GPU_S)

    def quantile(self, step: int, part: float) -> int | None:
        """The `part` quantile of total service for jobs that reached this bin; None if unbounded."""
        goes_on = 1.0
        for index, chance in enumerate(self.probabilities_from(step), step):
            goes_on *= 1 - chance
            if goes_on <= 1 - part:
                return UPPER[index]
        return None

    def probabilities_from(self, step: int) -> Iterable[float]:
        return self.probabilities[step:]

    def among(self, siblings: Iterable[Sibling]) -> BinProbabilityForecast:
        """The same for a job with known siblings."""
        return SiblingForecast(self.probabilities, siblings)


class SiblingForecast(BinProbabilityForecast):
    """The forecast of a job inside its class and among its siblings."""

    __slots__ = ("_came", "_ended")

    def __init__(self, probabilities: Sequence[float], siblings: Iterable[Sibling]) -> None:
        super().__init__(probabilities)
        ended, left = [0.0] * (BINS + 2), [0.0] * (BINS + 2)
        for counts, last, has_ended in siblings:
            if has_ended:
                ended[last + 1] += counts
                left[last + 1] += counts
            else:
                left[last] += counts
        self._ended = ended
        """By bin. This and `_came` have one more bin on each side, for the blur."""
        self._came = list(accumulate(reversed(left)))[::-1]
        self._came[0] = 0.0

    def probabilities_from(self, step: int) -> Iterator[float]:
        ended, came = self._ended, self._came
        for index in range(step, BINS):
            ends = (ended[index] + 2 * ended[index + 1] + ended[index + 2]) / 4
            comes = (came[index] + 2 * came[index + 1] + came[index + 2]) / 4
            chance = (ends + CLASS_WEIGHT * self.probabilities[index]) / (comes + CLASS_WEIGHT)
            yield chance if chance < MAX_PROBABILITY else MAX_PROBABILITY


UNKNOWN = BinProbabilityForecast(PRIOR_PROBABILITIES)


@stored_as("service.Histogram")
@dataclass(frozen=True, slots=True)
class BinProbabilityHistogram:
    """Jobs of a class by bin: how many ended in it, and how many that still run are in it."""

    ended: tuple[int, ...] = EMPTY
    going: tuple[int, ...] = EMPTY

    @staticmethod
    def observed(service: int) -> int:
        return bin_of(service)

    @property
    def jobs(self) -> int:
        return sum(self.ended) + sum(self.going)

    def with_ended(self, bins: Iterable[int]) -> BinProbabilityHistogram:
        return BinProbabilityHistogram(_counted(self.ended, bins), self.going)

    def with_going(self, bins: Iterable[int]) -> BinProbabilityHistogram:
        return BinProbabilityHistogram(self.ended, _counted(self.going, bins))

    def forecast(self, wider: BinProbabilityForecast, weight: float) -> BinProbabilityForecast:
        return BinProbabilityForecast(self.probabilities(wider.probabilities, weight))

    def probabilities(self, wider: Sequence[float], weight: float) -> list[float]:
        """The probability of ending in each bin, shrunk to that of the wider class."""
        found = [0.0] * BINS
        beyond = 0
        for index in range(BINS - 1, -1, -1):
            ended = self.ended[index]
            found[index] = (ended + weight * wider[index]) / (beyond + ended + weight)
            beyond += ended + self.going[index]
        return found


def _counted(counts: tuple[int, ...], bins: Iterable[int]) -> tuple[int, ...]:
    found = list(counts)
    for index in bins:
        found[index] += 1
    return tuple(found)
