"""How a gang's placement is divided over its nodes: what each of them is ordered, in its own numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainmaster.engines.ray.gang import Due, Gang, Part
from trainmaster.model.actions import Launch, Order, Rebind, Reshape, Thaw
from trainmaster.model.launch_spec import GangPart, LaunchSpec, Ranks
from trainmaster.model.placement import Placement, Role, Sharing
from trainmaster.model.topology import Topology
from trainmaster.model.units import WHOLE
from trainmaster_sdk.wire import Message


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
        devices = tuple(piece.gpu for piece in placement.slices)
        parts.append(Part(node, first, count, devices=devices))
        first += count
    return tuple(parts)


def spec_of_part(
    spec: LaunchSpec,
    parts: tuple[Part, ...],
    index: int,
    meeting: Meeting,
    shape: int,
    *,
    in_place: bool = False,
) -> LaunchSpec:
    """What one node is given to launch, or to resize; a gang on one node is told nothing of others."""
    if len(parts) == 1 and shape == 0:
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
            generation=shape,
            in_place=in_place,
            numbers=parts[index].numbers if in_place else (),
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
    for index, part in enumerate(gang.member_parts):
        if part.over is not None:
            continue
        if isinstance(order, Launch | Thaw | Rebind | Reshape) and placements:
            if part.node not in placements:
                continue
            own = replace(order, placement=placements[part.node])
            parts = gang.member_parts
            if isinstance(order, Reshape):
                parts = parts_of(placements, spec.ranks)
            own_spec = spec_of_part(spec, parts, index, meeting, part.shape)
            told.append(NodeOrder(part.node, own, own_spec))
        else:
            told.append(NodeOrder(part.node, order, spec))
    return tuple(told)


def orders_of_resize(
    spec: LaunchSpec, gang: Gang, placements: Mapping[str, Placement], meeting: Meeting
) -> tuple[NodeOrder, ...]:
    """What is told to parts that are not ready for the resize in place that is under way: those on nodes that
    stay get other ranks, those on new nodes are launched to join them."""
    resize = gang.resize
    if resize is None or resize.is_asked:
        return ()
    told = []
    for at, index in enumerate(resize.members):
        part = gang.parts[index]
        if part.over is not None or part.ready == gang.shape or part.node not in placements:
            continue
        own, order = placements[part.node], Reshape(gang.run, placements[part.node])
        own_spec = spec_of_part(spec, resize.target, at, meeting, gang.shape, in_place=True)
        launch = Launch(gang.run, own, 0)
        told.append(NodeOrder(part.node, launch if part.joins else order, own_spec))
    return tuple(told)


def steering(gang: Gang, index: int, what: Due, meeting: Meeting) -> Message:
    """What the supervisor of a part is told, of a resize or of a rank that was lost."""
    said: Message = {"order": what.value, "number": gang.shape}
    resize = gang.resize
    if what is Due.REGROUP and resize is not None:
        target = resize.target[resize.members.index(index)]
        world = sum(part.ranks for part in resize.target)
        said |= {"first": target.first_rank, "world": world}
        said |= {"host": meeting.host, "port": meeting.port}
    return said


@dataclass(frozen=True, slots=True)
class Reservation:
    """What is taken on the cluster for a run, by node, in thousandths of a device and of a core."""

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
        is_shared = placement.sharing is not Sharing.EXCLUSIVE
        gpus[part.node] = sum(
            piece.share if is_shared else WHOLE for piece in local[part.node].slices
        )
        if spec.cpus is not None:
            cpus[part.node] = spec.cpus * part.ranks
    return Reservation(gpus, cpus)


def together(one: Reservation, other: Reservation) -> Reservation:
    """What a run holds that goes from one to the other."""
    return Reservation(_most(one.gpus, other.gpus), _most(one.cpus, other.cpus))


def _most(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {node: max(one.get(node, 0), other.get(node, 0)) for node in (*one, *other)}
