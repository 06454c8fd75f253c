"""The states of a job as users and stores name them, in the order of a job's life.

The standard library only: the command line reads them before anything else is loaded.
"""

from __future__ import annotations

from enum import StrEnum, auto


class JobState(StrEnum):
    """One for each phase of the controller's life cycle (`core/lifecycle.py`), by the same name."""

    PENDING = auto()
    HELD = auto()
    PREFLIGHT = auto()
    STARTING = auto()
    RUNNING = auto()
    SUSPENDING = auto()
    SUSPENDED = auto()
    RESIZING = auto()
    STOPPING = auto()
    SUCCEEDED = auto()
    FAILED = auto()
    CANCELLED = auto()


ENDED_STATES = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)
LIVE_STATES = tuple(state for state in JobState if state not in ENDED_STATES)
WAITING_STATES = (JobState.PENDING, JobState.HELD, JobState.SUSPENDED)
