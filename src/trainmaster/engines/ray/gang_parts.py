"""How a gang's placement is divided over its nodes: what each of them is ordered, in its own numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainmaster.engines.ray.gang import Gang, Part
from trainmaster.model.actions import Launch, Order, Rebind, Reshape, Thaw
from trainmaster.model.launch_spec import GangPart, LaunchSpec, Ranks
from trainmaster.model.placement import Placement, Role, Sharing
from trainmaster.model.topology import CPU_TYPE, Topology
from trainmaster.model.units import WHOLE

CORE = 1000


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the ranks of one generation of a gang meet."""

    host: str
    port: int


def by_node(placement: Placement, topology: Topology) -> Mapping[str, Placement]:
    """The placement's part on each node, as that node counts its devices."""
    found = {}
    for index in placement.nodes:
        node = topology.nodes[index]
        slices = tuple(
            piece._replace(node=0, gpu=piece.gpu - node.first_gpu)
            for piece in placement.slices
            if piece.node == index
        )
        found[node.name] = replace(placement, slices=slices)
    return found


def parts_of(placements: Mapping[str, Placement], ranks: Ranks) -> tuple[Part, ...]:
    """One part for each node, with its ranks counted over the gang."""
    parts: list[Part] = []
    first = 0
    for node, placement in placements.items():
        count = 1 if ranks is Ranks.PER_NODE else len(placement.slices)
        parts.append(Part(node, first, count))
        first += count
    return tuple(parts)


def spec_of_part(
    spec: LaunchSpec, parts: tuple[Part, ...], index: int, meeting: Meeting, generation: int
) -> LaunchSpec:
    """What one node is given to launch; a gang on one node is told nothing of others."""
    if len(parts) == 1 and generation == 0:
        return spec
    return replace(
        spec,
        part=GangPart(
            first_rank=parts[index].first_rank,
            world=sum(part.ranks for part in parts),
            node_rank=index,
            nodes=len(parts),
            host=meeting.host,
            port=meeting.port,
            generation=generation,
        ),
    )


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """What one node is told."""

    node: str
    order: Order
    spec: LaunchSpec


def orders_of_parts(
    order: Order,
    spec: LaunchSpec,
    gang: Gang,
    placements: Mapping[str, Placement],
    meeting: Meeting,
) -> tuple[NodeOrder, ...]:
    """An order to a gang as its parts get it: each that has not ended, in its node's own numbers.

    Only a gang that is and stays on one node gets `Reshape`: its part then has other ranks.

    `placements` are those of an order that has a placement, by node; else there are none.
    """
    told = []
    for index, part in enumerate(gang.parts):
        if part.over is not None:
            continue
        if isinstance(order, Launch | Thaw | Rebind | Reshape) and placements:
            if part.node not in placements:
                continue
            own = replace(order, placement=placements[part.node])
            parts = gang.parts
            if isinstance(order, Reshape):
                parts = parts_of(placements, spec.ranks)
            own_spec = spec_of_part(spec, parts, index, meeting, gang.generation)
            told.append(NodeOrder(part.node, own, own_spec))
        else:
            told.append(NodeOrder(part.node, order, spec))
    return tuple(told)


@dataclass(frozen=True, slots=True)
class Reservation:
    """What is taken on the cluster for a run, by node, in thousandths of a GPU and of a core."""

    gpus: Mapping[str, int]
    cpus: Mapping[str, int]


NOTHING = Reservation({}, {})


def reservation(placement: Placement, spec: LaunchSpec, topology: Topology) -> Reservation:
    """Nothing for a run that has only what others leave of their GPUs."""
    if placement.role is Role.OPPORTUNISTIC:
        return NOTHING
    gpus: dict[str, int] = {}
    cpus: dict[str, int] = {}
    for part in parts_of(local := by_node(placement, topology), spec.ranks):
        node, own = topology.node_by_name[part.node], local[part.node]
        if node.type.name == CPU_TYPE:
            cpus[part.node] = CORE * len(own.slices)
            continue
        is_shared = placement.sharing is not Sharing.EXCLUSIVE
        gpus[part.node] = sum(piece.share if is_shared else WHOLE for piece in own.slices)
        if spec.cpus is not None:
            cpus[part.node] = spec.cpus * part.ranks
    return Reservation(gpus, cpus)
