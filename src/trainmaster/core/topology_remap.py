"""Map the indices of nodes and GPUs of an old topology to a new one, when nodes were added or removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from trainmaster.model.placement import Placement, Slice
from trainmaster.model.topology import Topology

Layout = tuple[tuple[str, ...], tuple[tuple[str, int, tuple[int, ...]], ...]]
"""Levels, and of each node its name, how many devices it has, and the domains around it."""


def layout_of(topology: Topology) -> Layout:
    """Everything that the indices of nodes and devices depend on."""
    nodes = tuple((node.name, node.gpus, node.domains) for node in topology.nodes)
    return topology.levels, nodes


@dataclass(frozen=True, slots=True)
class IndexMapping:
    """Old indices to new ones, for the nodes and GPUs that still exist."""

    topology: Topology
    nodes: Mapping[int, int]
    gpus: Mapping[int, int]

    @classmethod
    def between(cls, layout: Layout, topology: Topology) -> IndexMapping:
        """Matches nodes by name, and devices by their index on the node."""
        nodes: dict[int, int] = {}
        gpus: dict[int, int] = {}
        first = 0
        for index, (name, count, _) in enumerate(layout[1]):
            node = topology.node_by_name.get(name)
            if node is not None:
                nodes[index] = node.index
                for local in range(min(count, node.gpus)):
                    gpus[first + local] = node.first_gpu + local
            first += count
        return cls(topology, nodes, gpus)

    def has(self, slices: Iterable[Slice]) -> bool:
        """Whether all these devices still exist."""
        return all(piece.gpu in self.gpus for piece in slices)

    def slice(self, piece: Slice) -> Slice:
        """The slice under the new indices; its device must still exist."""
        return piece._replace(node=self.nodes[piece.node], gpu=self.gpus[piece.gpu])

    def placement(self, old: Placement | None) -> Placement | None:
        """The placement under the new indices; None if any of its devices is gone."""
        if old is None or not self.has(old.slices):
            return None
        slices = tuple(self.slice(piece) for piece in old.slices)
        span = self.topology.span_of_gpus([piece.gpu for piece in slices])
        return replace(old, slices=slices, span=span)
