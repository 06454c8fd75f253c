"""How long a job still runs: expected, and between which bounds, with what that is made from.

A prediction is made from the steps that are left at the measured speed, from the fitted loss curve, or from
earlier successful runs. Of several, the one with the narrowest interval counts. The interval is a split
conformal one: the prediction multiplied by quantiles of true over predicted time in past forecasts on the
same basis; the expected time is the prediction multiplied by their median. Until there are nine of those, an
assumed width stands in, and is reported as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor
from statistics import median

from trainmaster.model.job import Source
from trainmaster.model.run_time import Calibration, RunTimeForecast
from trainmaster.model.units import MINUTE, SECOND

COVERAGE = 80
"""Percent of the true ends that should be within the interval."""
TAIL = (100 - COVERAGE) // 2
"""Percent on each side of it."""
ENOUGH = 100 // TAIL - 1
"""Past forecasts from which both quantiles exist."""

Ratios = Mapping[Source, Sequence[float]]
"""True over predicted remaining time of past forecasts."""
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
    predictions: Mapping[Source, int], ran_ms: int, ratios: Ratios
) -> RunTimeForecast | None:
    """The prediction with the narrowest interval, with that interval; None without any."""
    if not predictions:
        return None
    known = {basis: factors(basis, ratios) for basis in Source if basis in predictions}
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
        _has_enough(basis, ratios),
    )


def _has_enough(basis: Source, ratios: Ratios) -> bool:
    return len(ratios.get(basis, ())) >= ENOUGH


def factors(basis: Source, ratios: Ratios) -> Factors:
    """Quantiles of the past ratios, rounded outwards; assumed ones while these are too few."""
    if not _has_enough(basis, ratios):
        return 1 / ASSUMED[basis], 1.0, ASSUMED[basis]
    known = sorted(ratios[basis])
    outside = (len(known) + 1) * TAIL // 100
    return known[outside - 1], median(known), known[-outside]


def is_due(ran_ms: int, last_ms: int | None) -> bool:
    """Whether another forecast is to be compared: as it starts, after a minute, after twice that, ..."""
    return last_ms is None or ran_ms >= max(MINUTE, 2 * last_ms)


def ratio_of(forecast: RunTimeForecast, total_ms: int) -> float:
    """True over predicted remaining time; less than a second counts as one."""
    return max(SECOND, total_ms - forecast.ran_ms) / forecast.predicted_ms


def calibration(ended: Iterable[tuple[int, Sequence[RunTimeForecast]]]) -> list[Calibration]:
    """Of jobs that have succeeded: how long each ran in all, and what had been forecast of it."""
    found: dict[Source, list[tuple[RunTimeForecast, int]]] = {}
    for total_ms, forecasts in ended:
        for each in forecasts:
            left_ms = max(SECOND, total_ms - each.ran_ms)
            found.setdefault(each.basis, []).append((each, left_ms))
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
