"""Where a job is, for drawing: the nodes that it is on, and on each island of them which devices it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainmaster.core.state import State
from trainmaster.daemon.device_names import device_name
from trainmaster.daemon.response_models import JobPlacement, PlacedDevice, PlacedNode, amount
from trainmaster.model.topology import Node
from trainmaster.model.units import WHOLE

NOWHERE = JobPlacement(nodes=[], span=None, is_frozen=False)


def placement_rows(state: State, job: str) -> JobPlacement:
    record = state.jobs.get(job)
    held = None if record is None else record.placement or record.frozen
    if record is None or held is None:
        return NOWHERE
    is_frozen = record.placement is None
    shares = {piece.gpu: piece.share or WHOLE for piece in held.slices}
    nodes = [state.topology.nodes[node] for node in held.nodes]
    others = _others(state, job, {node.index for node in nodes})
    return JobPlacement(
        nodes=[_node(state, node, shares, others) for node in nodes],
        span=state.topology.levels[held.span],
        is_frozen=is_frozen,
    )


def _others(state: State, job: str, nodes: set[int]) -> Mapping[int, int]:
    """By device of these nodes: how many other jobs are on it."""
    found: dict[int, int] = {}
    for node in nodes:
        for record in state.residents[node].values():
            if record.id != job and record.placement is not None:
                for piece in record.placement.slices:
                    if piece.node == node:
                        found[piece.gpu] = found.get(piece.gpu, 0) + 1
    return found


def _node(
    state: State, node: Node, shares: Mapping[int, int], others: Mapping[int, int]
) -> PlacedNode:
    return PlacedNode(
        name=node.name,
        type=node.type.name,
        domains=state.topology.names_around(node),
        islands=[
            [
                PlacedDevice(
                    device_name(state.topology, gpu),
                    amount(shares.get(gpu, 0)),
                    others.get(gpu, 0),
                )
                for gpu in (node.first_gpu + local for local in island)
            ]
            for island in innermost(node)
        ],
    )


def innermost(node: Node) -> Sequence[Sequence[int]]:
    """Every device once: by the islands of the innermost level, or all together."""
    islands = node.island_levels[-1] if node.island_levels else ()
    named = {local for island in islands for local in island}
    rest = [local for local in range(node.gpus) if local not in named]
    return [*islands, rest] if rest else list(islands)
