"""A job's life as a table: from which phase, by which cause, into which phase."""

from __future__ import annotations

from enum import IntEnum

from trainmaster.model.codec import stored_as


@stored_as("core.Phase")
class Phase(IntEnum):
    PENDING = 0
    STARTING = 2
    """Launched, or about to be on GPUs that are still being released."""
    RUNNING = 3
    SUSPENDING = 4
    SUSPENDED = 5
    RESIZING = 6
    STOPPING = 7
    SUCCEEDED = 8
    FAILED = 9
    CANCELLED = 10
    HELD = 11
    """Not to be started until it is released: its owner suspended it, or it waits for another job."""


@stored_as("core.Cause")
class Cause(IntEnum):
    PASSED = 0
    """Its pre-run on one device passed: it waits for all of them."""
    START_ORDERED = 1
    STARTED = 2
    SUSPEND_ORDERED = 3
    SUSPENDED = 4
    """Its work is saved and its GPUs are free."""
    REVOKED = 5
    """A start that had not reached the engine was taken back, work saved earlier."""
    REVOKED_UNSTARTED = 6
    RESIZE_ORDERED = 7
    RESIZED = 8
    STOP_ORDERED = 9
    STOPPED = 10
    SUCCEEDED = 11
    FAILED_FOR_GOOD = 12
    RETRIED = 13
    """Failed or lost, and to be tried again."""
    WITHDRAWN = 14
    """Cancelled while it held nothing."""
    HELD = 15
    RELEASED = 16
    """No longer held, after it has been started before."""
    RELEASED_UNSTARTED = 17
    NOT_FROZEN = 18
    """It was to be frozen, could not be, and keeps its GPUs."""


P, C = Phase, Cause

RUN_EDGES: dict[Cause, Phase] = {
    C.STOP_ORDERED: P.STOPPING,
    C.SUCCEEDED: P.SUCCEEDED,
    C.FAILED_FOR_GOOD: P.FAILED,
    C.RETRIED: P.PENDING,
    C.PASSED: P.PENDING,
    C.STOPPED: P.CANCELLED,
}
"""What may happen wherever a run of the job may be alive."""
EDGES: dict[Phase, dict[Cause, Phase]] = {
    P.PENDING: {
        C.START_ORDERED: P.STARTING,
        C.WITHDRAWN: P.CANCELLED,
        C.HELD: P.HELD,
    },
    P.STARTING: RUN_EDGES
    | {
        C.STARTED: P.RUNNING,
        C.SUSPEND_ORDERED: P.SUSPENDING,
        C.REVOKED: P.SUSPENDED,
        C.REVOKED_UNSTARTED: P.PENDING,
        C.WITHDRAWN: P.CANCELLED,
    },
    P.RUNNING: RUN_EDGES | {C.SUSPEND_ORDERED: P.SUSPENDING, C.RESIZE_ORDERED: P.RESIZING},
    P.SUSPENDING: RUN_EDGES | {C.SUSPENDED: P.SUSPENDED, C.NOT_FROZEN: P.RUNNING},
    P.SUSPENDED: RUN_EDGES
    | {C.START_ORDERED: P.STARTING, C.WITHDRAWN: P.CANCELLED, C.HELD: P.HELD},
    P.HELD: RUN_EDGES
    | {
        C.RELEASED: P.SUSPENDED,
        C.RELEASED_UNSTARTED: P.PENDING,
        C.WITHDRAWN: P.CANCELLED,
        C.RETRIED: P.HELD,
        C.PASSED: P.HELD,
    },
    P.RESIZING: RUN_EDGES | {C.RESIZED: P.RUNNING, C.SUSPEND_ORDERED: P.SUSPENDING},
    P.STOPPING: {
        C.STOPPED: P.CANCELLED,
        C.SUCCEEDED: P.SUCCEEDED,
        C.FAILED_FOR_GOOD: P.CANCELLED,
        C.RETRIED: P.CANCELLED,
        C.PASSED: P.CANCELLED,
        C.SUSPENDED: P.CANCELLED,
    },
    P.SUCCEEDED: {},
    P.FAILED: {},
    P.CANCELLED: {},
}

ENDED = frozenset({P.SUCCEEDED, P.FAILED, P.CANCELLED})
HIDDEN_PHASES = ENDED | {P.HELD}
"""Phases in which policies do not see a job."""
WAITING = frozenset({P.PENDING, P.SUSPENDED})
ALLOCATED = frozenset({P.STARTING, P.RUNNING, P.RESIZING})
"""Phases in which a policy may count a job's GPUs as its own, and take them away."""


class LifecycleError(Exception):
    """An edge that the table does not have: a fault of ours, never of a user."""
