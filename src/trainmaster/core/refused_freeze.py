"""A freeze that was refused: the run still runs on its GPUs, which may have been promised to others.

A program that saves is halted instead, so that its suspension goes on. One that would lose its work keeps its
GPUs: starts that waited for them are revoked and planned again. It is not tried again at once, each time
later than before, and never where it was found unable for good; meanwhile the run is like any other that
cannot be frozen (core/last_resort.py).
"""

from __future__ import annotations

from trainmaster.core.lifecycle import Cause
from trainmaster.core.pending_launches import extend_launches, released
from trainmaster.core.state import JobRecord, State
from trainmaster.core.suspension import is_start_unsent, revoke_start
from trainmaster.model.actions import Halt
from trainmaster.model.placement import Placement
from trainmaster.model.reasons import Refused
from trainmaster.model.units import HOUR, MINUTE, NOMINAL

SHORTEST_PAUSE_MS, LONGEST_PAUSE_MS = MINUTE, HOUR
"""How long after a refused freeze none is tried again: the first time, doubled each time, and at most."""


def go_on_unfrozen(state: State, record: JobRecord, now: int, *, is_final: bool) -> None:
    """Halt the run where that loses nothing, or where its owner insists; else let it keep its GPUs."""
    placement = record.frozen
    assert placement is not None
    state.forget_frozen(record)
    pause = min(SHORTEST_PAUSE_MS << min(record.freeze_refusals, 10), LONGEST_PAUSE_MS)
    record.freeze_refusals += 1
    record.no_freeze_before_ms = now + pause
    record.cannot_freeze = record.cannot_freeze or is_final
    if is_to_go_on(record) and _can_keep_gpus(state, record, placement):
        _keep_gpus(state, record, placement, now)
    else:
        state.outbox.append(Halt(record.run))
        extend_launches(state, record, now)


def is_to_go_on(record: JobRecord) -> bool:
    """Whether it is better that its run goes on than that it is ended: its work would be lost."""
    return record.cannot_save and not (record.is_held and record.may_end)


def _can_keep_gpus(state: State, record: JobRecord, placement: Placement) -> bool:
    """Revoke every start that was to follow on its GPUs; False where a run was found there meanwhile.

    Its CPUs and host memory may have gone to starts on other GPUs of the node by now. They are over-booked
    then, until one of those jobs has ended: both run.
    """
    for other in _coming(state, placement):
        revoke_start(state, other)
    for job, held in list(state.reservations.items()):
        if not {piece.gpu for piece in held.slices}.isdisjoint(placement.gpus()):
            state.drop_reservation(job)
    why = state.occupancy.refusal(placement, record.demand, is_there=True)
    return why in (None, Refused.HOST_TAKEN)


def _keep_gpus(state: State, record: JobRecord, placement: Placement, now: int) -> None:
    """Undo the suspension."""
    released(state, record.run)
    state.restore(record, placement)
    if not record.is_unplanned:
        record.preemptions -= 1
    record.is_held = record.may_end = False
    record.suspend_ordered_ms = None
    state.move(record, Cause.NOT_FROZEN)
    record.run_since_ms = now if record.run_since_ms is None else record.run_since_ms
    record.progress(now, record.speed_ppm or NOMINAL)
    state.log.caches_stale = state.log.needs_pass = True


def _coming(state: State, placement: Placement) -> list[JobRecord]:
    """Jobs that are to start, or to go on after a move, on these GPUs."""
    gpus = set(placement.gpus())
    there = {
        other.seq: other for node in placement.nodes for other in state.residents[node].values()
    }
    return [
        other
        for other in there.values()
        if other.placement is not None
        and not gpus.isdisjoint(other.placement.gpus())
        and is_start_unsent(state, other)
    ]
