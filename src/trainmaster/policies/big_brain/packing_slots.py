"""Slots of shared GPUs: a whole one-GPU job in one, or its two halves where no slot is left (Big Brain).

With factor f a GPU has f slots for whole jobs, and a corner that is kept for half of a job more: two
GPUs take 2 f whole jobs and one that is split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, filterfalse, pairwise

from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import JobRecord
from trainmaster.model.job import Demand, Shape
from trainmaster.model.placement import Placement, Role, Sharing, Slice
from trainmaster.model.units import WHOLE
from trainmaster.placement.fractions import idle_gpus, shared_gpus

IsOpen = Callable[[int], bool]
"""Whether a GPU that others use may take one more."""


CORNER = WHOLE // 10
"""Share of a GPU that is kept for half of a split job: its memory counts, its share is a formality."""


def slot(factor: int, *, splits: bool) -> int:
    """The share of a GPU that a whole job books."""
    return (WHOLE - CORNER if splits else WHOLE) // factor


def place_in_slot(
    space: Occupancy, record: JobRecord, share: int, sharing: Sharing, is_open: IsOpen
) -> Placement | None:
    """On an idle GPU, else on the least crowded one that is open and has the memory."""
    demand = record.demand
    for gpu in _by_crowd(space, demand, share, sharing, is_open):
        node, memory = space.node_of[gpu], record.memory_on(space.topology.type_of_gpu[gpu])
        if space.free_memory[gpu] >= memory and space.has_host_room(node, share, demand):
            piece = Slice(node, gpu, share, memory)
            return Placement((piece,), _span(space, [piece]), sharing, Role.GUARANTEED)
    return None


def place_halves(
    space: Occupancy, demand: Demand, split: Shape, sharing: Sharing, is_open: IsOpen
) -> Placement | None:
    """Two parts of a split on two GPUs, of one node where possible; the larger where more is free."""
    first, second = sorted(split.parts, key=lambda part: -part.memory)
    room = [
        gpu
        for gpu in _by_crowd(space, demand, CORNER, sharing, is_open)
        if space.free_memory[gpu] >= second.memory
    ]
    for one, other in _pairs(space, room):
        if space.free_memory[one] < space.free_memory[other]:
            one, other = other, one
        if space.free_memory[one] < first.memory or not _has_host(space, demand, one, other):
            continue
        is_swapped = split.parts[0] is not first
        gpus = (other, one) if is_swapped else (one, other)
        pieces = tuple(
            Slice(space.node_of[gpu], gpu, CORNER, part.memory, stage)
            for stage, (gpu, part) in enumerate(zip(gpus, split.parts, strict=True))
        )
        return Placement(pieces, _span(space, pieces), sharing, Role.GUARANTEED)
    return None


def _pairs(space: Occupancy, room: list[int]) -> Iterator[tuple[int, int]]:
    """Neighbours in the list, those of one node first."""
    by_node: dict[int, list[int]] = {}
    for gpu in room:
        by_node.setdefault(space.node_of[gpu], []).append(gpu)
    for mine in by_node.values():
        yield from pairwise(mine)
    yield from pairwise(room)


def _has_host(space: Occupancy, demand: Demand, one: int, other: int) -> bool:
    nodes = (space.node_of[one], space.node_of[other])
    total = CORNER * 2 if nodes[0] == nodes[1] else CORNER
    return all(space.has_host_room(node, total, demand) for node in nodes)


def _by_crowd(
    space: Occupancy, demand: Demand, share: int, sharing: Sharing, is_open: IsOpen
) -> Iterator[int]:
    """Idle GPUs, then shared ones with that much free, the emptiest first; fast types first."""
    kinds = space.kinds_for(demand)
    shared = shared_gpus(space, kinds, sharing, share, emptiest_first=True)
    yield from filterfalse(demand.forbids, chain(idle_gpus(space, kinds), filter(is_open, shared)))


def _span(space: Occupancy, pieces: tuple[Slice, ...] | list[Slice]) -> int:
    return space.topology.span_of_gpus([piece.gpu for piece in pieces])
