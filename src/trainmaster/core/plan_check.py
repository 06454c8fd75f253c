"""Checks a plan against the state, applies what holds, and refuses the rest with a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from trainmaster.core.freeze_check import NOTHING_PLANNED, PlannedMemory
from trainmaster.core.last_resort import runs_to_protect
from trainmaster.core.lifecycle import ALLOCATED, WAITING, Cause, Phase
from trainmaster.core.pending_launches import begin_release, launch
from trainmaster.core.plan_rules import (
    avoidance_refusal,
    ending_refusal,
    kept_free_refusal,
    shape_refusal,
)
from trainmaster.core.quota_gate import over_quota
from trainmaster.core.rebinding import rebind
from trainmaster.core.reducer import stop
from trainmaster.core.state import JobRecord, State, can_rebind, is_in_place
from trainmaster.core.suspension import order_suspension, suspend
from trainmaster.model import actions as a
from trainmaster.model.placement import Placement, Role, Sharing
from trainmaster.model.plan import Plan
from trainmaster.model.reasons import Refusal, Refused
from trainmaster.model.topology import Topology


def admit(plan: Plan, state: State, now: int, *, is_requested: bool = False) -> list[Refusal]:
    """Apply the plan's actions one by one; its migrations together, so that jobs can swap places.

    What users request is done even where it loses work: they were told.
    """
    refusals: list[Refusal] = []
    has_moved = False
    planned = PlannedMemory.of(plan, state) if state.can_freeze else NOTHING_PLANNED
    protected: dict[str, Refused] = {}
    if not is_requested:
        runs = runs_to_protect(plan, state, now, planned)
        protected = {run.record.id: run.why for run in runs}
    for action in plan.actions:
        if type(action) is a.Migrate:
            if not has_moved:
                moves = [move for move in plan.actions if type(move) is a.Migrate]
                refusals += _migrate_all(state, moves, now, is_requested=is_requested)
                has_moved = True
            continue
        record = state.jobs.get(action.job)
        if record is None:
            refusals.append(Refusal(action.job, Refused.UNKNOWN_JOB))
            continue
        why = protected.get(action.job)
        if type(action) is a.Suspend:
            why = why or _suspend(state, record, now, planned)
        elif type(action) is a.Resize:
            why = _resize(state, record, action, now, is_requested=is_requested)
        elif type(action) is a.Stop:
            why = None if is_requested else _stop_refusal(state, record)
            if why is None:
                stop(state, record, now)
        else:
            why = ADMISSIONS[type(action)](state, record, action, now)
        if why is not None:
            refusals.append(Refusal(action.job, why, type(action).__name__))
    return refusals


def without_nonsense(plan: Plan, topology: Topology) -> tuple[Plan, list[Refusal]]:
    """The plan without actions on anything but GPUs of the cluster, each once; those are refused."""
    refused = [each for each in plan.actions if not _is_on_gpus(each, topology)]
    if not refused:
        return plan, []
    kept = tuple(each for each in plan.actions if each not in refused)
    why = Refused.NOT_ADMISSIBLE
    return replace(plan, actions=kept), [
        Refusal(each.job, why, type(each).__name__) for each in refused
    ]


def _is_on_gpus(action: a.Action, topology: Topology) -> bool:
    if isinstance(action, a.Reserve):
        slices = action.slices
    elif isinstance(action, a.Start | a.Resume | a.Migrate | a.Resize):
        slices = action.placement.slices
        if not slices or not 0 <= action.placement.span < len(topology.levels):
            return False
    else:
        return True
    is_each_once = len({piece.gpu for piece in slices}) == len(slices)
    is_sane = all(share >= 0 and memory >= 0 for _, _, share, memory, _ in slices)
    return is_each_once and is_sane and topology.has_devices(slices)


def _start(state: State, record: JobRecord, action: a.Start | a.Resume, now: int) -> Refused | None:
    if record.phase not in WAITING:
        return Refused.WRONG_PHASE
    placement = action.placement
    why = shape_refusal(state, record, placement) or avoidance_refusal(record, placement)
    why = why or kept_free_refusal(record, placement)
    if why is None and over_quota(state, record, placement, now):
        why = Refused.OVER_QUOTA
    if why is not None:
        return why
    loses_work = state.loses_work_at(record, placement)
    if loses_work and record.frozen is not None:
        placement = record.frozen
    if state.reservations:
        state.drop_reservation(record.id)
    why = state.allocate(record, placement)
    if why is not None:
        return Refused.WORK_WOULD_BE_LOST if loses_work else why
    state.move(record, Cause.START_ORDERED)
    launch(state, record, now)
    return None


def _stop_refusal(state: State, record: JobRecord) -> Refused | None:
    """Why a policy must not stop the job: it has a run, running or frozen, that must not be ended."""
    is_on = record.placement is not None and record.id not in state.pending_launches
    return ending_refusal(record) if is_on or record.frozen is not None else None


def _suspend(state: State, record: JobRecord, now: int, planned: PlannedMemory) -> Refused | None:
    if record.phase not in ALLOCATED:
        return Refused.WRONG_PHASE
    if suspend(state, record, now, planned):
        record.preemptions += 1
    return None


def _migrate_all(
    state: State, moves: list[a.Migrate], now: int, *, is_requested: bool
) -> list[Refusal]:
    """All moves of a plan or none: each may need GPUs that another one gives up."""
    going: list[tuple[JobRecord, Placement, Placement]] = []
    refusals: list[Refusal] = []
    for move in moves:
        record = state.jobs.get(move.job)
        held = None if record is None else record.placement
        if record is None or held is None or record.phase not in (Phase.RUNNING, Phase.STARTING):
            why = Refused.UNKNOWN_JOB if record is None else Refused.WRONG_PHASE
            refusals.append(Refusal(move.job, why, "Migrate"))
            continue
        is_launched = record.phase is Phase.STARTING and record.id not in state.pending_launches
        if is_launched and can_rebind(state.topology, held, move.placement):
            refusals.append(Refusal(move.job, Refused.WRONG_PHASE, "Migrate"))
            continue
        why_not = shape_refusal(state, record, move.placement)
        why_not = why_not or kept_free_refusal(record, move.placement)
        is_free = record.id in state.pending_launches or is_requested
        if not is_free and not can_rebind(state.topology, held, move.placement):
            why_not = why_not or ending_refusal(record)
        if not is_requested:
            why_not = why_not or avoidance_refusal(record, move.placement)
        if why_not is None and over_quota(state, record, move.placement, now):
            why_not = Refused.OVER_QUOTA
        if why_not is not None:
            refusals.append(Refusal(move.job, why_not, "Migrate"))
            continue
        going.append((record, state.deallocate(record), move.placement))
    blocked = _book_moves(state, going)
    if blocked is not None:
        return [*refusals, *(Refusal(record.id, blocked, "Migrate") for record, _, _ in going)]
    waiting = [record for record, _, _ in going if record.id in state.pending_launches]
    for record, old, new in going:
        if record.id in state.pending_launches:
            continue
        if can_rebind(state.topology, old, new):
            rebind(state, record, old, now)
        else:
            record.migrations += 1
            record.is_moving = True
            order_suspension(state, record, old, now, freeze=False)
    for record in waiting:
        del state.pending_launches[record.id]
        launch(state, record, now)
    return refusals


def _book_moves(
    state: State, going: list[tuple[JobRecord, Placement, Placement]]
) -> Refused | None:
    """Book every new placement; where one does not hold, take all back and say why."""
    for done, (record, _, new) in enumerate(going):
        why = state.allocate(record, new)
        if why is not None:
            for mover, _, _ in going[:done]:
                state.deallocate(mover)
            for mover, old, _ in going:
                state.restore(mover, old)
            return why
    return None


def _resize(
    state: State, record: JobRecord, action: a.Resize, now: int, *, is_requested: bool
) -> Refused | None:
    if record.phase is not Phase.RUNNING:
        return Refused.WRONG_PHASE
    old, new = record.placement, action.placement
    assert old is not None
    why = shape_refusal(state, record, new) or kept_free_refusal(record, new)
    is_unnoticed = can_rebind(state.topology, old, new)
    if not is_unnoticed and not is_requested:
        why = why or ending_refusal(record) or avoidance_refusal(record, new)
    if why is None and over_quota(state, record, new, now):
        why = Refused.OVER_QUOTA
    kept = {piece.gpu for piece in new.slices}
    is_held_up = not is_in_place(old, new) and any(gpu in state.releasing for gpu in kept)
    if why is not None or is_held_up:
        return why or Refused.GPU_TAKEN
    state.deallocate(record)
    why = state.allocate(record, new)
    if why is not None:
        state.restore(record, old)
        return why
    if is_unnoticed:
        rebind(state, record, old, now)
        return None
    record.update_service(now)
    left = tuple(piece for piece in old.slices if piece.gpu not in kept)
    if left:
        begin_release(state, record.run, left)
    state.move(record, Cause.RESIZE_ORDERED)
    state.outbox.append(a.Reshape(record.run, new))
    return None


def _reserve(state: State, record: JobRecord, action: a.Reserve, now: int) -> Refused | None:
    if record.phase not in WAITING:
        return Refused.WRONG_PHASE
    state.drop_reservation(record.id)
    mode = Sharing.TIME if action.open_to is a.OpenTo.OPPORTUNISTIC else Sharing.EXCLUSIVE
    whole = Placement(action.slices, 0, mode, Role.GUARANTEED)
    gpus_only = replace(record.demand, cpus=0, host_memory=0)  # a start books the host
    why = state.occupancy.refusal(whole, gpus_only)
    if why is not None:
        return why
    is_open = action.open_to is a.OpenTo.OPPORTUNISTIC
    state.occupancy.reserve_gpus(action.slices, open_to_spare=is_open)
    state.reservations[record.id] = action
    return None


ADMISSIONS: dict[type, Callable[[State, JobRecord, Any, int], Refused | None]] = {
    a.Start: _start,
    a.Resume: _start,
    a.Reserve: _reserve,
    a.Release: lambda state, record, action, now: state.drop_reservation(record.id),
}
