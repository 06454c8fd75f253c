"""The ways to place a job, as values that a policy chooses from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum

from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import JobRecord, is_on_slots, kept_memory
from trainmaster.model.job import Demand, Shape
from trainmaster.model.placement import Placement, Role, Sharing, Slice
from trainmaster.model.units import WHOLE
from trainmaster.placement.fractions import place_parts
from trainmaster.placement.gang import (
    NodesByFree,
    Share,
    anywhere,
    bits,
    by_domain,
    one_node,
    placement_of,
    rows_for,
)


class LocalityRule(Enum):
    """How close together a job's GPUs must be."""

    CONSOLIDATED = "consolidated"
    """The fewest nodes that could ever hold it, in one rack if possible, or it waits."""
    RELAXING = "relaxing"
    """The same where possible; else the innermost domain, then the cluster, fewest nodes first."""
    SPREAD = "spread"
    """Wherever GPUs are free, the fullest nodes first."""


@dataclass(frozen=True, slots=True)
class Placer:
    """A rule that turns a shape and what is free into slices."""

    locality: LocalityRule

    insists: bool = field(init=False)
    """Whether a job may have to wait although enough GPUs are free."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "insists", self.locality is LocalityRule.CONSOLIDATED)

    def place(
        self, space: Occupancy, record: JobRecord, budget: int | None = None
    ) -> Placement | None:
        """The job's nominal shape, or None where it does not fit now; a frozen run in its own place.

        A budget bounds its total share.
        """
        demand = record.demand
        if budget is not None and demand.nominal.total_share > budget:
            return None
        if record.frozen is not None:
            found = thaw_place(space, record, record.frozen)
            if found is not None or record.cannot_save:
                return found
        elif record.cannot_save and record.placement is not None:
            found = thaw_place(space, record, record.placement)
            return found if found and space.refusal(found, demand) is None else None
        if not record.is_whole:
            return self.shaped(space, demand, demand.nominal)
        return self._whole(space, demand, demand.nominal, record.job.role)

    def shaped(
        self,
        space: Occupancy,
        demand: Demand,
        shape: Shape,
        role: Role = Role.GUARANTEED,
        budget: int | None = None,
    ) -> Placement | None:
        """This shape of a job, or None where it does not fit now or is above the budget."""
        sharing = demand.mode
        if budget is not None and shape.total_share > budget:
            return None
        if shape.parts or sharing is not Sharing.EXCLUSIVE:
            return place_parts(space, demand, shape, sharing, role)
        return self._whole(space, demand, shape, role)

    def _whole(
        self, space: Occupancy, demand: Demand, shape: Shape, role: Role
    ) -> Placement | None:
        return elsewhere_first(
            space, demand, lambda: self._whole_of_all(space, demand, shape, role)
        )

    def _whole_of_all(
        self, space: Occupancy, demand: Demand, shape: Shape, role: Role
    ) -> Placement | None:
        count = shape.count
        for row, searched in rows_for(space, space.kinds_for(demand), count):
            shares = self._shares(space, row, demand, count, searched)
            if shares is not None:
                placement = placement_of(space, shares, shape, role)
                if shape.memory and not has_memory(space, placement, shape.memory):
                    return None
                return placement
        return None

    def _shares(
        self, space: Occupancy, row: NodesByFree, demand: Demand, count: int, kinds: tuple[int, ...]
    ) -> list[Share] | None:
        """How many GPUs of which nodes, out of one row; other placers override this."""
        shares = one_node(space, row, demand, count) if count < len(row) else None
        if self.locality is LocalityRule.SPREAD:
            return shares if count == 1 else anywhere(space, row, demand, count)
        if shares is None:
            shares = self._several(space, row, demand, count, kinds)
        return shares

    def _several(
        self, space: Occupancy, row: NodesByFree, demand: Demand, count: int, kinds: tuple[int, ...]
    ) -> list[Share] | None:
        """More than one node: the fewest possible, or as few as are free where that is allowed."""
        fewest = space.fewest_nodes(kinds, demand, count)
        shares = None
        if fewest > 1:
            shares = by_domain(space, row, demand, count, kinds, limit=fewest)
        if shares is None and self.locality is LocalityRule.RELAXING:
            shares = by_domain(space, row, demand, count, kinds, limit=None)
        return shares


def elsewhere_first(
    space: Occupancy, demand: Demand, find: Callable[[], Placement | None]
) -> Placement | None:
    """On other devices than those that it avoids; on those too, where it may and nothing else will do."""
    if demand.avoid:
        with space.without((*demand.avoid, *demand.barred)):
            found = find()
        if found is not None or demand.must_avoid:
            return found
    if demand.barred:
        with space.without(demand.barred):
            return find()
    return find()


CONSOLIDATED = Placer(LocalityRule.CONSOLIDATED)
RELAXING = Placer(LocalityRule.RELAXING)
SPREAD = Placer(LocalityRule.SPREAD)


def has_memory(space: Occupancy, placement: Placement, memory: int) -> bool:
    """Whether frozen runs leave the memory that the job states on each of its GPUs."""
    return all(space.free_memory[gpu] >= memory for gpu in placement.gpus())


def thaw_place(space: Occupancy, record: JobRecord, frozen: Placement) -> Placement | None:
    """Where its frozen run can go on now: in its own place, or on other devices of its nodes.

    Any CPU slots will do, and GPUs where the driver can move a frozen run (not seen on hardware).
    """
    is_slot = is_on_slots(space.topology, frozen)
    if frozen.sharing is not Sharing.EXCLUSIVE:
        return frozen if _fits_again(space, record, frozen) else None
    if can_thaw(space, record, frozen):
        return frozen
    is_movable = space.can_move_frozen and record.frozen is frozen and record.is_movable
    if not is_slot and not is_movable:
        return None
    slices: list[Slice] = []
    for node in frozen.nodes:
        here = [piece for piece in frozen.slices if piece.node == node]
        first, barred = space.first_gpu[node], record.demand.barred
        idle = [local for local in bits(space.whole[node]) if first + local not in barred]
        own = [piece.gpu for piece in here if piece.gpu - first in idle]
        others = [first + local for local in idle if first + local not in own]
        slots = sorted((own + others)[: len(here)])
        slices += [piece._replace(gpu=gpu) for piece, gpu in zip(here, slots, strict=False)]
    if len(slices) < len(frozen.slices):
        return None
    span = space.topology.span_of_gpus([piece.gpu for piece in slices])
    found = replace(frozen, slices=tuple(slices), span=span)
    if any(piece.memory > space.free_memory[piece.gpu] for piece in slices):
        return None
    return found if can_thaw(space, record, found) else None


def _fits_again(space: Occupancy, record: JobRecord, frozen: Placement) -> bool:
    """Whether a part of a GPU is free for its run, which releases what it keeps while it is frozen."""
    if is_barred(record, frozen):
        return False
    host, memory, *_ = kept_memory(space.topology, record, frozen)
    gpus = tuple(frozen.gpus()) if record.frozen is not None else ()
    return space.refusal_without(gpus, memory, host, frozen, record.demand) is None


def is_barred(record: JobRecord, placement: Placement) -> bool:
    """Whether some of these GPUs are kept free of it."""
    barred = record.demand.barred
    return bool(barred) and not set(barred).isdisjoint(placement.gpus())


def can_thaw(space: Occupancy, record: JobRecord, frozen: Placement) -> bool:
    """Whether the GPUs of its frozen run are idle, and their nodes can carry it again."""
    if is_barred(record, frozen):
        return False
    shares: dict[int, int] = {}
    for piece in frozen.slices:
        node = piece.node
        is_idle = space.whole[node] >> (piece.gpu - space.first_gpu[node]) & 1
        if not is_idle or node in space.closed:
            return False
        shares[node] = shares.get(node, 0) + WHOLE
    kept = kept_memory(space.topology, record, frozen).host
    return all(
        space.has_host_room(node, share, record.demand, kept=kept * share // WHOLE)
        for node, share in shares.items()
    )


def ever_fits(space: Occupancy, demand: Demand, *, is_moldable: bool = False) -> bool:
    """Whether the empty cluster could hold the nominal shape, or the smallest one if the policy molds."""
    shapes = [demand.nominal]
    if is_moldable and demand.is_elastic:
        shapes.append(demand.sized(demand.min_count))
    return any(RELAXING.shaped(space, demand, shape) is not None for shape in shapes)
