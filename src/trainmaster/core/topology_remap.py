"""The same devices under other numbers: nodes have come or gone since something was written down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from trainmaster.model.placement import Placement, Slice
from trainmaster.model.topology import Topology

Layout = tuple[tuple[str, ...], tuple[tuple[str, int, tuple[int, ...]], ...]]
"""Levels, and of each node its name, how many devices it has, and the domains around it."""


def layout_of(topology: Topology) -> Layout:
    """What the numbers of nodes and devices depend on."""
    nodes = tuple((node.name, node.gpus, node.domains) for node in topology.nodes)
    return topology.levels, nodes


@dataclass(frozen=True, slots=True)
class IndexMapping:
    """Old numbers to new ones, of what is still there."""

    topology: Topology
    nodes: Mapping[int, int]
    gpus: Mapping[int, int]

    @classmethod
    def between(cls, layout: Layout, topology: Topology) -> IndexMapping:
        """By the names of nodes and the numbers of devices on them."""
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
        """Whether all these devices are still there."""
        return all(piece.gpu in self.gpus for piece in slices)

    def slice(self, piece: Slice) -> Slice:
        """The slice of a device that is still there as it is called now."""
        return piece._replace(node=self.nodes[piece.node], gpu=self.gpus[piece.gpu])

    def placement(self, old: Placement | None) -> Placement | None:
        """The placement as it is called now; None if any of its devices is gone."""
        if old is None or not self.has(old.slices):
            return None
        slices = tuple(self.slice(piece) for piece in old.slices)
        span = self.topology.span_of_gpus([piece.gpu for piece in slices])
        return replace(old, slices=slices, span=span)
