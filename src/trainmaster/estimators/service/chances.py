"""The Gittins index of `trainmaster`: from chances of ending, bin by bin, of jobs like the one asked about.

Of a class of jobs it is known in which bin some ended, and which bins others have outlived. The chance
of ending in a bin, for a job that has come to it, is

    (ended there + weight x the wider class's chance) / (came there + weight)

where a job that still runs has come only to the bins that it has left behind: nothing is known yet of
the one that it is in. The widest class is shrunk to chances under which the order is least attained
service first. Inside the narrowest class are a job's siblings: each counts by its nearness, and its bin
blurs into the two beside it.
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

MAX_CHANCE = 0.9999
NEGLIGIBLE = 0.01
"""The cost of going on is not followed further than this chance of getting there."""
PRIOR_CHANCES = [
    *[1 - exp(-hazard * width) for hazard, width in zip(PRIOR, WIDTHS, strict=False)],
    0.5,
]
"""Chances before anything is known."""
BEYOND_GPU_S = 2 * EDGES[-1] / GPU_SECOND
"""What a job that outlives all bins still takes."""

APART_MS = 30 * MINUTE
"""A sibling submitted this much earlier or later counts a third, ..."""
TOO_FAR_MS = 4 * APART_MS
"""... and not at all from here on."""
PLACES = 20
"""The same for a sibling with so many submissions between."""
CLASS_WEIGHT = 1.0
"""How many siblings the class counts for."""
Sibling = tuple[float, int, bool]
"""How much it counts, the bin that it has come to, and whether it ended there."""


def nearness(place: int, apart_ms: int) -> float:
    """How much a sibling counts; 0 = not at all."""
    return exp(-place / PLACES - apart_ms / APART_MS) if apart_ms <= TOO_FAR_MS else 0.0


class ChanceForecast:
    """What a completion of a job with these chances is expected to cost, from any bin on."""

    __slots__ = ("_known", "chances")

    def __init__(self, chances: Sequence[float]) -> None:
        self.chances = chances
        self._known: dict[tuple[int, int], int] = {}

    def gittins_cost(self, step: int, expense: int = 0) -> int:
        """1/G at the beginning of a bin: the least service per completion, of any quantum.

        `expense` is service that is spent before any progress, such as a start.
        """
        found = self._known.get((step, expense))
        if found is None:
            found = self._known[step, expense] = as_service(
                self._least_cost(step, expense / GPU_SECOND)
            )
        return found

    def _least_cost(self, step: int, spent: float) -> float:
        """Of all bins to stop at the end of: service expected until then / chance to end by then."""
        ends, goes_on, least = 0.0, 1.0, float("inf")
        for chance, width in zip(self.chances_from(step), WIDTHS[step:], strict=False):
            spent += goes_on * width * (1 - chance / 2)
            ends += goes_on * chance
            goes_on *= 1 - chance
            if spent < least * ends:
                least = spent / ends
            if goes_on < NEGLIGIBLE or spent >= least:  # no chance beyond is larger than 1
                return least
        return min(least, spent + goes_on * BEYOND_GPU_S)

    def quantile(self, step: int, part: float) -> int | None:
        """Service that such a part of those at the beginning of a bin do not exceed; None = no end."""
        goes_on = 1.0
        for index, chance in enumerate(self.chances_from(step), step):
            goes_on *= 1 - chance
            if goes_on <= 1 - part:
                return UPPER[index]
        return None

    def chances_from(self, step: int) -> Iterable[float]:
        return self.chances[step:]

    def among(self, siblings: Iterable[Sibling]) -> ChanceForecast:
        """The same for a job of which siblings are known."""
        return SiblingForecast(self.chances, siblings)


class SiblingForecast(ChanceForecast):
    """The forecast of a job inside its class and among its siblings."""

    __slots__ = ("_came", "_ended")

    def __init__(self, chances: Sequence[float], siblings: Iterable[Sibling]) -> None:
        super().__init__(chances)
        ended, left = [0.0] * (BINS + 2), [0.0] * (BINS + 2)
        for counts, last, has_ended in siblings:
            if has_ended:
                ended[last + 1] += counts
                left[last + 1] += counts
            else:
                left[last] += counts
        self._ended = ended
        """By bin; this and the next begin one bin early and end one late, for what blurs into them."""
        self._came = list(accumulate(reversed(left)))[::-1]
        self._came[0] = 0.0

    def chances_from(self, step: int) -> Iterator[float]:
        ended, came = self._ended, self._came
        for index in range(step, BINS):
            ends = (ended[index] + 2 * ended[index + 1] + ended[index + 2]) / 4
            comes = (came[index] + 2 * came[index + 1] + came[index + 2]) / 4
            chance = (ends + CLASS_WEIGHT * self.chances[index]) / (comes + CLASS_WEIGHT)
            yield chance if chance < MAX_CHANCE else MAX_CHANCE


UNKNOWN = ChanceForecast(PRIOR_CHANCES)


@stored_as("service.Histogram")
@dataclass(frozen=True, slots=True)
class ChanceHistogram:
    """Jobs of a class by bin: how many ended in it, and how many that still run are in it."""

    ended: tuple[int, ...] = EMPTY
    going: tuple[int, ...] = EMPTY

    @staticmethod
    def observed(service: int) -> int:
        return bin_of(service)

    @property
    def jobs(self) -> int:
        return sum(self.ended) + sum(self.going)

    def with_ended(self, bins: Iterable[int]) -> ChanceHistogram:
        return ChanceHistogram(_counted(self.ended, bins), self.going)

    def with_going(self, bins: Iterable[int]) -> ChanceHistogram:
        return ChanceHistogram(self.ended, _counted(self.going, bins))

    def forecast(self, wider: ChanceForecast, weight: float) -> ChanceForecast:
        return ChanceForecast(self.chances(wider.chances, weight))

    def chances(self, wider: Sequence[float], weight: float) -> list[float]:
        """Of ending in each bin, shrunk to those of the class around it."""
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
