"""Holds: jobs that are not to run, hidden from policies until they are released.

Others decide why: its owner suspended it, another job must end first, an array has a limit. One that runs is
suspended first. A job whose retry is delayed is hidden likewise, until its time has come.
"""

from __future__ import annotations

from trainmaster.core.lifecycle import ALLOCATED, ENDED, WAITING, Cause, Phase
from trainmaster.core.state import JobRecord, State
from trainmaster.core.suspension import revoke_start, suspend


def hold(
    state: State, record: JobRecord, now: int, *, may_end: bool = False, ends: bool = False
) -> None:
    """Keep a job from running until it is released; if it runs, it is suspended first."""
    if record.is_held or record.phase in ENDED or record.phase is Phase.STOPPING:
        return
    record.is_held, record.may_end = True, may_end
    if record.phase in ALLOCATED:
        suspend(state, record, now, ends=ends)
        record.is_unplanned = True
    elif record.is_moving and record.placement is not None:
        revoke_start(state, record)
    hold_if_waiting(state, record)
    state.log.note_job(record)
    state.log.needs_pass = True


def hold_if_waiting(state: State, record: JobRecord) -> None:
    """Move a held job to HELD once it has released its GPUs. It then no longer counts as an active job."""
    if not record.may_start and record.phase in WAITING:
        state.drop_reservation(record.id)
        record.job_time_before -= state.job_time_integral
        state.move(record, Cause.HELD)


def release(state: State, record: JobRecord, now: int) -> None:
    """End a hold: the job may be started from now on, and its waiting time begins now."""
    if not record.is_held:
        return
    record.is_held = False
    show(state, record, now)


def delay_retry(state: State, record: JobRecord, until_ms: int) -> None:
    """Keep a job that failed or was lost from being tried again before then."""
    record.retry_at_ms = until_ms
    hold_if_waiting(state, record)
    state.delayed[record.id] = record


def end_delays(state: State, now: int) -> None:
    """Let jobs be tried again whose time has come."""
    for record in list(state.delayed.values()):
        if record.retry_at_ms is not None and record.retry_at_ms <= now:
            del state.delayed[record.id]
            record.retry_at_ms = None
            _show(state, record, Cause.RELEASED_UNSTARTED, now)


def show(state: State, record: JobRecord, now: int) -> None:
    """Let policies see a job again that waits, if nothing else hides it."""
    _show(state, record, Cause.RELEASED if record.was_started else Cause.RELEASED_UNSTARTED, now)


def _show(state: State, record: JobRecord, cause: Cause, now: int) -> None:
    """Let policies see a job again, if nothing else hides it."""
    if record.phase is not Phase.HELD or not record.may_start:
        return
    state.move(record, cause)
    record.job_time_before += state.job_time_integral
    record.waiting_since_ms = now
    state.log.requeued.append(record)
    state.log.needs_pass = True
