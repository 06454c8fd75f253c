"""What keeps a job from free GPUs: too little host memory or too few CPUs beside them, and who has those."""

from __future__ import annotations

from dataclasses import replace

from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import JobRecord, kept_memory
from trainmaster.core.view import View
from trainmaster.model.job import Demand
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.reasons import HostShortage, HostUse
from trainmaster.model.units import WHOLE

NAMED = 5
"""The most jobs that are named."""


def host_shortage(view: View, record: JobRecord) -> HostShortage | None:
    """What the nodes with free GPUs lack for this job; None where they have enough."""
    space, demand = view.occupancy, record.demand
    kinds, count = space.kinds_for(demand), demand.nominal.count
    idle = [
        node.index
        for node in view.topology.nodes
        if space.whole[node.index]
        and node.index not in space.closed
        and space.node_type[node.index] in kinds
    ]
    if record.frozen is not None and record.cannot_save:
        idle = [node for node in idle if node in record.frozen.nodes]
    if not idle or _carried(space, idle, record, demand) >= count:
        return None
    is_memory = _carried(space, idle, record, replace(demand, cpus=0)) < count
    free = space.free_host if is_memory else space.free_cpus
    best = max(idle, key=lambda node: free[node])
    kept = _kept(space, record, best) if is_memory else 0
    each = _each(space, best, demand, is_memory=is_memory)
    used = _used(view, record, set(idle), is_memory=is_memory)
    return HostShortage(is_memory, each, count, max(0, free[best] + kept), used)


def _carried(space: Occupancy, nodes: list[int], record: JobRecord, demand: Demand) -> int:
    """How many of their free GPUs these nodes can carry for such a job."""
    found = 0
    for node in nodes:
        free = space.whole[node].bit_count()
        kept = _kept(space, record, node)
        while free and not space.has_host_room(node, free * _share(demand), demand, kept=kept):
            free -= 1
        found += free
    return found


def _each(space: Occupancy, node: int, demand: Demand, *, is_memory: bool) -> int:
    """What each of its GPUs needs there."""
    stated = demand.host_memory if is_memory else demand.cpus
    usual = (space.host_per_gpu if is_memory else space.cpus_per_gpu)[node]
    return (usual if stated is None else stated) * _share(demand) // WHOLE


def _share(demand: Demand) -> int:
    shape = demand.nominal
    return max((part.share for part in shape.parts), default=shape.share)


def _kept(space: Occupancy, record: JobRecord, node: int) -> int:
    """Host memory that its own frozen run keeps on a node, and releases when it goes on."""
    at = record.frozen
    if at is None:
        return 0
    here = sum(piece.node == node for piece in at.slices)
    return here * kept_memory(space.topology, record, at).host


def _used(
    view: View, waiting: JobRecord, nodes: set[int], *, is_memory: bool
) -> tuple[HostUse, ...]:
    """What runs, and frozen runs of other jobs, have there; the most first."""
    space = view.occupancy
    running = {each.seq: each for node in nodes for each in view.residents(node)}.values()
    found = [HostUse(each.id, _booked(space, each, nodes, is_memory=is_memory)) for each in running]
    for each in view.frozen_runs() if is_memory else ():
        if each is not waiting:
            kept = sum(_kept(space, each, node) for node in nodes)
            found.append(HostUse(each.id, kept, is_frozen=True))
    found = [each for each in found if each.amount]
    return tuple(sorted(found, key=lambda each: -each.amount)[:NAMED])


def _booked(space: Occupancy, record: JobRecord, nodes: set[int], *, is_memory: bool) -> int:
    placement = record.placement
    if placement is None:
        return 0
    pieces = [piece for piece in placement.slices if piece.node in nodes]
    if is_memory:
        booked = [
            space.booked_host(piece.node, _held(placement, piece.share), record.demand, placement)
            for piece in pieces
        ]
        return sum(booked)
    return sum(
        (space.cpus_per_gpu[piece.node] if record.demand.cpus is None else record.demand.cpus)
        * _held(placement, piece.share)
        // WHOLE
        for piece in pieces
    )


def _held(placement: Placement, share: int) -> int:
    return WHOLE if placement.sharing is Sharing.EXCLUSIVE else share
