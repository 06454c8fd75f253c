"""The job of a run, written beside the run at its launch and whenever its user changes it: a store is rebuilt
from it."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from trainmaster.core.state import JobRecord
from trainmaster.daemon.device_names import device_key
from trainmaster.model import codec
from trainmaster.model.codec import CodecError
from trainmaster.model.placement import Placement
from trainmaster.model.topology import Topology
from trainmaster.store.rows import StoredJob

COLUMNS = tuple(each.name for each in fields(StoredJob))


class PlacedNode(NamedTuple):
    """A node of a placement, whose indices mean nothing to a manager with other devices."""

    name: str
    type: str
    """Of its devices."""
    first_gpu: int


def placed_nodes(placement: Placement | None, topology: Topology) -> tuple[PlacedNode, ...]:
    nodes = [topology.nodes[index] for index in (() if placement is None else placement.nodes)]
    return tuple(PlacedNode(node.name, node.type.name, node.first_gpu) for node in nodes)


class Beyond(NamedTuple):
    """What its failures let a job ask for beyond its submission."""

    gpu_memory: int = 0
    memory: int = 0
    avoid: tuple[str, ...] = ()
    """Devices, by names that stay."""

    @classmethod
    def of(cls, record: JobRecord | None, topology: Topology) -> Beyond:
        if record is None:
            return cls()
        now, first = record.demand_after_prerun or record.demand, record.job.demand
        return cls(
            now.nominal.memory if now.nominal.memory > first.nominal.memory else 0,
            (now.host_memory or 0) if now.host_memory != first.host_memory else 0,
            tuple(device_key(topology, gpu) for gpu in now.avoid),
        )

    def devices(self, topology: Topology) -> tuple[tuple[int, int], ...]:
        """(Node, GPU) of those to avoid that are there."""
        keys = {device_key(topology, gpu): gpu for gpu in range(topology.gpu_count)}
        found = [keys[name] for name in self.avoid if name in keys]
        return tuple((topology.node_of_gpu[gpu], gpu) for gpu in found)


NOTHING_BEYOND = Beyond()


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """A job as the store has it, and where its run was started."""

    row: StoredJob
    placement: Placement | None
    seq: int = 0
    """The last step of the store then: which of the two is newer."""
    nodes: tuple[PlacedNode, ...] = ()
    """Those of the placement; none where an earlier version wrote it."""
    beyond: Beyond = NOTHING_BEYOND

    def to_json(self) -> str:
        row = {name: getattr(self.row, name) for name in COLUMNS}
        stated = {"row": row, "placement": codec.encode(self.placement), "seq": self.seq}
        return json.dumps(stated | {"nodes": self.nodes, "beyond": self.beyond})

    @classmethod
    def from_json(cls, text: str) -> LaunchRecord:
        """ValueError where it is not one."""
        try:
            said = json.loads(text)
            row = {name: value for name, value in said["row"].items() if name in COLUMNS}
            nodes = tuple(PlacedNode(*each) for each in said.get("nodes", ()))
            placement = codec.decode(said["placement"])
            if nodes and (placement is None or len(nodes) != len(placement.nodes)):
                raise ValueError("its nodes are not those of its placement")
            gpu_memory, memory, avoid = said.get("beyond", NOTHING_BEYOND)
            beyond = Beyond(gpu_memory, memory, tuple(avoid))
            return cls(StoredJob(**row), placement, said.get("seq", 0), nodes, beyond)
        except (KeyError, TypeError, CodecError) as error:
            raise ValueError(str(error)) from error

    def placement_on(self, topology: Topology) -> Placement | None:
        """The placement by the indices of these devices; None where a node is another one, or not there."""
        if self.placement is None or not self.nodes:
            return self.placement
        here = {(node.name, node.type.name): node for node in topology.nodes}
        found = {
            index: (here.get((was.name, was.type)), was.first_gpu)
            for index, was in zip(self.placement.nodes, self.nodes, strict=True)
        }
        slices = []
        for piece in self.placement.slices:
            node, first_gpu = found[piece.node]
            if node is None:
                return None
            gpu = node.first_gpu + piece.gpu - first_gpu
            slices.append(piece._replace(node=node.index, gpu=gpu))
        return replace(self.placement, slices=tuple(slices))
