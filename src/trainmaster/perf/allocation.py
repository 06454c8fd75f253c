"""An allocation as far as speed is concerned: how many GPUs of which kind, how far apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainmaster.model.placement import Placement
from trainmaster.model.topology import CPU_TYPE, GpuType, Node, Topology
from trainmaster.model.units import NOMINAL


@dataclass(frozen=True, slots=True)
class Kind:
    """So many GPUs of one type."""

    name: str
    speed_ppm: int
    count: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """Two placements that an exchange of gradients cannot tell apart are equal allocations."""

    per_node: tuple[int, ...]
    """GPUs on each node, most first."""
    span: str
    """The level that holds them all: gpu, island, node, rack ..."""
    kinds: tuple[Kind, ...]
    """What they are, fastest first."""

    @property
    def count(self) -> int:
        return sum(self.per_node)

    @property
    def speed_ppm(self) -> int:
        """What the GPUs compute together, in parts per million of one of nominal speed."""
        return sum(kind.speed_ppm * kind.count for kind in self.kinds)

    def at_nominal_speed(self) -> Allocation:
        """The same with GPUs of nominal speed: what a job's own run time refers to."""
        return Allocation(self.per_node, self.span, (Kind("gpu", NOMINAL, self.count),))

    @staticmethod
    def plain(*per_node: int, span: str | None = None) -> Allocation:
        """GPUs of nominal speed on so many nodes each; by default nodes are in one rack."""
        count = sum(per_node)
        if span is None:
            span = "rack" if len(per_node) > 1 else "node" if count > 1 else "gpu"
        nodes = tuple(sorted(per_node, reverse=True))
        return Allocation(nodes, span, (Kind("gpu", NOMINAL, count),))

    @staticmethod
    def of(placement: Placement, topology: Topology) -> Allocation:
        """What a placement looks like from here."""
        per_node = Counter(piece.node for piece in placement.slices)
        types = Counter(topology.type_of_gpu[gpu] for gpu in placement.gpus())
        return Allocation(
            tuple(sorted(per_node.values(), reverse=True)),
            topology.levels[placement.span],
            _kinds(types.items()),
        )

    @staticmethod
    def best(topology: Topology, count: int, gpu_type: str | None = None) -> Allocation:
        """The most consolidated that the empty cluster offers; among equals, the fastest GPUs."""
        nodes = [node for node in topology.nodes if _suits(node, gpu_type)]
        if not 0 < count <= sum(node.gpus for node in nodes):
            raise ValueError(f"the cluster cannot hold {count} GPUs at once.")
        for level in range(topology.node_level, -1, -1):
            domains: dict[int, list[Node]] = {}
            for node in nodes:
                domains.setdefault(node.domains[level], []).append(node)
            choices = [
                _fill(topology, domain, count)
                for domain in domains.values()
                if sum(node.gpus for node in domain) >= count
            ]
            if choices:
                return min(choices, key=_worth)
        raise AssertionError("the outermost level holds every node")


def _suits(node: Node, gpu_type: str | None) -> bool:
    return node.type.name == gpu_type if gpu_type is not None else node.type.name != CPU_TYPE


def _fill(topology: Topology, nodes: Sequence[Node], count: int) -> Allocation:
    """`count` GPUs of these nodes: the one that just holds them, else the largest first."""
    holding = [node for node in nodes if node.gpus >= count]
    if holding:
        ranked = sorted(holding, key=lambda node: (-node.type.speed_ppm, node.gpus, node.index))
    else:
        ranked = sorted(nodes, key=lambda node: (-node.gpus, -node.type.speed_ppm, node.index))
    taken, types, left = [], Counter[GpuType](), count
    for node in ranked:
        took = min(left, node.gpus)
        if took == 0:
            break
        taken.append((node, took))
        types[node.type] += took
        left -= took
    first = taken[0][0].first_gpu
    if len(taken) == 1:
        span = topology.span_of_gpus(range(first, first + count))
    else:
        span = topology.span_of_nodes([node.index for node, _ in taken])
    per_node = tuple(sorted((took for _, took in taken), reverse=True))
    return Allocation(per_node, topology.levels[span], _kinds(types.items()))


def _worth(allocation: Allocation) -> tuple[int, int, int]:
    """Smaller is better: fewer nodes, then a faster slowest GPU, then more speed in all."""
    slowest = min(kind.speed_ppm for kind in allocation.kinds)
    return len(allocation.per_node), -slowest, -allocation.speed_ppm


def _kinds(types: Iterable[tuple[GpuType, int]]) -> tuple[Kind, ...]:
    kinds = (Kind(kind.name, kind.speed_ppm, count) for kind, count in types)
    return tuple(sorted(kinds, key=lambda kind: (-kind.speed_ppm, kind.name)))
