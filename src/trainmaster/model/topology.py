"""The cluster as an immutable, indexed tree of named levels: which devices are near each other.

Levels run from the outermost (`cluster`) to the innermost (`gpu`); `node` is always among them, and
islands (`socket`, `pcie` switch, or plain `island`) lie between `node` and `gpu`. A *span* is a level:
the deepest one whose domain holds all GPUs of a placement. Occupancy is kept beside the tree, in flat
arrays over the dense indices that the tree hands out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from trainmaster.model.placement import Slice
from trainmaster.model.units import GIB, NOMINAL

CPU_TYPE = "cpu"
"""Type of a CPU slot on a CPU-only node: only jobs that ask for it by name get one."""

SLOT_TYPE = "slot"
"""Type of the devices that stand in where a machine has no GPUs: any job may have one."""

MOST_GPUS = 1_000_000
"""No cluster has more: beyond it there is only a typing error."""

SHORTHAND_LEVELS = ("fabric", "rack", "node", "gpu")
ISLAND_LEVELS = ("socket", "pcie", "island")
"""Levels that may lie inside a node, outermost first: sockets, PCIe switches, other islands."""
INSIDE_NODE = ("node", *ISLAND_LEVELS, "gpu")
"""Spans of what lies on one machine."""


class TopologyError(ValueError):
    """A cluster description that cannot be: one sentence for the user."""


@dataclass(frozen=True, slots=True)
class GpuType:
    """A kind of device: H100, V100, a MIG slice, a CPU slot."""

    name: str = "gpu"
    memory: int = 16 * GIB
    speed_ppm: int = NOMINAL
    price_per_hour: float | None = None
    """None: not stated, which is another thing than free."""


@dataclass(frozen=True, slots=True)
class Node:
    """A machine: its devices lie side by side in the topology's GPU index."""

    index: int
    name: str
    type: GpuType
    first_gpu: int
    gpus: int
    cpus: int
    """Thousandths of a CPU core."""
    memory: int
    """Host memory in bytes."""
    island_levels: tuple[tuple[tuple[int, ...], ...], ...]
    """For each level between `node` and `gpu`: the local GPU numbers of each island there."""
    domains: tuple[int, ...]
    """Index of the node's domain at each level from `cluster` down to `node`."""
    uuids: tuple[str, ...] = ()
    """What the driver calls its GPUs for good, by their local numbers; empty: not known, or CPU slots."""

    @property
    def islands(self) -> tuple[tuple[int, ...], ...]:
        """All islands of all levels, outermost first; one when the node has none."""
        found = tuple(island for level in self.island_levels for island in level)
        return found or (tuple(range(self.gpus)),)


@dataclass(frozen=True, slots=True)
class Link:
    """What an exchange gets of a level's wires."""

    bytes_per_s: int
    latency_us: int


@dataclass(frozen=True)
class Topology:
    """The tree. Equal descriptions give equal topologies; nothing in it changes while jobs run."""

    levels: tuple[str, ...]
    """Level names, outermost first; the last is `gpu`."""
    nodes: tuple[Node, ...]
    links: tuple[tuple[str, Link], ...] = ()
    """Measured links by level; usual figures are assumed of the others."""
    domain_names: tuple[tuple[str, ...], ...] = ()
    """For each level above `node`, what its domains are called, by index; empty: they have no names."""

    @cached_property
    def node_level(self) -> int:
        return self.levels.index("node")

    @cached_property
    def gpu_count(self) -> int:
        return sum(node.gpus for node in self.nodes)

    @cached_property
    def largest_node(self) -> int:
        """Devices of the node that has the most."""
        return max(node.gpus for node in self.nodes)

    @cached_property
    def training_gpus(self) -> int:
        """Devices that count as GPUs: CPU slots are left out."""
        return sum(node.gpus for node in self.nodes if node.type.name != CPU_TYPE)

    @cached_property
    def node_of_gpu(self) -> tuple[int, ...]:
        return tuple(node.index for node in self.nodes for _ in range(node.gpus))

    @cached_property
    def type_of_gpu(self) -> tuple[GpuType, ...]:
        return tuple(node.type for node in self.nodes for _ in range(node.gpus))

    @cached_property
    def uuids(self) -> tuple[str, ...]:
        """Of all GPUs, by their index; empty where those of any node are not known."""
        known = all(len(node.uuids) == node.gpus for node in self.nodes)
        return tuple(uuid for node in self.nodes for uuid in node.uuids) if known else ()

    @cached_property
    def types(self) -> tuple[GpuType, ...]:
        """Device types, fastest first, then by name; CPU slots last."""
        kinds = {node.type for node in self.nodes}
        return tuple(sorted(kinds, key=lambda t: (t.name == CPU_TYPE, -t.speed_ppm, t.name)))

    @cached_property
    def is_uniform(self) -> bool:
        """Whether all devices count as equally fast."""
        return len({kind.speed_ppm for kind in self.types}) < 2

    @cached_property
    def speed_by_type(self) -> Mapping[str, int]:
        return {kind.name: kind.speed_ppm for kind in self.types}

    @cached_property
    def node_by_name(self) -> Mapping[str, Node]:
        return {node.name: node for node in self.nodes}

    def names_around(self, node: Node) -> dict[str, str]:
        """Names of the domains around a node, by level, where they were given any."""
        found, around = {}, ""
        for level, names, index in zip(self.levels, self.domain_names, node.domains, strict=False):
            found[level] = names[index].removeprefix(f"{around}/")  # a name has those around it
            around = names[index]
        return {level: name for level, name in found.items() if name}

    @cached_property
    def domain_masks(self) -> tuple[tuple[int, ...], ...]:
        """For each level down to `node`, for each domain there: a bit per node inside it."""
        masks: list[list[int]] = [
            [0] * (1 + max((node.domains[level] for node in self.nodes), default=-1))
            for level in range(self.node_level + 1)
        ]
        for node in self.nodes:
            for level, domain in enumerate(node.domains):
                masks[level][domain] |= 1 << node.index
        return tuple(tuple(row) for row in masks)

    def has_devices(self, slices: Iterable[Slice]) -> bool:
        """Whether all these devices are there, each on its node."""
        count, node_of = self.gpu_count, self.node_of_gpu
        return all(0 <= gpu < count and node_of[gpu] == node for node, gpu, _, _, _ in slices)

    def span_of_nodes(self, nodes: Sequence[int]) -> int:
        """The deepest level, `node` at most, whose domain holds all these nodes."""
        first = self.nodes[nodes[0]].domains
        level = self.node_level
        for other in nodes[1:]:
            theirs = self.nodes[other].domains
            while first[level] != theirs[level]:
                level -= 1
        return level

    def span_of_gpus(self, gpus: Sequence[int]) -> int:
        """The deepest level whose domain holds all these GPUs: `gpu` for one alone."""
        if len(gpus) == 1:
            return len(self.levels) - 1
        node_of = self.node_of_gpu
        nodes = [node_of[gpu] for gpu in gpus]
        level = self.span_of_nodes(nodes)
        if level < self.node_level:
            return level
        node = self.nodes[nodes[0]]
        local = {gpu - node.first_gpu for gpu in gpus}
        for inner in range(len(node.island_levels), 0, -1):
            if any(local.issubset(island) for island in node.island_levels[inner - 1]):
                return level + inner
        return level

    def __str__(self) -> str:
        return f"{len(self.nodes)} nodes, {self.gpu_count} GPUs"


def parse_shorthand(text: str) -> Topology:
    """`15x4`: 15 nodes of 4 GPUs in one rack; `4x15x4`: 4 racks of those; one more for fabrics."""
    parts = text.lower().split("x")
    if not 2 <= len(parts) <= 4 or not all(part.isdecimal() for part in parts):
        raise TopologyError(
            f"cluster {text!r} is not of the form 15x4 (nodes x GPUs) or 4x15x4 (racks x nodes x GPUs)"
        )
    counts = [int(part) for part in parts]
    if not all(counts):
        raise TopologyError(f"cluster {text!r} has no GPUs: every number must be at least 1")
    if prod(counts) > MOST_GPUS:
        raise TopologyError(f"cluster {text!r} has more than {MOST_GPUS:,} GPUs")
    outer = counts[:-2]
    named = SHORTHAND_LEVELS[2 - len(outer) : 2] if outer else ("rack",)
    outer = outer or [1]
    nodes_per_domain, gpus = counts[-2], counts[-1]
    total = nodes_per_domain
    for count in outer:
        total *= count
    specs = []
    for index in range(total):
        path, rest = [], index // nodes_per_domain
        for count in reversed(outer):
            path.append(rest)
            rest //= count
        specs.append(NodeSpec(name=f"n{index}", gpus=gpus, path=(0, *reversed(path))))
    return build(("cluster", *named, "node", "gpu"), specs)


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """What a description says of one node; `build` gives it its indices."""

    name: str
    gpus: int
    path: tuple[int, ...]
    """Domain index at each level above `node`, outermost first."""
    type: GpuType = GpuType()
    cpus: int | None = None
    memory: int | None = None
    islands: int = 1
    """Equal groups of near GPUs, whatever makes them near; inside sockets and switches, if any."""
    sockets: int = 1
    switches: int = 1
    """PCIe switches of the whole node: equally many under each socket."""
    uuids: tuple[str, ...] = ()


CPUS_PER_GPU = 8_000
HOST_MEMORY_PER_GPU = 64 * GIB


def build(levels: tuple[str, ...], specs: Sequence[NodeSpec]) -> Topology:
    """A topology from node descriptions; unstated CPUs and host memory follow the GPUs."""
    if not specs:
        raise TopologyError("the cluster has no nodes")
    seen: set[str] = set()
    nodes, first_gpu = [], 0
    for index, spec in enumerate(specs):
        if spec.name in seen:
            raise TopologyError(f"two nodes of the cluster are called {spec.name!r}")
        seen.add(spec.name)
        nodes.append(
            Node(
                index=index,
                name=spec.name,
                type=spec.type,
                first_gpu=first_gpu,
                gpus=spec.gpus,
                cpus=spec.gpus * CPUS_PER_GPU if spec.cpus is None else spec.cpus,
                memory=spec.gpus * HOST_MEMORY_PER_GPU if spec.memory is None else spec.memory,
                island_levels=_island_levels(levels, spec),
                domains=(*spec.path, index),
                uuids=spec.uuids,
            )
        )
        first_gpu += spec.gpus
    if first_gpu == 0:
        raise TopologyError("the cluster has no GPUs")
    return Topology(levels=levels, nodes=tuple(nodes))


def _island_levels(
    levels: tuple[str, ...], spec: NodeSpec
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """The node's GPUs in ever smaller groups, one grouping for each level below `node`."""
    counts = {"socket": spec.sockets, "pcie": spec.switches, "island": spec.islands}
    groups: tuple[tuple[int, ...], ...] = (tuple(range(spec.gpus)),)
    found = []
    for level in levels[levels.index("node") + 1 : -1]:
        pieces = max(1, counts[level] // len(groups))
        groups = tuple(part for group in groups for part in _cut(group, pieces))
        found.append(groups)
    return tuple(found)


def _cut(group: tuple[int, ...], pieces: int) -> list[tuple[int, ...]]:
    """So many neighbouring parts of nearly equal size, none empty."""
    size = max(1, -(-len(group) // pieces))
    return [group[low : low + size] for low in range(0, len(group), size)] or [group]
