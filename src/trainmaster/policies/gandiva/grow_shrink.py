"""Grow-shrink (Gandiva, OSDI'18, section 3.4): elastic jobs use GPUs that are idle on their servers.

Only jobs that declare a range of sizes take part. They grow while nobody waits, and give back what is
beyond their nominal size as soon as somebody does.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord
from trainmaster.mechanisms.malleable import idle_beside, resized
from trainmaster.model.placement import Placement, Sharing
from trainmaster.policies.gandiva.time_slicing import Shift


def shrink(shift: Shift) -> bool:
    """Every job that has grown goes back to its nominal size; whether any did."""
    view, draft, has_shrunk = shift.view, shift.draft, False
    for record, placement in _steady(shift):
        nominal = record.demand.nominal.count
        if len(placement.slices) > nominal:
            draft.resize(record, resized(view, placement, placement.slices[:nominal]))
            has_shrunk = True
    return has_shrunk


def grow(shift: Shift) -> None:
    """In order of submission, each takes idle GPUs of its own servers, up to its maximum.

    Not in a pass that takes GPUs from others: those are not idle before they have been left.
    """
    draft, roster = shift.draft, shift.roster
    if draft.space.allowance is not None:
        return
    if any(draft.is_evicted(record) for record in roster.holding.values()):
        return
    for record, placement in _steady(shift):
        room = record.demand.max_count - len(placement.slices)
        extra = idle_beside(draft, record, placement, room) if room > 0 else []
        if extra:
            slices = (*placement.slices, *extra)
            draft.resize(record, resized(shift.view, placement, slices))


def _steady(shift: Shift) -> Iterator[tuple[JobRecord, Placement]]:
    """Elastic jobs that run on open servers and that this pass has left alone."""
    space, elastic = shift.draft.space, shift.roster.elastic
    for seq in sorted(elastic):
        record = elastic[seq]
        placement = record.placement
        if record.phase is not Phase.RUNNING or placement is None:
            continue
        if placement.sharing is not Sharing.EXCLUSIVE or shift.draft.is_touched(record):
            continue
        if space.closed.isdisjoint(placement.nodes):
            yield record, placement
