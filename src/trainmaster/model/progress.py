"""Reports of how far a run has come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """One report of a run's progress."""

    step: int
    """Steps (iterations) done since the beginning of the job."""
    loss_ppm: int
    """Training loss in millionths."""
    gpus: int
    """How many GPUs it ran on."""
    speed_ppm: int
    """Its speed since the last report, in parts per million of the nominal one."""
    epoch_steps: int = 1
    """Steps in one pass over its training set."""
    work: int = 0
    """Work done by then: ms x parts per million."""
