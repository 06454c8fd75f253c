"""What a node has to hand out, by what Ray says of it and what its driver shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainmaster.gpu.devices import (
    LEVELS,
    Machine,
    find_gpus,
    has_device_files,
    machine_of,
    visible,
)
from trainmaster.gpu.driver import DriverError
from trainmaster.model.engine_reports import ClusterNode
from trainmaster.model.topology import SLOT_TYPE, GpuType, NodeSpec, build

SLOTS_LABEL = "trainmaster.io/cpu-slots"
"""So many CPU slots stand in for the GPUs of a node that carries it."""
TYPE_LABEL = "ray.io/accelerator-type"
LEVEL_LABELS = (
    ("fabric", ("trainmaster.io/fabric", "fabric")),
    ("rack", ("trainmaster.io/rack", "rack")),
)
"""The domains around a node, outermost first, and the labels that name them."""


class UnusableNode(Exception):
    """Why a node cannot take runs: one sentence."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node as Ray's control store has it."""

    name: str
    incarnation: str
    """Ray's id of the node: another one each time that its raylet starts."""
    host: str
    gpus: float
    cpus: float
    memory: int
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_devices(self) -> bool:
        """Whether runs could be there at all: a head without GPUs is not looked at."""
        return self.gpus > 0 or SLOTS_LABEL in self.labels

    @property
    def slots(self) -> int:
        """CPU slots that stand in for GPUs; 0 where there are none."""
        said = self.labels.get(SLOTS_LABEL, "")
        return int(said) if said.isdecimal() else 0


def machine_on(facts: NodeFacts, environ: Mapping[str, str]) -> Machine:
    """The devices of the node that this process is on; `environ` is that of its raylet."""
    if SLOTS_LABEL in facts.labels:
        return _slots(facts)
    try:
        found = visible(find_gpus(), environ.get("CUDA_VISIBLE_DEVICES"))
    except DriverError as error:
        raise UnusableNode(f"The GPU driver of {facts.name} does not answer: {error}") from None
    gpus = found[: int(facts.gpus)]
    if not gpus:
        raise UnusableNode(
            f"Ray was told that {facts.name} has GPUs, and its driver shows none: start its raylet with"
            f" --num-gpus=0, or with --labels={SLOTS_LABEL}=N to try it out with N CPU slots."
        )
    machine = machine_of(gpus, facts.name, int(facts.cpus * 1000), facts.memory)
    if len(machine.topology.nodes) > 1:
        raise UnusableNode(
            f"{facts.name} has GPUs of several kinds: start a raylet for each kind, with its own"
            " CUDA_VISIBLE_DEVICES and --node-name."
        )
    return machine


def _slots(facts: NodeFacts) -> Machine:
    count = facts.slots
    if not count:
        said = facts.labels[SLOTS_LABEL]
        raise UnusableNode(
            f"The label {SLOTS_LABEL}={said} of {facts.name} is not a number from 1."
        )
    type_ = GpuType(facts.labels.get(TYPE_LABEL, SLOT_TYPE), facts.memory // (4 * count))
    spec = NodeSpec(
        name=facts.name,
        gpus=count,
        path=(0, 0),
        type=type_,
        cpus=int(facts.cpus * 1000),
        memory=facts.memory,
    )
    return Machine(build(LEVELS, [spec]), (), minors=() if has_device_files() else None)


def cluster_node(facts: NodeFacts, machine: Machine) -> ClusterNode:
    """The same for the manager."""
    (node,) = machine.topology.nodes
    return ClusterNode(
        name=facts.name,
        host=facts.host,
        gpus=node.gpus,
        type=node.type,
        cpus=node.cpus,
        memory=node.memory,
        uuids=machine.devices,
        domains=domains_of(facts.labels),
    )


def domains_of(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    named = (
        (level, [labels[each] for each in keys if labels.get(each)]) for level, keys in LEVEL_LABELS
    )
    return tuple((level, names[0]) for level, names in named if names)
