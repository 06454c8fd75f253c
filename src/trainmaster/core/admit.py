"""Checks a plan against the state, applies what holds, and refuses the rest with a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainmaster.core.lifecycle import HOLDING, WAITING, Cause, Phase
from trainmaster.core.promises import begin_release, launch, revoke
from trainmaster.core.reduce import stop
from trainmaster.core.state import FROZEN_GPU_MEMORY, JobRecord, State
from trainmaster.model import actions as a
from trainmaster.model.placement import Placement, Role, Sharing
from trainmaster.model.plan import Plan
from trainmaster.model.reasons import Refusal, Refused


def admit(plan: Plan, state: State, now: int) -> list[Refusal]:
    """Apply the plan's actions one by one; its migrations together, so that jobs can swap places."""
    refusals: list[Refusal] = []
    has_moved = False
    for action in plan.actions:
        if type(action) is a.Migrate:
            if not has_moved:
                moves = [move for move in plan.actions if type(move) is a.Migrate]
                refusals += _migrate_all(state, moves, now)
                has_moved = True
            continue
        record = state.jobs.get(action.job)
        if record is None:
            refusals.append(Refusal(action.job, Refused.UNKNOWN_JOB))
            continue
        why = ADMISSIONS[type(action)](state, record, action, now)
        if why is not None:
            refusals.append(Refusal(action.job, why, type(action).__name__))
    return refusals


def _start(state: State, record: JobRecord, action: a.Start | a.Resume, now: int) -> Refused | None:
    if record.phase not in WAITING:
        return Refused.WRONG_PHASE
    placement = action.placement
    why = shape_refusal(record, placement)
    held = state.reservations.get(record.id)
    if held is not None:
        state.drop_reservation(record.id)
    why = why or state.occupancy.refusal(placement, record.demand)
    if why is not None:
        return why
    state.entitle(record, placement)
    state.move(record, Cause.START_ORDERED)
    launch(state, record, now)
    return None


def shape_refusal(record: JobRecord, placement: Placement) -> Refused | None:
    """Whether these slices are one of the job's admissible shapes."""
    demand = record.demand
    count = len(placement.slices)
    if placement.sharing is not demand.mode and placement.sharing is not Sharing.TIME:
        return Refused.NOT_ADMISSIBLE
    for split in demand.splits:
        if len(split.parts) == count and all(
            piece.share >= part.share and piece.memory >= part.memory
            for piece, part in zip(placement.slices, split.parts, strict=True)
        ):
            return None
    if not demand.min_count <= count <= demand.max_count:
        return Refused.NOT_ADMISSIBLE
    share, memory = demand.nominal.share, demand.nominal.memory
    for piece in placement.slices:
        if piece.share < share or piece.memory < memory:
            return Refused.NOT_ADMISSIBLE
    return None


def _suspend(state: State, record: JobRecord, action: a.Suspend, now: int) -> Refused | None:
    if record.phase not in HOLDING:
        return Refused.WRONG_PHASE
    if record.phase is Phase.STARTING and record.id in state.promises and record.frozen is None:
        revoke(state, record)
        return None
    placement = record.placement
    assert placement is not None
    record.preemptions += 1
    freeze = _can_freeze(state, record)
    state.disentitle(record)
    _tell_to_leave(state, record, placement, now, freeze=freeze)
    return None


def _tell_to_leave(
    state: State, record: JobRecord, placement: Placement, now: int, *, freeze: bool
) -> None:
    """Order a run off its GPUs, frozen in place or saved and ended."""
    record.accrue(now)
    record.suspend_ordered_ms = now
    begin_release(state, record.run, placement.slices)
    if freeze:
        state.freeze_residue(record, placement)
        state.outbox.append(a.Freeze(record.run))
    else:
        state.outbox.append(a.Halt(record.run))
    state.move(record, Cause.SUSPEND_ORDERED)


def _can_freeze(state: State, record: JobRecord) -> bool:
    """Exclusive runs can be frozen in place while their node has host memory for them."""
    placement = record.placement
    assert placement is not None
    if not state.can_freeze or placement.sharing is not Sharing.EXCLUSIVE:
        return False
    if record.phase is not Phase.RUNNING:
        return False
    host = state.frozen_host(record, placement)
    room = state.occupancy
    return all(
        room.free_host[node] >= host * sum(piece.node == node for piece in placement.slices)
        for node in placement.nodes
    ) and all(room.free_memory[gpu] >= FROZEN_GPU_MEMORY for gpu in placement.gpus())


def _migrate_all(state: State, moves: list[a.Migrate], now: int) -> list[Refusal]:
    """All moves of a plan or none: each may need GPUs that another one gives up."""
    going: list[tuple[JobRecord, Placement, Placement]] = []
    refusals: list[Refusal] = []
    for move in moves:
        record = state.jobs.get(move.job)
        if record is None or record.phase not in (Phase.RUNNING, Phase.STARTING):
            why = Refused.UNKNOWN_JOB if record is None else Refused.WRONG_PHASE
            refusals.append(Refusal(move.job, why, "Migrate"))
            continue
        why_not = shape_refusal(record, move.placement)
        if why_not is not None:
            refusals.append(Refusal(move.job, why_not, "Migrate"))
            continue
        going.append((record, state.disentitle(record), move.placement))
    blocked = _book_moves(state, going)
    if blocked is not None:
        return [*refusals, *(Refusal(record.id, blocked, "Migrate") for record, _, _ in going)]
    for record, old, _ in going:
        _send_moving(state, record, old, now)
    return refusals


def _book_moves(
    state: State, going: list[tuple[JobRecord, Placement, Placement]]
) -> Refused | None:
    """Book every new placement; where one does not hold, take all back and say why."""
    for done, (record, _, new) in enumerate(going):
        why = state.occupancy.refusal(new, record.demand)
        if why is not None:
            for mover, _, _ in going[:done]:
                state.disentitle(mover)
            for mover, old, _ in going:
                state.entitle(mover, old)
            return why
        state.entitle(record, new)
    return None


def _send_moving(state: State, record: JobRecord, old: Placement, now: int) -> None:
    if record.phase is Phase.STARTING and record.id in state.promises and record.frozen is None:
        del state.promises[record.id]
        launch(state, record, now)
        return
    record.migrations += 1
    record.is_moving = True
    _tell_to_leave(state, record, old, now, freeze=False)


def _resize(state: State, record: JobRecord, action: a.Resize, now: int) -> Refused | None:
    if record.phase is not Phase.RUNNING:
        return Refused.WRONG_PHASE
    old, new = record.placement, action.placement
    assert old is not None
    why = shape_refusal(record, new)
    kept = {piece.gpu for piece in new.slices}
    if why is not None or any(gpu in state.releasing for gpu in kept):
        return why or Refused.GPU_TAKEN
    record.accrue(now)
    state.disentitle(record)
    why = state.occupancy.refusal(new, record.demand)
    state.entitle(record, old if why is not None else new)
    if why is not None:
        record.progress(now, record.speed_ppm)
        return why
    left = tuple(piece for piece in old.slices if piece.gpu not in kept)
    if left:
        begin_release(state, record.run, left)
    state.move(record, Cause.RESIZE_ORDERED)
    state.outbox.append(a.Reshape(record.run, new))
    return None


def _stop(state: State, record: JobRecord, action: a.Stop, now: int) -> Refused | None:
    stop(state, record, now)
    return None


def _reserve(state: State, record: JobRecord, action: a.Reserve, now: int) -> Refused | None:
    if record.phase not in WAITING:
        return Refused.WRONG_PHASE
    state.drop_reservation(record.id)
    whole = Placement(action.slices, 0, Sharing.EXCLUSIVE, Role.GUARANTEED)
    why = state.occupancy.refusal(whole, record.demand)
    if why is not None:
        return why
    state.occupancy.withhold(action.slices)
    state.reservations[record.id] = action
    return None


def _release(state: State, record: JobRecord, action: a.Release, now: int) -> Refused | None:
    state.drop_reservation(record.id)
    return None


ADMISSIONS: dict[type, Callable[[State, JobRecord, Any, int], Refused | None]] = {
    a.Start: _start,
    a.Resume: _start,
    a.Suspend: _suspend,
    a.Resize: _resize,
    a.Stop: _stop,
    a.Reserve: _reserve,
    a.Release: _release,
}
