"""What a device is called: for people, and for good; its index changes with the order of the devices."""

from __future__ import annotations

from collections.abc import Iterable

from trainmaster.model.topology import Topology


def device_name(topology: Topology, gpu: int) -> str:
    """As people know it: `node:number`."""
    node = topology.nodes[topology.node_of_gpu[gpu]]
    return f"{node.name}:{gpu - node.first_gpu}"


def device_key(topology: Topology, gpu: int) -> str:
    """What it is called for good, whatever joins its cluster: its UUID, or `node:number` of a CPU slot."""
    node = topology.nodes[topology.node_of_gpu[gpu]]
    known = len(node.uuids) == node.gpus
    return node.uuids[gpu - node.first_gpu] if known else device_name(topology, gpu)


def devices_named(topology: Topology, keys: Iterable[str]) -> list[tuple[int, int]]:
    """(Node, GPU) of those that are still there."""
    wanted = set(keys)
    return [
        (node, gpu)
        for gpu, node in enumerate(topology.node_of_gpu if wanted else ())
        if device_key(topology, gpu) in wanted
    ]
