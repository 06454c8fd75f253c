"""Which devices the numbers of a what-if count: GPUs; CPU slots only where a cluster has nothing else."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from trainmaster.model.placement import Placement
from trainmaster.model.topology import CPU_TYPE, Node, Topology


@dataclass(frozen=True, slots=True)
class CountedDevices:
    """Those of one cluster."""

    nodes: tuple[Node, ...]
    """Nodes that have any."""
    are_slots: bool
    """Whether they are CPU slots, since there are no GPUs."""

    @classmethod
    def of(cls, topology: Topology, gone: Set[int] = frozenset()) -> CountedDevices:
        there = [node for node in topology.nodes if node.index not in gone and node.gpus]
        on_gpus = [node for node in there if node.type.name != CPU_TYPE]
        return cls(tuple(on_gpus or there), not on_gpus)

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)

    def counts(self, kind: str | None) -> bool:
        """Whether devices of this type are counted, or jobs that ask for it."""
        return self.are_slots or kind != CPU_TYPE

    def counts_placement(self, placement: Placement, topology: Topology) -> bool:
        return self.counts(topology.type_of_gpu[placement.slices[0].gpu].name)
