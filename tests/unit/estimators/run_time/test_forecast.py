"""Run time: predictions, the one that counts, and intervals that hold what they promise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest

from trainmaster.estimators.run_time import past_forecasts
from trainmaster.estimators.run_time.forecast import (
    ASSUMED_OUTLASTED,
    Prediction,
    calibration,
    from_runs,
    is_due,
    prediction,
    run_time_forecast,
)
from trainmaster.estimators.run_time.past_forecasts import (
    ENOUGH,
    MOST_OUTSIDE,
    OUTSIDE,
    PastForecasts,
)
from trainmaster.estimators.run_time.past_runs import PastRuns
from trainmaster.model import codec
from trainmaster.model.job import Source
from trainmaster.model.program_key import ProgramKey
from trainmaster.model.run_time import RunTimeForecast, Stage
from trainmaster.model.units import HOUR, MINUTE, SECOND

STEPS, RUNS = Source.STEPS, Source.RUNS


def a_forecast(basis: Source, ran_ms: int, low_ms: int, middle: int, high: int) -> RunTimeForecast:
    return RunTimeForecast(basis, ran_ms, middle, low_ms, middle, high, is_calibrated=True)


def past(*ratios: float) -> PastForecasts:
    """Forecasts with an assumed interval, of which so much came true."""
    known = PastForecasts()
    for ratio in ratios:
        known.learn([RunTimeForecast(RUNS, 0, HOUR, 0, HOUR, 0, False)], round(HOUR * ratio))
    return known


def test_of_earlier_runs_only_the_longer_ones_count() -> None:
    assert from_runs(RUNS, [10, 20, 60], 0) == Prediction(20)
    assert from_runs(RUNS, [10, 20, 60], 15) == Prediction(25)
    assert from_runs(RUNS, [], 0) is None


def test_a_run_that_has_outlasted_them_all_takes_as_long_again() -> None:
    assert from_runs(RUNS, [10, 20, 60], 60) == Prediction(60, is_outlasted=True)
    assert from_runs(RUNS, [10, 20, 60], 90) == Prediction(90, is_outlasted=True)


def test_a_run_that_has_made_its_steps_takes_a_tenth_more() -> None:
    assert prediction(STEPS, HOUR, HOUR) == Prediction(HOUR)
    assert prediction(STEPS, 0, HOUR) == Prediction(HOUR // 10, is_outlasted=True)


def test_the_interval_of_an_outlasted_prediction_comes_from_others() -> None:
    said = {RUNS: Prediction(HOUR, is_outlasted=True)}
    alike = {(RUNS, Stage.LATER): past(*[1.0] * ENOUGH)}
    found = run_time_forecast(said, HOUR, alike)
    assert found is not None
    assert (found.low_ms, found.high_ms) == (HOUR // 10, HOUR * round(ASSUMED_OUTLASTED))
    assert (found.is_calibrated, found.stage) == (False, Stage.OUTLASTED)
    found = run_time_forecast(said, HOUR, {(RUNS, Stage.OUTLASTED): past(*[0.5] * ENOUGH)})
    assert found is not None
    assert (found.expected_ms, found.is_calibrated) == (HOUR // 2, True)


def test_without_past_forecasts_an_assumed_width_is_said_to_be_one() -> None:
    few = {(STEPS, Stage.LATER): past(*[3.0] * (ENOUGH - 1))}
    found = run_time_forecast({STEPS: Prediction(HOUR)}, MINUTE, few)
    assert found is not None
    assert (found.low_ms, found.expected_ms, found.high_ms) == (HOUR * 4 // 5, HOUR, HOUR * 5 // 4)
    assert not found.is_calibrated
    assert run_time_forecast({}, MINUTE, {}) is None


def test_many_forecasts_of_few_jobs_say_little() -> None:
    """A job of four hours is forecast nine times while it runs, and each says the same of it."""
    key, past_runs = ProgramKey("ann", "/w", ("./train",)), PastRuns()
    later = [
        RunTimeForecast(RUNS, MINUTE << each, HOUR, 0, HOUR, 0, is_calibrated=False)
        for each in range(ENOUGH)
    ]
    at_start = replace(later[0], ran_ms=0)
    for _ in range(ENOUGH - 1):
        past_runs.learn(key, 1, 4 * HOUR, forecasts=[at_start, *later])
    for ran_ms in (0, MINUTE):
        found = past_runs.forecast({RUNS: Prediction(HOUR)}, ran_ms)
        assert found is not None
        assert not found.is_calibrated
    past_runs.learn(key, 1, 4 * HOUR, forecasts=later)
    found = past_runs.forecast({RUNS: Prediction(HOUR)}, MINUTE)
    assert found is not None
    assert found.is_calibrated
    found = past_runs.forecast({RUNS: Prediction(HOUR)}, 0)
    assert found is not None
    assert not found.is_calibrated  # no forecast at the start was made of the last one


def test_bounds_are_quantiles_of_past_forecasts_and_the_expected_time_is_their_median() -> None:
    ratios = [0.5 + each / 10 for each in range(ENOUGH)]
    found = run_time_forecast({STEPS: Prediction(HOUR)}, 0, {(STEPS, Stage.START): past(*ratios)})
    assert found is not None
    assert found.is_calibrated
    assert (found.predicted_ms, found.low_ms) == (HOUR, HOUR // 2)
    assert (found.expected_ms, found.high_ms) == (round(HOUR * 0.9), round(HOUR * 1.3))


@pytest.mark.parametrize("ratios", [[2.0] * ENOUGH, [0.2] * ENOUGH, [0.1, 5.0] * ENOUGH])
def test_the_expected_time_is_within_its_interval(ratios: list[float]) -> None:
    found = run_time_forecast({STEPS: Prediction(HOUR)}, 0, {(STEPS, Stage.START): past(*ratios)})
    assert found is not None
    assert found.low_ms <= found.expected_ms <= found.high_ms


def test_of_several_predictions_the_narrowest_counts() -> None:
    predictions = {RUNS: Prediction(2 * HOUR), STEPS: Prediction(HOUR)}
    found = run_time_forecast(predictions, 0, {})
    assert found is not None
    assert found.basis is STEPS
    found = run_time_forecast(
        predictions,
        0,
        {
            (STEPS, Stage.START): past(*[0.3, 3.0] * 20),
            (RUNS, Stage.START): past(*[0.9, 1.1] * 20),
        },
    )
    assert found is not None
    assert (found.basis, found.predicted_ms) == (RUNS, 2 * HOUR)


def test_forecasts_are_due_ever_more_seldom() -> None:
    recorded: list[int] = []
    for ran_s in range(0, 600, 10):
        if is_due(ran_s * SECOND, recorded[-1] * SECOND if recorded else None):
            recorded.append(ran_s)
    assert recorded == [0, 60, 120, 240, 480]


def within_of(truths: Iterable[float], judged: int) -> int:
    """Of the last ones: how many were within the interval that was made from those before."""
    known, later = past(), list[tuple[int, list[RunTimeForecast]]]()
    for truth in truths:
        found = run_time_forecast({RUNS: Prediction(HOUR)}, 0, {(RUNS, Stage.START): known})
        assert found is not None
        known.learn([found], round(HOUR * truth))
        later.append((round(HOUR * truth), [found]))
    (row,) = calibration(later[-judged:])
    assert row.forecasts == judged
    return row.within


@pytest.mark.parametrize("spread", [0.05, 0.7])
def test_eight_of_ten_later_truths_are_within_the_interval(spread: float) -> None:
    """A source whose error is lognormal and biased, of which the estimator knows nothing."""
    random = Random(7)
    truths = [1.3 * random.lognormvariate(0, spread) for _ in range(1_200)]
    assert 760 <= within_of(truths, 1_000) <= 850


def test_the_interval_widens_where_jobs_drift_away_from_the_past() -> None:
    random = Random(7)
    truths = [1.003**at * random.lognormvariate(0, 0.5) for at in range(1_200)]
    assert 760 <= within_of(truths, 1_000) <= 850


def test_a_burst_of_equal_ends_does_not_push_out_what_else_is_known() -> None:
    """A hundred jobs of an array end together, each in a hundredth of its predicted time."""
    random = Random(7)
    known = past(*(random.lognormvariate(0, 0.5) for _ in range(2_000)))
    before = known.factors()
    for _ in range(100):
        known.learn([RunTimeForecast(RUNS, 0, HOUR, 0, HOUR, 0, False)], HOUR // 100)
    low, _, high = known.factors()
    assert before[0] / 1.5 < low < before[0]
    assert high == pytest.approx(before[2], rel=0.1)


def test_only_intervals_from_the_past_are_adapted_and_within_bounds() -> None:
    known = PastForecasts()
    assumed = replace(a_forecast(RUNS, 0, 1, 2, 3), is_calibrated=False)
    known.learn([assumed], HOUR)
    assert (known.outside, known.judged) == (OUTSIDE, 0)
    for _ in range(10):
        known.learn([a_forecast(RUNS, 0, 1, 2, 3)], HOUR)
    assert known.outside < OUTSIDE
    for _ in range(2_000):
        known.learn([a_forecast(RUNS, 0, 1, 2, 3 * HOUR)], HOUR)
    assert known.outside == MOST_OUTSIDE


def test_the_oldest_ratios_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_forecasts, "MOST_RATIOS", 20)
    known = past(*[5.0] * 15, *[1.0] * 20)
    assert known.factors() == (1.0, 1.0, 1.0)


def test_calibration_counts_by_basis() -> None:
    rows = calibration(
        [
            (100_000, [a_forecast(RUNS, 0, 50_000, 80_000, 99_000)]),
            (100_000, [a_forecast(STEPS, 50_000, 40_000, 50_000, 60_000)]),
            (100_000, [a_forecast(STEPS, 75_000, 20_000, 25_000, 30_000)]),
        ]
    )
    assert [(row.basis, row.forecasts, row.within) for row in rows] == [(STEPS, 2, 2), (RUNS, 1, 0)]
    assert rows[1].median_error == pytest.approx(0.2)


def test_a_forecast_is_stored() -> None:
    stored = a_forecast(STEPS, 1, 2, 3, 4)
    assert codec.decode(codec.encode(stored)) == stored
