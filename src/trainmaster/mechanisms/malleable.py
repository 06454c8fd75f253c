"""Elastic jobs under a policy that is not elastic itself: grow into idle GPUs, shrink when asked."""

from __future__ import annotations

from collections.abc import Callable

from trainmaster.core.draft import Draft
from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model.placement import Placement, Sharing, Slice
from trainmaster.model.units import WHOLE
from trainmaster.placement.gang import bits

ELASTIC_MODES = ("rigid", "moldable", "malleable")


def shrink_for_waiting(view: View, draft: Draft) -> None:
    """Every job that has grown gives back what is beyond its nominal number."""
    for record in view.running():
        placement, nominal = record.placement, record.demand.nominal.count
        if record.phase is not Phase.RUNNING or placement is None or draft.is_touched(record):
            continue
        if not view.occupancy.closed.isdisjoint(placement.nodes):
            continue  # what is left there is to be moved, not reshaped
        if record.demand.is_elastic and len(placement.slices) > nominal:
            draft.resize(record, resized(view, placement, placement.slices[:nominal]))


IsWorth = Callable[[JobRecord, Placement], bool]
"""Whether a job gains by this placement instead of its present one."""


def grow_idle(view: View, draft: Draft, is_worth: IsWorth = lambda record, placement: True) -> None:
    """In order of submission, each elastic job takes idle GPUs of its own nodes, up to its maximum."""
    for record in view.running():
        placement = record.placement
        if record.phase is not Phase.RUNNING or placement is None or draft.is_touched(record):
            continue
        if placement.sharing is not Sharing.EXCLUSIVE:
            continue
        room, allowance = record.demand.max_count - len(placement.slices), draft.space.allowance
        if allowance is not None:
            room = min(room, allowance // WHOLE)
        if room > 0:
            extra = idle_beside(draft, record, placement, room)
            if extra:
                larger = resized(view, placement, (*placement.slices, *extra))
                if is_worth(record, larger):
                    draft.resize(record, larger)


def idle_beside(draft: Draft, record: JobRecord, placement: Placement, room: int) -> list[Slice]:
    """Idle GPUs of its own nodes, at most `room`, that its hosts can carry."""
    space, demand = draft.space, record.demand
    found: list[Slice] = []
    for node in placement.nodes:
        if node in space.closed:
            continue
        carried = space.room_on(node, room - len(found), demand)
        first, memory = space.first_gpu[node], demand.nominal.memory
        idle = [first + local for local in bits(space.whole[node])]
        free = [gpu for gpu in idle if draft.is_at_hand(gpu)]
        found += [Slice(node, gpu, memory=memory) for gpu in free[:carried]]
    return found


def resized(view: View, placement: Placement, slices: tuple[Slice, ...]) -> Placement:
    """The same run on other slices."""
    span = view.topology.span_of_gpus([piece.gpu for piece in slices])
    return Placement(slices, span, placement.sharing, placement.role)
