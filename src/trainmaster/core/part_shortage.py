"""What keeps a job from the free part of a GPU: its memory, jobs that share it in another way, the host."""

from __future__ import annotations

from trainmaster.core.occupancy import Occupancy
from trainmaster.model.job import Demand
from trainmaster.model.placement import Sharing
from trainmaster.model.reasons import PartShortage, Why
from trainmaster.model.units import WHOLE


def free_parts(space: Occupancy, demand: Demand) -> list[int]:
    """What is free of each GPU that is shared in the way of this job."""
    kinds = space.kinds_for(demand)
    return [
        space.free_share[gpu]
        for gpu, node in enumerate(space.node_of)
        if space.mode[gpu] is demand.mode
        and space.is_offered(gpu)
        and space.node_type[node] in kinds
    ]


def part_shortage(space: Occupancy, demand: Demand) -> tuple[Why, PartShortage] | None:
    """Why a job cannot use a part of a GPU that is large enough for it; None where there is none."""
    shape, kinds = demand.nominal, space.kinds_for(demand)
    if demand.mode is Sharing.EXCLUSIVE or shape.count != 1 or shape.parts:
        return None
    offers: dict[bool, PartShortage] = {}
    for gpu, free in enumerate(space.free_memory):
        node, mode = space.node_of[gpu], space.mode[gpu]
        if not space.is_offered(gpu) or space.node_type[node] not in kinds:
            continue
        if space.free_share[gpu] < shape.share or mode is Sharing.EXCLUSIVE:
            continue
        needed = shape.memory or space.topology.type_of_gpu[gpu].memory * shape.share // WHOLE
        is_own = mode in (None, demand.mode)
        found = PartShortage(needed, free, demand.mode, mode or demand.mode)
        if is_own not in offers or offers[is_own].excess < found.excess:
            offers[is_own] = found
    if True in offers:
        best = offers[True]
        return Why.GPU_MEMORY_TAKEN if best.excess < 0 else Why.HOST_TAKEN, best
    return (Why.SHARED_OTHERWISE, offers[False]) if offers else None
