"""How forecasts of one kind came true, and how wide that makes the interval of the next one.

The interval leaves out a part of the past ratios of true over predicted time (split conformal prediction).
How large a part is adapted to how many ends were outside (adaptive conformal inference, Gibbs and Candès,
NeurIPS'21), as jobs of tomorrow are not those of yesterday, in steps that become smaller (Angelopoulos,
Barber and Bates, ICML'24): ends arrive late and many at once, so that large steps overshoot. Many ratios are
kept, because a user's hundred equal jobs that end together say little of other jobs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import floor, sqrt

from trainmaster.model.run_time import RunTimeForecast
from trainmaster.model.units import SECOND

COVERAGE = 80
"""Percent of the true ends that should be within the interval."""
OUTSIDE = 1 - COVERAGE / 100
"""The part of them that should be outside."""
LEAST_OUTSIDE, MOST_OUTSIDE = OUTSIDE / 10, 2 * OUTSIDE
FIRST_STEP, LEAST_STEP = 0.1, 0.002
"""How far the part that is left outside moves with each end: the first over the root of their number."""
ENOUGH = round(2 / OUTSIDE) - 1
"""Jobs from which both quantiles exist: forecasts of one say much the same."""
MOST_RATIOS = 10_000
"""Past forecasts that count: the newest."""
ROUNDING = 1e-9
Factors = tuple[float, float, float]
"""What a prediction is multiplied by for the lower bound, the expected time and the upper bound."""


@dataclass(slots=True)
class PastForecasts:
    """What came true of forecasts of one kind."""

    outside: float = OUTSIDE
    """The part of the ratios that the next interval leaves out."""
    judged: int = 0
    """Ends that were compared with an interval from past forecasts."""
    _jobs: int = 0
    """Of which there were forecasts."""
    _newest: deque[float] = field(default_factory=deque)
    """True over predicted remaining time, in the order in which they came true."""
    _sorted: list[float] = field(default_factory=list)

    @property
    def is_enough(self) -> bool:
        return self._jobs >= ENOUGH

    def learn(self, forecasts: Iterable[RunTimeForecast], total_ms: int) -> None:
        """A run of which these were forecast has ended after this time."""
        self._jobs += 1
        for each in forecasts:
            self._learn(each, total_ms)

    def factors(self) -> Factors:
        """Quantiles of the ratios, rounded outwards, and their median; of nine jobs, or more."""
        known, number = self._sorted, len(self._sorted)
        place = max(1, floor((number + 1) * self.outside / 2 + ROUNDING))
        middle = (known[(number - 1) // 2] + known[number // 2]) / 2
        return known[place - 1], middle, known[-place]

    def _learn(self, forecast: RunTimeForecast, total_ms: int) -> None:
        left_ms = left_of(forecast, total_ms)
        self._keep(left_ms / forecast.predicted_ms)
        if forecast.is_calibrated:
            self.judged += 1
            is_outside = not forecast.low_ms <= left_ms <= forecast.high_ms
            step = max(LEAST_STEP, FIRST_STEP / sqrt(self.judged))
            moved = self.outside + step * (OUTSIDE - is_outside)
            self.outside = min(MOST_OUTSIDE, max(LEAST_OUTSIDE, moved))

    def _keep(self, ratio: float) -> None:
        self._newest.append(ratio)
        insort(self._sorted, ratio)
        if len(self._newest) > MOST_RATIOS:
            del self._sorted[bisect_left(self._sorted, self._newest.popleft())]


def left_of(forecast: RunTimeForecast, total_ms: int) -> int:
    """The remaining time that came true; less than a second counts as one."""
    return max(SECOND, total_ms - forecast.ran_ms)
