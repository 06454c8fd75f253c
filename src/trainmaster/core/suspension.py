"""Suspension and holds: a run leaves its GPUs, frozen in place where that is possible, else saved and ended.

A job on hold is suspended, and hidden from policies until it is released. Others decide why: its owner
suspended it, another job must end first, an array has a limit. A job whose retry is
delayed is hidden likewise, until its time has come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from trainmaster.core.frozen_memory import FROZEN_GPU_MEMORY, reported
from trainmaster.core.lifecycle import ALLOCATED, ENDED, WAITING, Cause, Phase
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.pending_launches import begin_release, launch, revoke_launch
from trainmaster.core.state import JobRecord, State, is_on_slots, kept_memory
from trainmaster.model import actions as a
from trainmaster.model.job import Demand
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.plan import Plan
from trainmaster.model.units import WHOLE


@dataclass(frozen=True, slots=True)
class PlannedMemory:
    """Memory the plan's placements will use; suspended processes must not occupy it."""

    host: Mapping[int, int]
    """Host memory per node."""
    memory: Mapping[int, int]
    """GPU memory per GPU."""
    expected: Mapping[int, int]
    """The same with what was measured of jobs that get whole GPUs and state nothing."""

    @classmethod
    def of(cls, plan: Plan, state: State) -> PlannedMemory:
        host: dict[int, int] = {}
        memory: dict[int, int] = {}
        expected: dict[int, int] = {}
        for action in plan.actions:
            record = state.jobs.get(action.job)
            if record is None or not isinstance(action, a.Start | a.Resume | a.Migrate | a.Resize):
                continue
            stays = record.placement if isinstance(action, a.Resize) else None
            held = frozenset(() if stays is None else stays.gpus())
            given_back = 0
            if state.can_thaw_at(record, action.placement):
                given_back = kept_memory(state.topology, record, action.placement).gpu
            for piece in [each for each in action.placement.slices if each.gpu not in held]:
                part = state.occupancy.host_part(piece.node, piece.share, record.demand)
                host[piece.node] = host.get(piece.node, 0) + part
                memory[piece.gpu] = memory.get(piece.gpu, 0) + piece.memory - given_back
                uses = piece.memory or record.measured_memory
                expected[piece.gpu] = expected.get(piece.gpu, 0) + max(0, uses - given_back)
        return cls(host, memory, expected)


NOTHING_PLANNED = PlannedMemory({}, {}, {})


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


class Obstacle(Enum):
    """Why a run cannot be frozen."""

    NEVER = "its engine or its job does not allow it"
    NOT_RUNNING = "it does not train"
    FOUND_UNABLE = "it was tried, and can never work for this run"
    TRIED_JUST_NOW = "it was tried a short while ago"
    MPS = "it shares its GPU by MPS"
    HOST_MEMORY = "its node has too little host memory for it"
    GPU_MEMORY = "what it would keep on its GPU is needed"


class FreezeRefusal(NamedTuple):
    """Why a run cannot be frozen, with numbers."""

    obstacle: Obstacle
    needed: int = 0
    """Bytes of host memory that it would keep on a node."""
    free: int = 0
    """Bytes of host memory that there are for it."""


def will_freeze(state: State, record: JobRecord, planned: PlannedMemory, now: int) -> bool:
    """Whether its run, told to make room, would be frozen in place; else it saves and ends."""
    return freeze_refusal(state, record, now, planned) is None


def freeze_refusal(
    state: State, record: JobRecord, now: int, planned: PlannedMemory = NOTHING_PLANNED
) -> FreezeRefusal | None:
    """Why its run, told to make room, would not be frozen in place; None if it would be."""
    placement = record.placement
    assert placement is not None
    if not state.can_freeze or not record.job.stays_in_memory or record.is_prerun:
        return FreezeRefusal(Obstacle.NEVER)
    is_slot = is_on_slots(state.topology, placement)
    if record.phase is not Phase.RUNNING and not (is_slot and record.phase is Phase.STARTING):
        return FreezeRefusal(Obstacle.NOT_RUNNING)
    if record.cannot_freeze:
        return FreezeRefusal(Obstacle.FOUND_UNABLE)
    if not record.may_be_frozen(now):
        return FreezeRefusal(Obstacle.TRIED_JUST_NOW)
    if placement.sharing is Sharing.MPS and not is_slot:
        return FreezeRefusal(Obstacle.MPS)
    found = None if is_slot else _shortage(state, record, placement, NOTHING_PLANNED)
    return found or _shortage(state, record, placement, planned, with_its_own=True)


def memory_to_keep(state: State, record: JobRecord, planned: PlannedMemory) -> int | None:
    """Bytes that its frozen run may keep on each GPU at most; None: nobody that comes needs the memory."""
    placement = record.placement
    assert placement is not None
    if is_on_slots(state.topology, placement):
        return None
    left = [
        state.occupancy.free_memory[piece.gpu] + piece.memory - planned.expected[piece.gpu]
        for piece in placement.slices
        if planned.expected.get(piece.gpu)
    ]
    return max(FROZEN_GPU_MEMORY, min(left)) if left else None


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


def _shortage(
    state: State,
    record: JobRecord,
    placement: Placement,
    planned: PlannedMemory,
    *,
    with_its_own: bool = False,
) -> FreezeRefusal | None:
    """What memory is missing for its frozen run; `with_its_own`: counting what it would release itself."""
    is_alone = placement.sharing is Sharing.EXCLUSIVE
    host = kept_memory(state.topology, record, placement).host
    space = state.occupancy
    own_host: dict[int, int] = {}
    own_memory: dict[int, int] = {}
    for piece in placement.slices if with_its_own else ():
        share = WHOLE if is_alone else piece.share
        part = space.booked_host(piece.node, share, record.demand, placement)
        own_host[piece.node] = own_host.get(piece.node, 0) + part
        own_memory[piece.gpu] = piece.memory
    for node in placement.nodes:
        needed = host * sum(piece.node == node for piece in placement.slices)
        free = space.free_host[node] + own_host.get(node, 0) - planned.host.get(node, 0)
        if free < needed:
            return FreezeRefusal(Obstacle.HOST_MEMORY, needed, max(0, free))
    least = 0 if is_on_slots(state.topology, placement) else FROZEN_GPU_MEMORY
    for gpu in placement.gpus():
        free = space.free_memory[gpu] + own_memory.get(gpu, 0) - planned.memory.get(gpu, 0)
        if free < least:
            return FreezeRefusal(Obstacle.GPU_MEMORY)
    return None


def book_report(
    state: State, record: JobRecord, host_bytes: int | None, gpu_bytes: int | None
) -> None:
    """Book what a frozen run keeps by its engine's report; starts that do not fit beside it are revoked."""
    at, kept = record.frozen, record.kept
    if at is None or kept is None or is_on_slots(state.topology, at):
        return
    told = reported(kept, at, host_bytes, gpu_bytes)
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


def clear_frozen(state: State, now: int) -> None:
    """No job runs, and the memory of frozen runs may keep waiting jobs from starting: make room.

    Frozen runs save and end where a waiting job could start then. Else those that wait go on where they
    are, so that their memory is free when they are done. A run that cannot save is never ended for this.
    """
    frozen = [record for record in state.jobs.values() if record.frozen is not None]
    waiting = [record for record in frozen if record.phase is not Phase.HELD]
    if len(waiting) == state.waiting:
        return  # only frozen jobs wait
    safe = [each for each in frozen if not each.cannot_save and each.run not in state.leaving]
    if not _would_make_room(state, safe):
        for record in waiting:
            _thaw_in_place(state, record, now)
        return
    for record in safe:
        if record.frozen is not None:
            begin_release(state, record.run, record.frozen.slices)
            state.outbox.append(a.Halt(record.run))


def _would_make_room(state: State, frozen: Sequence[JobRecord]) -> bool:
    """Whether a job that waits, and is not frozen itself, has too little memory only while these stay."""
    demands = {
        record.group: record.demand
        for record in state.jobs.values()
        if record.phase in WAITING and record.frozen is None
    }.values()
    before = [_rooms(state.occupancy, demand) for demand in demands]
    _count_memory(state, frozen, -1)
    after = [_rooms(state.occupancy, demand) for demand in demands]
    _count_memory(state, frozen, 1)
    return any(
        larger != rooms and sum(larger) >= demand.min_count
        for demand, rooms, larger in zip(demands, before, after, strict=True)
    )


def _count_memory(state: State, frozen: Iterable[JobRecord], sign: int) -> None:
    """Book (1) or unbook (-1) what these frozen runs keep, for a trial."""
    for record in frozen:
        at = record.frozen
        assert at is not None
        host, memory, _ = kept_memory(state.topology, record, at)
        state.occupancy.book_frozen(at.gpus(), sign * memory, sign * host)


def _rooms(space: Occupancy, demand: Demand) -> list[int]:
    """How many free GPUs of each open node, or such parts of them, it can carry for a job."""
    kinds, shape = space.kinds_for(demand), demand.nominal
    share = max((part.share for part in shape.parts), default=shape.share)
    rooms: list[int] = []
    for node in space.topology.nodes:
        if node.index in space.closed or space.node_type[node.index] not in kinds:
            continue
        idle = [local for local in range(node.gpus) if space.whole[node.index] >> local & 1]
        free = sum(space.free_memory[node.first_gpu + local] >= shape.memory for local in idle)
        while free and not space.has_host_room(node.index, free * share, demand):
            free -= 1
        rooms.append(free)
    return rooms


def _thaw_in_place(state: State, record: JobRecord, now: int) -> None:
    """Let it go on where it is, if there is room."""
    if record.frozen is None or record.run in state.leaving:
        return
    if state.allocate(record, record.frozen) is None:
        state.move(record, Cause.START_ORDERED)
        launch(state, record, now)


# -- holds ------------------------------------------------------------------------------------------


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
    _show(state, record, Cause.RELEASED if record.was_started else Cause.RELEASED_UNSTARTED, now)


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


def _show(state: State, record: JobRecord, cause: Cause, now: int) -> None:
    """Let policies see a job again, if nothing else hides it."""
    if record.phase is not Phase.HELD or not record.may_start:
        return
    state.move(record, cause)
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
