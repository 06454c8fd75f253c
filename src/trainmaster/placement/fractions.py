"""Parts of GPUs: several jobs on one, memory never over-booked, the fullest GPU that fits first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainmaster.core.occupancy import Occupancy
from trainmaster.model.job import Demand, Part, Shape
from trainmaster.model.placement import Placement, Role, Sharing, Slice
from trainmaster.model.units import WHOLE
from trainmaster.placement.gang import bits


def place_parts(
    space: Occupancy, demand: Demand, shape: Shape, sharing: Sharing, role: Role
) -> Placement | None:
    """Each piece on a GPU of its own, on as few nodes as the first fit allows; None where one is left.

    Not on GPUs that it avoids, or only where nothing else will do.
    """
    if demand.avoid:
        avoid = (*demand.avoid, *demand.barred)
        found = _place_parts(space, demand, shape, sharing, role, avoid)
        if found is not None or demand.must_avoid:
            return found
    return _place_parts(space, demand, shape, sharing, role, demand.barred)


def _place_parts(
    space: Occupancy,
    demand: Demand,
    shape: Shape,
    sharing: Sharing,
    role: Role,
    avoid: Sequence[int],
) -> Placement | None:
    parts = shape.parts or (Part(shape.share, shape.memory),) * shape.count
    chosen: dict[int, Slice] = {}
    for stage, part in sorted(enumerate(parts), key=lambda pair: -pair[1].share):
        at = stage if shape.parts else 0
        piece = _best_gpu(space, demand, part, sharing, at, chosen, avoid)
        if piece is None:
            return None
        chosen[piece.gpu] = piece
    slices = tuple(sorted(chosen.values(), key=lambda piece: (piece.stage, piece.gpu)))
    span = space.topology.span_of_gpus([piece.gpu for piece in slices])
    return Placement(slices, span, sharing, role)


def _best_gpu(
    space: Occupancy,
    demand: Demand,
    part: Part,
    sharing: Sharing,
    stage: int,
    chosen: dict[int, Slice],
    avoid: Sequence[int],
) -> Slice | None:
    """The first GPU that fits beside the pieces already chosen; their nodes first."""
    near = {piece.node for piece in chosen.values()}
    fallback: Slice | None = None
    for gpu in _by_fit(space, demand, part, sharing):
        if gpu in chosen or gpu in avoid:
            continue
        node = space.node_of[gpu]
        memory = part.memory or space.topology.type_of_gpu[gpu].memory * part.share // WHOLE
        beside = sum(piece.share for piece in chosen.values() if piece.node == node)
        if space.free_memory[gpu] < memory:
            continue
        if not space.has_host_room(node, part.share + beside, demand):
            continue
        piece = Slice(node, gpu, part.share, memory, stage)
        if not near or node in near:
            return piece
        fallback = fallback or piece
    return fallback


def _by_fit(space: Occupancy, demand: Demand, part: Part, sharing: Sharing) -> Iterator[int]:
    """GPUs with room for the share: the fullest shared ones first, then idle ones."""
    for kind in space.kinds_for(demand):
        yield from shared_gpus(space, (kind,), sharing, part.share)
        yield from idle_gpus(space, (kind,))


def idle_gpus(space: Occupancy, kinds: Sequence[int]) -> Iterator[int]:
    """GPUs of these types that no job uses, on the fullest nodes first."""
    for kind in kinds:
        for nodes in space.by_free[kind][1:]:
            for node in bits(nodes):
                for local in bits(space.whole[node]):
                    yield space.first_gpu[node] + local


def shared_gpus(
    space: Occupancy,
    kinds: Sequence[int],
    sharing: Sharing,
    share: int,
    *,
    emptiest_first: bool = False,
) -> Iterator[int]:
    """GPUs of these types shared in this mode with this much free, the fullest or the emptiest first."""
    for kind in kinds:
        table = space.partial[kind]
        for free in sorted([each for each in table if each >= share], reverse=emptiest_first):
            for gpu in bits(table[free]):
                if space.mode[gpu] is sharing:
                    yield gpu
