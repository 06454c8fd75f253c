"""Jobs that are not to run for now: taken off their GPUs, hidden from policies, and let in again.

Others decide why: an owner suspended it, another job must end first, an array has a limit.
"""

from __future__ import annotations

from trainmaster.core.lifecycle import ALLOCATED, ENDED, WAITING, Cause, Phase
from trainmaster.core.pending_launches import revoke_launch
from trainmaster.core.state import JobRecord, State
from trainmaster.core.suspension import suspend


def hold(state: State, record: JobRecord, now: int) -> None:
    """It is not to run until it is released; what runs of it is suspended first."""
    if record.is_held or record.phase in ENDED or record.phase is Phase.STOPPING:
        return
    record.is_held = True
    if record.phase in ALLOCATED:
        suspend(state, record, now)
        record.is_unplanned = True
    elif record.is_moving and record.placement is not None:
        revoke_start(state, record)
    hold_if_waiting(state, record)
    state.log.note_job(record)
    state.log.needs_pass = True


def hold_if_waiting(state: State, record: JobRecord) -> None:
    """A job that is to be held is so once it is off its GPUs. It no longer lives among others then."""
    if record.is_held and record.phase in WAITING:
        state.drop_reservation(record.id)
        record.job_time_before -= state.job_time_integral
        state.move(record, Cause.HELD)


def release(state: State, record: JobRecord, now: int) -> None:
    """It may be started from now on, and waits since now."""
    if not record.is_held:
        return
    record.is_held = False
    if record.phase is not Phase.HELD:
        return
    was_started = record.first_start_ms is not None
    state.move(record, Cause.RELEASED if was_started else Cause.RELEASED_UNSTARTED)
    record.job_time_before += state.job_time_integral
    record.waiting_since_ms = now
    state.log.requeued.append(record)
    state.log.needs_pass = True


def revoke_start(state: State, record: JobRecord) -> None:
    """Take a start back that is not sent yet; a job that is still moving is suspended when it arrives."""
    if record.phase is Phase.STARTING:
        revoke_launch(state, record)
        return
    state.pending_launches.pop(record.id, None)
    state.deallocate(record)
    record.is_moving = False
