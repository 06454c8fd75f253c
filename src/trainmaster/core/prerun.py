"""Pre-runs: a job of several devices is tried on one first, and asks for no more until that has passed.

A pre-run is a run like any other: policies place it, and need not know. It is never frozen, and nothing of it
is kept: what ends it early costs its time alone.
"""

from __future__ import annotations

from trainmaster.core.next_attempt import check_avoidance
from trainmaster.core.state import JobRecord, State


def end_prerun(state: State, record: JobRecord) -> None:
    """Let a job that holds nothing ask for all its devices, if it has not yet."""
    if not record.is_prerun:
        return
    state.log.note_job(record)
    record.end_prerun(cannot_save=state.cannot_save_at_first)
    record.group = state.group_of(record.demand)
    check_avoidance(state, record)
    state.drop_reservation(record.id)
    state.log.note_job(record)
    state.log.requeued.append(record)
    state.log.caches_stale = state.log.needs_pass = True
