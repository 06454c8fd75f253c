"""The devices of this machine: its GPUs and MIG slices, or CPU slots in their place."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainmaster.gpu.driver import Gpu, open_driver
from trainmaster.gpu.freeze_conditions import cgroups_of, memory_limit
from trainmaster.model.topology import (
    SLOT_TYPE,
    GpuType,
    Node,
    NodeSpec,
    Topology,
    TopologyError,
    build,
)
from trainmaster.model.units import GIB

MOST_SLOTS = 4096
LEVELS = ("cluster", "rack", "node", "gpu")
LEVELS_WITH_ISLANDS = ("cluster", "rack", "node", "island", "gpu")


@dataclass(frozen=True, slots=True)
class Machine:
    """A topology, and what its devices are called in CUDA_VISIBLE_DEVICES."""

    topology: Topology
    devices: tuple[str, ...]
    """UUIDs by the topology's GPU numbers; empty where CPU slots stand in for GPUs."""
    numbers: tuple[int, ...] = ()
    """The same GPUs as the driver counts them."""
    minors: tuple[int, ...] | None = None
    """N of their device files /dev/nvidiaN; none where CPU slots stand in for GPUs that are there; None:
    there are no GPUs, or the driver does not say."""


def detect_machine(slots: str | None = None) -> Machine:
    """This machine's GPUs; CPU slots if it has none, or if slots are requested.

    `slots` is a number, or `2x4` for two nodes of four: several nodes on one machine, for trying out.
    """
    gpus = () if slots else visible(find_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    if gpus:
        return machine_of(gpus, socket.gethostname(), cores() * 1000, host_memory())
    nodes, each = _shape(slots) if slots else (1, cores())
    topology = slot_topology(nodes, each, socket.gethostname(), cores() * 1000, host_memory())
    return Machine(topology, (), minors=() if has_device_files() else None)


def with_memory(machine: Machine, memory: int) -> Machine:
    """The same GPUs with so many bytes to book on each; TopologyError where one has less."""
    nodes = machine.topology.nodes
    least = min(nodes, key=lambda node: node.type.memory).type
    if memory > least.memory:
        raise TopologyError(f"is more than one {least.name} has: {least.memory / GIB:.1f} GiB")
    smaller = tuple(replace(node, type=replace(node.type, memory=memory)) for node in nodes)
    return replace(machine, topology=replace(machine.topology, nodes=smaller))


def slot_topology(nodes: int, slots: int, host: str, cpus: int, memory: int) -> Topology:
    """Nodes of CPU slots, which share the machine's cores and memory."""
    type_ = GpuType(name=SLOT_TYPE, memory=memory // (4 * nodes * slots))
    return build(
        LEVELS,
        [
            NodeSpec(
                name=host if nodes == 1 else f"{host}-{index}",
                gpus=slots,
                path=(0, 0),
                type=type_,
                cpus=cpus // nodes,
                memory=memory // nodes,
            )
            for index in range(nodes)
        ],
    )


def machine_of(gpus: Sequence[Gpu], host: str, cpus: int, memory: int) -> Machine:
    """One node, or one for each kind of GPU where there are several; near GPUs side by side."""
    kinds = list(dict.fromkeys((gpu.kind, gpu.memory) for gpu in gpus))
    rows = [_side_by_side([g for g in gpus if (g.kind, g.memory) == kind]) for kind in kinds]
    specs = [
        NodeSpec(
            name=host if index == 0 else f"{host}-{kind.lower()}-{index}",
            gpus=sum(map(len, row)),
            path=(0, 0),
            type=GpuType(name=kind, memory=each_memory),
            cpus=cpus * sum(map(len, row)) // len(gpus),
            memory=memory * sum(map(len, row)) // len(gpus),
            uuids=tuple(gpu.uuid for isle in row for gpu in isle),
        )
        for index, ((kind, each_memory), row) in enumerate(zip(kinds, rows, strict=True))
    ]
    topology = build(LEVELS, specs)
    if any(len(row) > 1 for row in rows):
        nodes = tuple(map(_with_islands, topology.nodes, rows))
        topology = Topology(levels=LEVELS_WITH_ISLANDS, nodes=nodes)
    ordered = [gpu for row in rows for isle in row for gpu in isle]
    minors = tuple(gpu.minor for gpu in ordered if gpu.minor is not None)
    return Machine(
        topology,
        topology.uuids,
        tuple(gpu.number for gpu in ordered),
        minors if len(minors) == len(ordered) else None,
    )


def _with_islands(node: Node, islands: Sequence[Sequence[Gpu]]) -> Node:
    found, first = [], 0
    for island in islands:
        found.append(tuple(range(first, first + len(island))))
        first += len(island)
    return replace(node, island_levels=(tuple(found),))


def _side_by_side(gpus: Sequence[Gpu]) -> list[list[Gpu]]:
    """Groups in which every GPU is near another one, in the order of their first GPUs."""
    groups: list[list[Gpu]] = []
    for gpu in gpus:
        joined = [group for group in groups if any(_are_near(gpu, other) for other in group)]
        merged = [other for group in joined for other in group]
        groups = [group for group in groups if group not in joined] + [[*merged, gpu]]
    return sorted(groups, key=lambda group: min(gpu.number for gpu in group))


def _are_near(one: Gpu, other: Gpu) -> bool:
    return one.number in other.near or other.number in one.near


def visible(gpus: Sequence[Gpu], setting: str | None) -> tuple[Gpu, ...]:
    """Those that CUDA_VISIBLE_DEVICES leaves us, by number or UUID; all where it is not set."""
    if setting is None:
        return tuple(gpus)
    wanted = [each.strip() for each in setting.split(",") if each.strip()]
    return tuple(
        gpu
        for gpu in gpus
        if any(each == str(gpu.number) or gpu.uuid.startswith(each) for each in wanted)
    )


def find_gpus() -> tuple[Gpu, ...]:
    """All devices that the driver knows; none without a driver.

    DriverError for a driver that does not answer: GPU jobs must not silently run on CPU slots.
    """
    driver = open_driver()
    try:
        return driver.gpus()
    finally:
        driver.close()


def has_device_files() -> bool:
    """Whether the kernel has GPUs, whatever NVML says."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def host_memory() -> int:
    """Bytes that this process and what it starts may have, as in a container with a limit."""
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(installed, memory_limit(cgroups_of(os.getpid())) or installed)


def _shape(text: str) -> tuple[int, int]:
    nodes, cross, each = text.lower().rpartition("x")
    nodes = nodes if cross else "1"
    if not (nodes.isdecimal() and each.isdecimal()):
        raise TopologyError(
            f"--slots {text} is neither a number nor of the form 2x4 (nodes x slots), nor auto"
        )
    if not 0 < int(nodes) * int(each) <= MOST_SLOTS:
        raise TopologyError(f"--slots {text} must be from 1 to {MOST_SLOTS:,} slots in all")
    return int(nodes), int(each)
