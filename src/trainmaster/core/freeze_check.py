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
    # Its memory is copied to the host before anything of what it holds is free.
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
