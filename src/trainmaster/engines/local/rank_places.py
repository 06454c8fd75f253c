"""Which processes a gang has: one for each GPU or one for each node, and the devices of each."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.model.launch_spec import GangPart, Ranks
from trainmaster.model.placement import Placement


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Where one rank runs: its rank, the world size, and its devices."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    node_rank: int
    devices: tuple[int, ...]
    """All GPUs of the run on this node, as the topology counts them."""
    slots: int
    """How many of them are this rank's own."""


def rank_places(
    placement: Placement, ranks: Ranks, part: GangPart | None = None
) -> tuple[RankPlace, ...]:
    """One rank for each slice, node by node, or one for each node; of a part, counted over the whole gang."""
    by_node: dict[int, list[int]] = {}
    for piece in placement.slices:
        by_node.setdefault(piece.node, []).append(piece.gpu)
    per_node = ranks is Ranks.PER_NODE
    world = len(by_node) if per_node else len(placement.slices)
    first_rank = first_node = 0
    if part is not None:
        world, first_rank, first_node = part.world, part.first_rank, part.node_rank
    found: list[RankPlace] = []
    for node_rank, gpus in enumerate(by_node.values(), first_node):
        here = 1 if per_node else len(gpus)
        devices = tuple(dict.fromkeys(gpus))
        for local_rank in range(here):
            slots = len(devices) if per_node else 1
            rank = first_rank + len(found)
            found.append(RankPlace(rank, world, local_rank, here, node_rank, devices, slots))
    return tuple(found)
