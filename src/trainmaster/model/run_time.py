"""Forecasts of how long a job still runs, and how good such forecasts were."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.model.codec import stored_as
from trainmaster.model.job import Source


@stored_as("run_time.Forecast")
@dataclass(frozen=True, slots=True)
class RunTimeForecast:
    """How long a job still runs, as was said when it had run for `ran_ms`."""

    basis: Source
    ran_ms: int
    predicted_ms: int
    """What the basis says, before it is corrected by how such predictions came true."""
    low_ms: int
    expected_ms: int
    high_ms: int
    is_calibrated: bool
    """Whether the interval comes from past forecasts; otherwise it is an assumed one."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """How good past forecasts on the same basis were."""

    basis: Source
    forecasts: int
    within: int
    """How many true ends were within the interval."""
    median_error: float
    """Median of |true - expected| / true remaining time."""
