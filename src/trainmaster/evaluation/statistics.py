"""Paired ratios and means with bootstrap intervals.

Everything here is seeded and the same on every machine: the resamples of a bootstrap depend only on
the number of things resampled, so two reports of the same scores have the same bytes.
"""

from __future__ import annotations

import math
import random
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2_000
TAIL = 0.025
"""Left out on either side: the interval holds 95 %."""
SMALLEST = 1.0
"""Smaller values (in seconds) count as this: a ratio of two negligible values says nothing."""


class Basis(Enum):
    """What an interval was resampled over."""

    SEEDS = "seeds"
    BLOCKS = "blocks of one trace"
    NOTHING = "one trace, no interval"


@dataclass(frozen=True, slots=True)
class Interval:
    """95 % of the resamples lie between its ends."""

    low: float
    high: float

    def has(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class IntervalEstimate:
    """A number found from several trials, with its interval where there is one."""

    value: float
    interval: Interval | None
    number: int
    """How many things the interval was resampled over."""
    basis: Basis
    is_negligible: bool = False
    """Whether it is a ratio of two negligible values."""

    @property
    def low(self) -> float:
        """Of the interval; the value where there is none."""
        return self.value if self.interval is None else self.interval.low

    @property
    def high(self) -> float:
        return self.value if self.interval is None else self.interval.high

    @property
    def is_below(self) -> bool:
        """Surely below 1: the whole interval, or the value where there is none."""
        return self.high < 1.0


@dataclass(frozen=True, slots=True)
class Observed:
    """One trial's value, and the same by blocks of consecutive submissions where it was kept."""

    value: float
    blocks: tuple[float, ...] = ()


ObservationsBySeed = Mapping[int, Observed]
"""By seed: what makes two contenders a pair is that the seed, and so the trace, is the same."""


def paired_ratio(
    ours: ObservationsBySeed, theirs: ObservationsBySeed, smallest: float = SMALLEST
) -> IntervalEstimate | None:
    """Ours over theirs on the same traces; None where no seed has both, or a value is negative.

    Several seeds: the geometric mean of the ratios per seed, resampled over seeds. One trace, or seeds
    that make no difference to either: the plain ratio, resampled over blocks of submissions where both
    kept the same number of them.
    """
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds or any(min(ours[s].value, theirs[s].value) < 0 for s in seeds):
        return None
    if len({(ours[seed], theirs[seed]) for seed in seeds}) == 1:  # seeds make no difference
        return _single_trace(ours[seeds[0]], theirs[seeds[0]], smallest)
    logs = [math.log(_ratio(ours[s].value, theirs[s].value, smallest)) for s in seeds]
    means = np.array(logs)[_bootstrap_indices(len(logs))].mean(axis=1)
    interval = _percentile_interval(np.exp(means))
    return IntervalEstimate(math.exp(math.fsum(logs) / len(logs)), interval, len(logs), Basis.SEEDS)


def _single_trace(ours: Observed, theirs: Observed, smallest: float) -> IntervalEstimate:
    value = _ratio(ours.value, theirs.value, smallest)
    number = len(ours.blocks)
    if number < 2 or number != len(theirs.blocks):
        return IntervalEstimate(value, None, 1, Basis.NOTHING)
    drawn = _bootstrap_indices(number)
    above = np.maximum(np.array(ours.blocks)[drawn].mean(axis=1), smallest)
    below = np.maximum(np.array(theirs.blocks)[drawn].mean(axis=1), smallest)
    return IntervalEstimate(
        value, _around(_percentile_interval(above / below), value), number, Basis.BLOCKS
    )


def _around(interval: Interval, value: float) -> Interval:
    """Widen the interval to hold the value: blocks are only nearly equal in size."""
    return Interval(min(interval.low, value), max(interval.high, value))


def mean(values: Mapping[int, float]) -> IntervalEstimate | None:
    """The mean over seeds, resampled over them."""
    if not values:
        return None
    ordered = [values[seed] for seed in sorted(values)]
    value = math.fsum(ordered) / len(ordered)
    if len(ordered) == 1:
        return IntervalEstimate(value, None, 1, Basis.NOTHING)
    means = np.array(ordered)[_bootstrap_indices(len(ordered))].mean(axis=1)
    return IntervalEstimate(value, _percentile_interval(means), len(ordered), Basis.SEEDS)


def geometric_mean(ratios: Sequence[float]) -> float | None:
    if not ratios or min(ratios) <= 0:
        return None
    return statistics.geometric_mean(ratios)


def ranks(values: Mapping[str, float]) -> dict[str, float]:
    """1 for the lowest; ties get the mean of their ranks."""
    ordered = sorted(values.values())
    return {
        name: (bisect_left(ordered, value) + bisect_right(ordered, value) + 1) / 2
        for name, value in values.items()
    }


def _ratio(above: float, below: float, smallest: float) -> float:
    return max(above, smallest) / max(below, smallest)


def _percentile_interval(resampled: NDArray[np.float64]) -> Interval:
    ordered = np.sort(resampled)
    cut = int(TAIL * len(ordered))
    return Interval(float(ordered[cut]), float(ordered[-1 - cut]))


@cache
def _bootstrap_indices(number: int) -> NDArray[np.intp]:
    """`RESAMPLES` draws of `number` out of `number`, the same in every program run."""
    chance = random.Random(number)
    draws = [chance.choices(range(number), k=number) for _ in range(RESAMPLES)]
    return np.array(draws, dtype=np.intp)
