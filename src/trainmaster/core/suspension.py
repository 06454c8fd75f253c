"""Suspension: a run leaves its GPUs, frozen in place where that is possible, else saved and ended."""

from __future__ import annotations

from trainmaster.core.freeze_check import (
    NOTHING_PLANNED,
    PlannedMemory,
    memory_to_keep,
    will_freeze,
)
from trainmaster.core.frozen_memory import reported
from trainmaster.core.lifecycle import Cause, Phase
from trainmaster.core.pending_launches import begin_release, revoke_launch
from trainmaster.core.state import JobRecord, State, is_on_slots
from trainmaster.model import actions as a
from trainmaster.model.events import RunSuspended
from trainmaster.model.placement import Placement


def suspend(
    state: State,
    record: JobRecord,
    now: int,
    planned: PlannedMemory = NOTHING_PLANNED,
    *,
    ends: bool = False,
) -> bool:
    """Take a job's GPUs away; False where only a pending launch was revoked. `ends`: it is not frozen."""
    if record.phase is Phase.STARTING and record.id in state.pending_launches:
        revoke_launch(state, record)
        return False
    freeze = not ends and will_freeze(state, record, planned, now)
    may_keep = memory_to_keep(state, record, planned)
    placement = state.deallocate(record)
    order_suspension(state, record, placement, now, freeze=freeze, may_keep=may_keep)
    return True


def order_suspension(
    state: State,
    record: JobRecord,
    placement: Placement,
    now: int,
    *,
    freeze: bool,
    may_keep: int | None = None,
) -> None:
    """Order the engine to suspend a run: frozen in place, or saved and ended."""
    record.update_service(now)
    record.suspend_ordered_ms = now
    record.is_unplanned = False
    begin_release(state, record.run, placement.slices)
    if freeze:
        state.freeze(record, placement, may_keep)
        state.outbox.append(a.Freeze(record.run, may_keep))
    else:
        state.outbox.append(a.Halt(record.run))
    state.move(record, Cause.SUSPEND_ORDERED)


def book_report(state: State, record: JobRecord, said: RunSuspended) -> None:
    """Book what a frozen run keeps by its engine's report; starts that do not fit beside it are revoked."""
    at, kept = record.frozen, record.kept
    if at is None or kept is None or is_on_slots(state.topology, at):
        return
    told = reported(kept, at, said.host_bytes, said.gpu_bytes, is_all_on_gpus=said.is_all_on_gpus)
    if told == kept:
        return
    state.correct_frozen(record, told)
    space = state.occupancy
    for other in [each for node in at.nodes for each in state.residents[node].values()]:
        placement = other.placement
        if placement is None or not is_start_unsent(state, other):
            continue
        if any(space.free_memory[gpu] < 0 for gpu in placement.gpus()) or any(
            space.free_host[node] < 0 for node in placement.nodes
        ):
            revoke_start(state, other)
            state.log.needs_pass = True


def is_start_unsent(state: State, record: JobRecord) -> bool:
    """Whether it is to start on its GPUs, or to move there, and its engine has not been told yet."""
    is_moving_in = record.is_moving and record.phase is Phase.SUSPENDING
    return record.id in state.pending_launches or is_moving_in


def revoke_start(state: State, record: JobRecord) -> None:
    """Take a start back that is not sent yet; a job that is still moving is suspended when it arrives."""
    if record.phase is Phase.STARTING:
        revoke_launch(state, record)
        return
    state.pending_launches.pop(record.id, None)
    state.deallocate(record)
    record.is_moving = False
