"""Forecasts of how long a job still runs, and how good such forecasts were."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainmaster.model.codec import stored_as
from trainmaster.model.job import Source
from trainmaster.model.units import MINUTE


class Stage(StrEnum):
    """When a forecast is made: such forecasts are compared with each other."""

    START = "at the start"
    LATER = "later"
    OUTLASTED = "outlasted"
    """The run takes longer already than was predicted."""


def stage_at(ran_ms: int, *, is_outlasted: bool) -> Stage:
    if is_outlasted:
        return Stage.OUTLASTED
    return Stage.START if ran_ms < MINUTE else Stage.LATER


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
    is_outlasted: bool = False
    """Whether it had run for longer than its basis had said."""

    @property
    def stage(self) -> Stage:
        return stage_at(self.ran_ms, is_outlasted=self.is_outlasted)


@dataclass(frozen=True, slots=True)
class Calibration:
    """How good past forecasts on the same basis were."""

    basis: Source
    forecasts: int
    within: int
    """How many true ends were within the interval."""
    median_error: float
    """Median of |true - expected| / true remaining time."""
