"""Resize runs: shrink to the nominal size, grow into idle GPUs, and what such a placement looks like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from trainmaster.core.draft import Draft
from trainmaster.core.lifecycle import Phase
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model.job import Demand
from trainmaster.model.placement import Placement, Sharing, Slice
from trainmaster.model.units import WHOLE
from trainmaster.placement.gang import bits
from trainmaster.placement.placers import LocalityRule, Placer

ELASTIC_MODES = ("rigid", "moldable", "malleable")

IsWorth = Callable[[JobRecord, Placement], bool]
"""Whether a job gains by this placement instead of its current one."""


class CurrentSizePlacer(Placer):
    """Places a run again with as many GPUs as it has."""

    def place(
        self, space: Occupancy, record: JobRecord, budget: int | None = None
    ) -> Placement | None:
        held, demand = record.placement, record.demand
        if held is None or not record.is_whole or record.cannot_save:
            return Placer.place(self, space, record, budget)
        return self.shaped(space, demand, demand.sized(len(held.slices)), held.role, budget)


CURRENT_SIZE = CurrentSizePlacer(LocalityRule.RELAXING)


def at_current_size(record: JobRecord) -> Placer:
    return CURRENT_SIZE


def is_open(space: Occupancy, placement: Placement) -> bool:
    """Whether none of its nodes is closed, and no GPU set aside: such runs may be moved, not resized."""
    return space.is_open(placement)


def can_resize(record: JobRecord, space: Occupancy, phase: Phase = Phase.RUNNING) -> bool:
    """Whether a run may be given another number of GPUs: now, or at the end of its present resize."""
    placement = record.placement
    return (
        placement is not None
        and record.phase is phase
        and not (record.cannot_save or record.is_protected)
        and record.is_whole
        and placement.sharing is Sharing.EXCLUSIVE
        and is_open(space, placement)
    )


def shrink_to_nominal(draft: Draft, runs: Iterable[JobRecord]) -> bool:
    """Shrink every job that has grown beyond its nominal size; returns whether any did."""
    has_shrunk = False
    for record, placement in _resizable(draft, runs):
        nominal = record.demand.nominal.count
        is_beyond = record.demand.is_elastic and len(placement.slices) > nominal
        if is_beyond and is_open(draft.space, placement):
            draft.resize(record, resized(draft.view, placement, placement.slices[:nominal]))
            has_shrunk = True
    return has_shrunk


def grow_into_idle(
    draft: Draft,
    runs: Iterable[JobRecord],
    is_worth: IsWorth = lambda record, placement: True,
) -> None:
    """In the order given, each job takes idle GPUs of its own nodes, up to its maximum."""
    for record, placement in _resizable(draft, runs):
        room = record.demand.max_count - len(placement.slices)
        if draft.budget is not None:
            room = min(room, draft.budget // WHOLE)
        extra = idle_beside(draft, record, placement, room) if room > 0 else []
        if extra:
            larger = resized(draft.view, placement, (*placement.slices, *extra))
            if is_worth(record, larger):
                draft.resize(record, larger)


def _resizable(draft: Draft, runs: Iterable[JobRecord]) -> Iterator[tuple[JobRecord, Placement]]:
    """The jobs that run on exclusive GPUs and that this draft has not touched."""
    for record in runs:
        placement = record.placement
        if record.phase is not Phase.RUNNING or placement is None or draft.is_touched(record):
            continue
        if record.cannot_save or record.is_protected:
            continue
        if placement.sharing is Sharing.EXCLUSIVE:
            yield record, placement


def idle_beside(draft: Draft, record: JobRecord, placement: Placement, room: int) -> list[Slice]:
    """Idle GPUs of its own nodes, at most `room`, that its hosts can carry."""
    space, demand = draft.space, record.demand
    found: list[Slice] = []
    for node in placement.nodes:
        if node in space.closed:
            continue
        carried = space.room_on(node, room - len(found), demand)
        free = [gpu for gpu in free_gpus_of(space, node, demand) if draft.is_at_hand(gpu)]
        found += slices_on(node, free[:carried], record)
    return found


def free_gpus_of(space: Occupancy, node: int, demand: Demand) -> list[int]:
    """GPUs of a node that are booked by no job, and that this one need not avoid."""
    first = space.first_gpu[node]
    free = [first + local for local in bits(space.whole[node])]
    return [gpu for gpu in free if not demand.forbids(gpu)] if demand.forbidden else free


def slices_on(node: int, gpus: Iterable[int], record: JobRecord) -> list[Slice]:
    memory = record.demand.nominal.memory
    return [Slice(node, gpu, memory=memory) for gpu in gpus]


def fullest_first(slices: Sequence[Slice]) -> list[Slice]:
    """The same slices; nodes with most of them come first."""
    per_node: dict[int, int] = {}
    for piece in slices:
        per_node[piece.node] = per_node.get(piece.node, 0) + 1
    return sorted(slices, key=lambda piece: (-per_node[piece.node], piece.node, piece.gpu))


def by_gpu(slices: Iterable[Slice]) -> tuple[Slice, ...]:
    return tuple(sorted(slices, key=lambda piece: piece.gpu))


def resized(view: View, placement: Placement, slices: tuple[Slice, ...]) -> Placement:
    """The same run on other slices."""
    span = view.topology.span_of_gpus([piece.gpu for piece in slices])
    return Placement(slices, span, placement.sharing, placement.role)
