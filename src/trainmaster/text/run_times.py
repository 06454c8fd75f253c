"""Forecasts of run time, in words."""

from __future__ import annotations

from trainmaster.model.job import Source
from trainmaster.model.run_time import RunTimeForecast
from trainmaster.text.formatting import length

BASES = {
    Source.STEPS: "its steps",
    Source.TRACE: "its trace",
    Source.PROFILE: "the steps of an earlier run of the same program",
    Source.LOSS: "its loss curve",
    Source.RUNS: "earlier runs of the same program with the same arguments",
    Source.PROGRAM: "earlier runs of the same program with other arguments",
}
"""What an estimate or a forecast is made from."""


def run_time_sentence(forecast: RunTimeForecast, *, is_running: bool) -> str:
    """`It is expected to end in 2 h 10 min (1 h 50 min to 3 h), judging by its steps.`"""
    low, middle, high = map(length, (forecast.low_ms, forecast.expected_ms, forecast.high_ms))
    what = f"to end in {middle}" if is_running else f"to run for {middle} more once it starts"
    width = "" if forecast.is_calibrated else "; an assumed range, until more runs have ended"
    return f"It is expected {what} ({low} to {high}{width}), judging by {BASES[forecast.basis]}."
