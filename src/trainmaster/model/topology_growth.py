"""The topology of a cluster whose nodes come and go: it only grows, so that its indices keep their meaning.

A node that comes for the first time gets the next numbers. One that goes keeps its own. One that comes back
with the same devices is the same node; with others it is a new one, once the old one is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from trainmaster.model.engine_reports import ClusterNode
from trainmaster.model.topology import (
    CPU_TYPE,
    INSIDE_NODE,
    SLOT_TYPE,
    GpuType,
    Node,
    Topology,
)
from trainmaster.model.units import GIB

SLOTS = (SLOT_TYPE, CPU_TYPE)


def topology_of(nodes: Sequence[ClusterNode]) -> Topology:
    """Where these nodes are all that was ever seen; without any, a topology that can grow.

    Its levels are those that these nodes name, and `rack`: they stay what they are.
    """
    named = (level for node in nodes for level, _ in node.domains)
    levels = dict.fromkeys(each for each in named if each not in ("cluster", *INSIDE_NODE))
    return grown(Topology(("cluster", *(levels | {"rack": None}), "node", "gpu"), ()), nodes)


def grown(topology: Topology, nodes: Iterable[ClusterNode]) -> Topology:
    """With these nodes: those it does not know come last, the others are as they are found now.

    A node that is known with other devices stays as it was.
    """
    for found in nodes:
        known = topology.node_by_name.get(found.name)
        if known is None:
            topology = _with_node(topology, found, len(topology.nodes), topology.gpu_count)
        elif not has_other_devices(topology, found):
            topology = _with_node(topology, found, known.index, known.first_gpu)
    return topology


def has_other_devices(topology: Topology, found: ClusterNode) -> bool:
    """Whether a node of this name is known with another number, or another type, of devices."""
    known = topology.node_by_name.get(found.name)
    if known is None:
        return False
    return (known.gpus, known.type) != (found.gpus, _type_of(found, topology))


def forgotten(topology: Topology, node: int) -> Topology:
    """Without the name of a node that does not come back: another node may be called so."""
    old = topology.nodes[node]
    nodes = list(topology.nodes)
    nodes[node] = replace(old, name=f"{old.name}~{node}")
    return replace(topology, nodes=tuple(nodes))


def _with_node(topology: Topology, found: ClusterNode, index: int, first_gpu: int) -> Topology:
    names, path = _place(topology, found)
    node = Node(
        index=index,
        name=found.name,
        type=_type_of(found, topology),
        first_gpu=first_gpu,
        gpus=found.gpus,
        cpus=found.cpus,
        memory=found.memory,
        island_levels=tuple(
            (tuple(range(found.gpus)),) for _ in topology.levels[topology.node_level + 1 : -1]
        ),
        domains=(*path, index),
        uuids=found.uuids,
    )
    nodes = (*topology.nodes[:index], node, *topology.nodes[index + 1 :])
    return replace(topology, nodes=nodes, domain_names=names)


def _place(
    topology: Topology, found: ClusterNode
) -> tuple[tuple[tuple[str, ...], ...], tuple[int, ...]]:
    """The names of all domains with those around this node, and the index of its own at each level.

    A domain is known by the names of all that are around it, and its own. A node that does not say where it
    is lies with the others that do not.
    """
    said: Mapping[str, str] = dict(found.domains)
    names, path, own = [], [], ""
    known = topology.domain_names or tuple(() for _ in range(topology.node_level))
    for level, there in zip(topology.levels[: topology.node_level], known, strict=True):
        own = f"{own}/{said.get(level, '')}" if level != "cluster" else ""
        there = there if own in there else (*there, own)
        names.append(there)
        path.append(there.index(own))
    return tuple(names), tuple(path)


def _type_of(found: ClusterNode, topology: Topology) -> GpuType:
    """The type of its devices: those of one name have one memory size, a whole number of GiB.

    A device of a known name and another size is a type of its own, named by its size. Slots are all alike.
    """
    types = {kind.name: kind for kind in topology.types}
    type_ = found.type
    if type_.name in SLOTS:
        return types.get(type_.name, type_)
    if type_.memory >= GIB:
        type_ = replace(type_, memory=type_.memory // GIB * GIB)
    known = types.get(type_.name, type_)
    if known.memory == type_.memory:
        return known
    sized = f"{type_.name}-{type_.memory // GIB}GiB"
    return types.get(sized, replace(type_, name=sized))
