"""A freeze that was refused: the run still runs on its GPUs, which may have been promised to others.

A program that saves is halted instead, so that its suspension goes on. One that would lose its work keeps its
GPUs: starts that waited for them are revoked and planned again, and a run that was beside it and had them
for itself since shares them again. A freeze is not tried again at once, each time later than before, and
never where the run was found unable for good; meanwhile it is like any other that cannot be frozen
(core/last_resort.py).
"""

from __future__ import annotations

from trainmaster.core.lifecycle import Cause
from trainmaster.core.pending_launches import extend_launches, released
from trainmaster.core.rebinding import rebind
from trainmaster.core.shared_again import shared_again
from trainmaster.core.state import JobRecord, State
from trainmaster.core.suspension import is_start_unsent, revoke_start
from trainmaster.model.actions import Halt
from trainmaster.model.placement import Placement, Sharing
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
    if is_to_go_on(record):
        _give_gpus_back(state, record, placement, now)
        _go_on(state, record, now)
    else:
        state.outbox.append(Halt(record.run))
        extend_launches(state, record, now)


def is_to_go_on(record: JobRecord) -> bool:
    """Whether it is better that its run goes on than that it is ended: its work would be lost."""
    return record.cannot_save and not (record.is_held and record.may_end)


def _give_gpus_back(state: State, record: JobRecord, placement: Placement, now: int) -> None:
    """Give it its GPUs again, whatever others have of them by now.

    Every start that was to follow there is revoked. Runs that were beside it, and have its part since it was
    to leave, share with it again. Memory and CPUs may have gone to others by now: they are over-booked then,
    until one of those jobs has ended, since all of them run.
    """
    for other in _coming(state, placement):
        revoke_start(state, other)
    for job, held in list(state.reservations.items()):
        if not {piece.gpu for piece in held.slices}.isdisjoint(placement.gpus()):
            state.drop_reservation(job)
    before = {record.seq: (record, placement), **_running(state, placement)}
    after = shared_again(state.topology, before)
    released(state, record.run)
    changed = [seq for seq, (_, old) in before.items() if after[seq] != old]
    for seq in changed:
        if seq != record.seq:
            state.deallocate(before[seq][0])
    for seq in {record.seq, *changed}:
        state.restore(before[seq][0], after[seq])
    for seq in changed:
        other, old = before[seq]
        if after[seq].sharing is Sharing.MPS and old.sharing is not Sharing.MPS:
            other.is_without_mps = True
        rebind(state, other, old, now)


def _running(state: State, placement: Placement) -> dict[int, tuple[JobRecord, Placement]]:
    """By seq: the jobs that run on these GPUs, and where."""
    gpus = set(placement.gpus())
    return {
        other.seq: (other, other.placement)
        for node in placement.nodes
        for other in state.residents[node].values()
        if other.placement is not None and not gpus.isdisjoint(other.placement.gpus())
    }


def _go_on(state: State, record: JobRecord, now: int) -> None:
    """Undo its suspension."""
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
