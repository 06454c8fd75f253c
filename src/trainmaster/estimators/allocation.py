"""An allocation as far as speed is concerned: how many GPUs of which kind, how far apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from trainmaster.model.codec import stored_as
from trainmaster.model.job import allows_type
from trainmaster.model.placement import Placement
from trainmaster.model.topology import GpuType, Node, Topology
from trainmaster.model.units import NOMINAL


@stored_as("throughput.GpuCount")
@dataclass(frozen=True, slots=True)
class GpuCount:
    """A number of GPUs of one type."""

    name: str
    speed_ppm: int
    count: int


@stored_as("throughput.Allocation")
@dataclass(frozen=True, slots=True)
class Allocation:
    """Two placements that an exchange of gradients cannot tell apart are equal allocations."""

    per_node: tuple[int, ...]
    """GPUs on each node, most first."""
    span: str
    """The level that holds them all: gpu, island, node, rack ..."""
    kinds: tuple[GpuCount, ...]
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
        return Allocation(self.per_node, self.span, (GpuCount("gpu", NOMINAL, self.count),))

    @staticmethod
    def plain(*per_node: int, span: str | None = None) -> Allocation:
        """GPUs of nominal speed, this many on each node; by default nodes are in one rack."""
        count = sum(per_node)
        if span is None:
            span = "rack" if len(per_node) > 1 else "node" if count > 1 else "gpu"
        nodes = tuple(sorted(per_node, reverse=True))
        return Allocation(nodes, span, (GpuCount("gpu", NOMINAL, count),))

    @staticmethod
    def of(placement: Placement, topology: Topology) -> Allocation:
        """The allocation of a placement."""
        per_node = Counter(piece.node for piece in placement.slices)
        types = Counter(topology.type_of_gpu[gpu] for gpu in placement.gpus())
        return Allocation(
            tuple(sorted(per_node.values(), reverse=True)),
            topology.levels[placement.span],
            _kinds(types.items()),
        )


class EmptyCluster:
    """The domains of a cluster that differ, by level: what consolidated allocations are made of."""

    def __init__(self, topology: Topology, gpu_type: str | None = None) -> None:
        self.topology = topology
        nodes = [node for node in topology.nodes if allows_type(gpu_type, node.type.name)]
        nodes.sort(key=lambda node: (-node.gpus, -node.type.speed_ppm, node.index))
        self.room = sum(node.gpus for node in nodes)
        """GPUs of that type in all."""
        self._levels = [
            _distinct_domains(nodes, level) for level in range(topology.node_level, -1, -1)
        ]

    def best(self, count: int) -> Allocation:
        """This many GPUs inside the innermost domain that can hold them, on its largest nodes."""
        if not 0 < count <= self.room:
            raise ValueError(f"the cluster cannot hold {count} GPUs of one job at once.")
        for domains in self._levels:
            choices = [self._fill(domain, count) for room, domain in domains if room >= count]
            if choices:
                return min(choices, key=_worth)
        raise AssertionError("the outermost level holds every node")

    def _fill(self, nodes: Sequence[Node], count: int) -> Allocation:
        taken: list[tuple[Node, int]] = []
        types, left = Counter[GpuType](), count
        for node in nodes:
            if left == 0:
                break
            took = min(left, node.gpus)
            taken.append((node, took))
            types[node.type] += took
            left -= took
        first = taken[0][0].first_gpu
        if len(taken) == 1:
            span = self.topology.span_of_gpus(range(first, first + count))
        else:
            span = self.topology.span_of_nodes([node.index for node, _ in taken])
        per_node = tuple(sorted((took for _, took in taken), reverse=True))
        return Allocation(per_node, self.topology.levels[span], _kinds(types.items()))


def _distinct_domains(nodes: Sequence[Node], level: int) -> list[tuple[int, list[Node]]]:
    """(GPUs, nodes) of each domain of a level, without domains equal to an earlier one."""
    domains: dict[int, list[Node]] = {}
    for node in nodes:
        domains.setdefault(node.domains[level], []).append(node)
    found: dict[Hashable, list[Node]] = {}
    for domain in domains.values():
        found.setdefault(tuple(_look(node) for node in domain), domain)
    return [(sum(node.gpus for node in domain), domain) for domain in found.values()]


def _look(node: Node) -> tuple[int, int, str, int]:
    """All that distinguishes nodes here."""
    return node.gpus, len(node.islands), node.type.name, node.type.speed_ppm


def _worth(allocation: Allocation) -> tuple[int, int, int]:
    """Smaller is better: fewer nodes, then a faster slowest GPU, then more speed in all."""
    slowest = min(kind.speed_ppm for kind in allocation.kinds)
    return len(allocation.per_node), -slowest, -allocation.speed_ppm


def _kinds(types: Iterable[tuple[GpuType, int]]) -> tuple[GpuCount, ...]:
    kinds = (GpuCount(kind.name, kind.speed_ppm, count) for kind, count in types)
    return tuple(sorted(kinds, key=lambda kind: (-kind.speed_ppm, kind.name)))
