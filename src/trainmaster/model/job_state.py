"""The states of a job as users and stores name them, in the order of a job's life.

The standard library only: the command line reads them before anything else is loaded.
"""

from __future__ import annotations

from enum import StrEnum, auto


class JobState(StrEnum):
    """What users see. The phases of the controller (`core/lifecycle.py`) are finer: what is on its way from
    one state to the next is a `Transition` beside the state."""

    PENDING = auto()
    RUNNING = auto()
    SUSPENDED = auto()
    """It has run and is off its GPUs, to continue later."""
    SUCCEEDED = auto()
    FAILED = auto()
    TIMED_OUT = auto()
    CANCELLED = auto()

    @property
    def label(self) -> str:
        """For people: `timed out`."""
        return self.value.replace("_", " ")


class Transition(StrEnum):
    """What is happening to a job right now, beside its state."""

    STARTING = auto()
    SUSPENDING = auto()
    RESIZING = auto()
    STOPPING = auto()


ENDED_STATES = (JobState.SUCCEEDED, JobState.FAILED, JobState.TIMED_OUT, JobState.CANCELLED)
LIVE_STATES = tuple(state for state in JobState if state not in ENDED_STATES)
WAITING_STATES = (JobState.PENDING, JobState.SUSPENDED)
