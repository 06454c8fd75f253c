"""Whether a run that makes room can be frozen in place, and how much it may keep on its GPUs then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from trainmaster.core.frozen_memory import FROZEN_GPU_MEMORY
from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord, State, is_on_slots, kept_memory
from trainmaster.model import actions as a
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
            held = frozenset(() if record.placement is None else record.placement.gpus())
            kept = _kept_by_gpu(state, record, action.placement)
            for piece in [each for each in action.placement.slices if each.gpu not in held]:
                part = state.occupancy.host_part(piece.node, piece.share, record.demand)
                host[piece.node] = host.get(piece.node, 0) + part
                given_back = kept.get(piece.gpu, 0)
                memory[piece.gpu] = memory.get(piece.gpu, 0) + piece.memory - given_back
                uses = piece.memory or record.measured_memory
                expected[piece.gpu] = expected.get(piece.gpu, 0) + max(0, uses - given_back)
        return cls(host, memory, expected)


def _kept_by_gpu(state: State, record: JobRecord, placement: Placement) -> Mapping[int, int]:
    """What its frozen run keeps on GPUs, and gives back when it goes on there."""
    if record.frozen is None or not state.can_thaw_at(record, placement):
        return {}
    return dict.fromkeys(
        record.frozen.gpus(), kept_memory(state.topology, record, record.frozen).gpu
    )


NOTHING_PLANNED = PlannedMemory({}, {}, {})


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
    if placement.sharing is Sharing.MPS and not is_slot and not record.is_without_mps:
        return FreezeRefusal(Obstacle.MPS)
    if not is_slot:  # its memory is copied to the host before anything of what it holds is free
        found = _host_shortage(state, record, placement, NOTHING_PLANNED)
        if found is not None:
            return found
        if _is_gpu_memory_needed(state, placement, planned):
            return FreezeRefusal(Obstacle.GPU_MEMORY)
    return _host_shortage(state, record, placement, planned, with_its_own=True)


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


def _host_shortage(
    state: State,
    record: JobRecord,
    placement: Placement,
    planned: PlannedMemory,
    *,
    with_its_own: bool = False,
) -> FreezeRefusal | None:
    """What host memory is missing for its frozen run; `with_its_own`: counting what it would release."""
    is_alone = placement.sharing is Sharing.EXCLUSIVE
    kept = kept_memory(state.topology, record, placement).host
    space = state.occupancy
    own: dict[int, int] = {}
    for piece in placement.slices if with_its_own else ():
        share = WHOLE if is_alone else piece.share
        part = space.booked_host(piece.node, share, record.demand, placement)
        own[piece.node] = own.get(piece.node, 0) + part
    for node in placement.nodes:
        needed = kept * sum(piece.node == node for piece in placement.slices)
        free = space.free_host[node] + own.get(node, 0) - planned.host.get(node, 0)
        if free < needed:
            return FreezeRefusal(Obstacle.HOST_MEMORY, needed, max(0, free))
    return None


def _is_gpu_memory_needed(state: State, placement: Placement, planned: PlannedMemory) -> bool:
    """Whether jobs that come need even the little that every frozen run keeps of its own on its GPUs."""
    free = state.occupancy.free_memory
    return any(
        free[gpu] + own - planned.memory.get(gpu, 0) < FROZEN_GPU_MEMORY
        for _, gpu, _, own, _ in placement.slices
    )
