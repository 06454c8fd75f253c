"""How much memory a job is expected to need on each of its devices: an interval and its source."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trainmaster.model.units import NOMINAL


class MemorySource(Enum):
    """Where an estimate of memory comes from."""

    STATIC = "static"
    """Traced from the model with fake tensors, without a device."""
    MEASURED = "measured"
    """The job's own runs, its pre-run included; or one that has not succeeded, of the same arguments."""
    LEARNED = "learned"
    """Earlier jobs with the same program."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Peak bytes on each device, with all that the process holds there; its top is what is reserved."""

    low: int
    expected: int
    high: int
    source: MemorySource
    runs: int = 0
    """Learned: from so many earlier runs. Measured: 1 where it is passed on by another run, 0 for its own."""
    is_same: bool = False
    """Learned: they had the same arguments."""

    @property
    def is_own(self) -> bool:
        """Whether it is made from what was read of the job's own runs."""
        return self.source is MemorySource.MEASURED and not self.runs

    @property
    def is_passed_on(self) -> bool:
        """Whether it is made from what was read of another run that has not succeeded."""
        return self.source is MemorySource.MEASURED and self.runs > 0

    @property
    def width_ppm(self) -> int:
        """How far apart its ends are, relative to the lower one."""
        return (self.high - self.low) * NOMINAL // self.low

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.expected <= self.high:
            raise ValueError(f"not an interval of memory: {self.low}, {self.expected}, {self.high}")


@dataclass(frozen=True, slots=True)
class MemoryCalibration:
    """How good past estimates of the same origin were, made before their jobs had run."""

    source: MemorySource
    is_same: bool
    """Learned from runs with the same arguments."""
    estimates: int
    within: int
    """How many peaks were within the interval."""
    covered: int
    """How many were not above its top, which is what is reserved."""
    median_error: float
    """Median of |peak - expected| / peak."""
