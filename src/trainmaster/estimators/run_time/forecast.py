"""How long a job still runs: expected, and between which bounds, with what that is made from.

A prediction is made from the steps that are left at the measured speed, from the fitted loss curve, or from
earlier successful runs. Of several, the one with the narrowest interval counts. The interval is a split
conformal one: the prediction multiplied by quantiles of true over predicted time in past forecasts on the
same basis; the expected time is the prediction multiplied by their median. Which quantiles is adapted to how
many past ends were outside (adaptive conformal inference, Gibbs and Candès, NeurIPS'21), as jobs of tomorrow
are not those of yesterday. Until there are nine past forecasts, an assumed width stands in, and is reported
as such.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from statistics import median

from trainmaster.model.job import Source
from trainmaster.model.run_time import Calibration, RunTimeForecast
from trainmaster.model.units import MINUTE, SECOND

COVERAGE = 80
"""Percent of the true ends that should be within the interval."""
OUTSIDE = 1 - COVERAGE / 100
"""The part of them that should be outside."""
LEAST_OUTSIDE, MOST_OUTSIDE = OUTSIDE / 10, 2 * OUTSIDE
STEP = 0.02
"""How far the part that is left outside moves with each end that was within or outside."""
ENOUGH = round(2 / OUTSIDE) - 1
"""Past forecasts from which both quantiles exist."""
ROUNDING = 1e-9


@dataclass(slots=True)
class PastForecasts:
    """What came true of forecasts on one basis."""

    ratios: deque[float]
    """True over predicted remaining time."""
    outside: float = OUTSIDE
    """The part of these ratios that the next interval leaves out."""

    def learn(self, forecast: RunTimeForecast, total_ms: int) -> None:
        left_ms = left_of(forecast, total_ms)
        self.ratios.append(left_ms / forecast.predicted_ms)
        if forecast.is_calibrated:
            is_outside = not forecast.low_ms <= left_ms <= forecast.high_ms
            moved = self.outside + STEP * (OUTSIDE - is_outside)
            self.outside = min(MOST_OUTSIDE, max(LEAST_OUTSIDE, moved))


Past = Mapping[Source, PastForecasts]
Factors = tuple[float, float, float]
"""What a prediction is multiplied by for the lower bound, the expected time and the upper bound."""
ASSUMED: Mapping[Source, float] = {
    Source.STEPS: 1.25,
    Source.PROFILE: 1.4,
    Source.RUNS: 1.5,
    Source.LOSS: 2.0,
    Source.PROGRAM: 3.0,
}
"""The factor below and above, until enough forecasts have been compared with what came true."""


def from_runs(totals_ms: Sequence[int], ran_ms: int) -> int | None:
    """The median of the earlier runs that were longer than it has run; None: it outlasts them all."""
    longer = [total for total in totals_ms if total > ran_ms]
    return round(median(longer)) - ran_ms if longer else None


def run_time_forecast(
    predictions: Mapping[Source, int], ran_ms: int, past: Past
) -> RunTimeForecast | None:
    """The prediction with the narrowest interval, with that interval; None without any."""
    if not predictions:
        return None
    known = {basis: factors(basis, past) for basis in Source if basis in predictions}
    basis = min(known, key=lambda each: known[each][2] / known[each][0])
    predicted = max(SECOND, predictions[basis])
    low, middle, high = known[basis]
    return RunTimeForecast(
        basis,
        ran_ms,
        predicted,
        floor(predicted * low),
        round(predicted * middle),
        ceil(predicted * high),
        _has_enough(basis, past),
    )


def _has_enough(basis: Source, past: Past) -> bool:
    return basis in past and len(past[basis].ratios) >= ENOUGH


def factors(basis: Source, past: Past) -> Factors:
    """Quantiles of the past ratios, rounded outwards; assumed ones while these are too few."""
    if not _has_enough(basis, past):
        return 1 / ASSUMED[basis], 1.0, ASSUMED[basis]
    known = sorted(past[basis].ratios)
    place = max(1, floor((len(known) + 1) * past[basis].outside / 2 + ROUNDING))
    return known[place - 1], median(known), known[-place]


def is_due(ran_ms: int, last_ms: int | None) -> bool:
    """Whether another forecast is to be compared: as it starts, after a minute, after twice that, ..."""
    return last_ms is None or ran_ms >= max(MINUTE, 2 * last_ms)


def left_of(forecast: RunTimeForecast, total_ms: int) -> int:
    """The remaining time that came true; less than a second counts as one."""
    return max(SECOND, total_ms - forecast.ran_ms)


def calibration(ended: Iterable[tuple[int, Sequence[RunTimeForecast]]]) -> list[Calibration]:
    """Of jobs that have succeeded: how long each ran in all, and what had been forecast of it."""
    found: dict[Source, list[tuple[RunTimeForecast, int]]] = {}
    for total_ms, forecasts in ended:
        for each in forecasts:
            found.setdefault(each.basis, []).append((each, left_of(each, total_ms)))
    return [
        Calibration(
            basis,
            len(found[basis]),
            sum(each.low_ms <= left <= each.high_ms for each, left in found[basis]),
            median(abs(left - each.expected_ms) / left for each, left in found[basis]),
        )
        for basis in Source
        if basis in found
    ]
