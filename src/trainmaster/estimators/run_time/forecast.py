"""How long a job still runs: expected, and between which bounds, with what that is made from.

A prediction is made from the steps that are left at the measured speed, from the fitted loss curve, or from
earlier successful runs. Of several, the one with the narrowest interval counts. The interval is a split
conformal one: the prediction multiplied by quantiles of true over predicted time in past forecasts of the
same kind (`past_forecasts.py`); the expected time is the prediction multiplied by their median. Until there
are some of nine jobs, an assumed width stands in, and is reported as such.

A run that has outlasted a prediction says that this run is not like the others. How long it still takes is
then proportional to how long it has run, with an interval learned from other runs that outlasted theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor
from statistics import median
from typing import NamedTuple

from trainmaster.estimators.run_time.past_forecasts import Factors, PastForecasts, left_of
from trainmaster.model.job import Source
from trainmaster.model.run_time import Calibration, RunTimeForecast, Stage, stage_at
from trainmaster.model.units import MINUTE, SECOND

Kind = tuple[Source, Stage]
Past = Mapping[Kind, PastForecasts]
ASSUMED: Mapping[Source, float] = {
    Source.STEPS: 1.25,
    Source.PROFILE: 1.4,
    Source.RUNS: 1.5,
    Source.LOSS: 2.0,
    Source.PROGRAM: 3.0,
}
"""The factor below and above, until enough forecasts have been compared with what came true, ..."""
ASSUMED_OUTLASTED = 10.0
"""... and of a run that has outlasted its prediction."""
OUTLASTED_PERCENT: Mapping[Source, int] = {
    Source.STEPS: 10,
    Source.PROFILE: 10,
    Source.RUNS: 100,
    Source.LOSS: 100,
    Source.PROGRAM: 100,
}
"""How long a run still takes that has outlasted a prediction, in percent of its run time: once its steps are
made, it has to save and to end; of others, nothing is known but that they may run for long."""


class Prediction(NamedTuple):
    """What one source says of the time that a run still takes."""

    left_ms: int
    is_outlasted: bool = False
    """Whether the run has outlasted what the source had said."""


def prediction(source: Source, left_ms: int, ran_ms: int) -> Prediction:
    """By what a source says is left; nothing or less: the run has outlasted it."""
    if left_ms > 0:
        return Prediction(left_ms)
    return Prediction(ran_ms * OUTLASTED_PERCENT[source] // 100, is_outlasted=True)


def from_runs(source: Source, totals_ms: Sequence[int], ran_ms: int) -> Prediction | None:
    """By the median of the earlier runs that were longer than it has run; None: there are no earlier runs."""
    if not totals_ms:
        return None
    longer = [total for total in totals_ms if total > ran_ms]
    return prediction(source, round(median(longer)) - ran_ms if longer else 0, ran_ms)


def run_time_forecast(
    predictions: Mapping[Source, Prediction], ran_ms: int, past: Past
) -> RunTimeForecast | None:
    """The prediction with the narrowest interval, with that interval; None without any."""
    if not predictions:
        return None
    known = {
        source: factors(source, stage_at(ran_ms, is_outlasted=said.is_outlasted), past)
        for source, said in predictions.items()
    }
    narrowest = min(
        (each for each in Source if each in known), key=lambda each: known[each][2] / known[each][0]
    )
    said = predictions[narrowest]
    kind = narrowest, stage_at(ran_ms, is_outlasted=said.is_outlasted)
    predicted = max(SECOND, said.left_ms)
    low, middle, high = known[narrowest]
    return RunTimeForecast(
        narrowest,
        ran_ms,
        predicted,
        floor(predicted * low),
        round(predicted * middle),
        ceil(predicted * high),
        kind in past and past[kind].is_enough,
        said.is_outlasted,
    )


def factors(source: Source, stage: Stage, past: Past) -> Factors:
    """Quantiles of the past ratios; assumed ones while these are too few."""
    known = past.get((source, stage))
    if known is not None and known.is_enough:
        return known.factors()
    assumed = ASSUMED_OUTLASTED if stage is Stage.OUTLASTED else ASSUMED[source]
    return 1 / assumed, 1.0, assumed


def is_due(ran_ms: int, last_ms: int | None) -> bool:
    """Whether another forecast is to be compared: as it starts, after a minute, after twice that, ..."""
    return last_ms is None or ran_ms >= max(MINUTE, 2 * last_ms)


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
