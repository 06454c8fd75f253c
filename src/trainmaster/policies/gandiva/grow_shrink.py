"""Grow-shrink (Gandiva, OSDI'18, section 3.4): elastic jobs use GPUs that are idle on their servers.

Only jobs that declare a range of sizes take part. They grow while no job waits, and give back what is
beyond their nominal size as soon as one does.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.core.state import JobRecord
from trainmaster.mechanisms.resize import grow_into_idle, is_open, shrink_to_nominal
from trainmaster.policies.gandiva.time_slicing import TimeSlicing


def shrink(shift: TimeSlicing) -> bool:
    """Every job that has grown goes back to its nominal size; whether any did."""
    return shrink_to_nominal(shift.draft, _elastic(shift))


def grow(shift: TimeSlicing) -> None:
    """In order of submission, each takes idle GPUs of its own servers, up to its maximum.

    Not in a pass that takes GPUs from others: those are not idle before they have been left.
    """
    draft = shift.draft
    if draft.budget is not None:
        return
    if any(draft.is_evicted(record) for record in shift.roster.holding.values()):
        return
    grow_into_idle(draft, _elastic(shift))


def _elastic(shift: TimeSlicing) -> Iterator[JobRecord]:
    """Elastic jobs on open servers, in order of submission."""
    for _, record in sorted(shift.roster.elastic.items()):
        if record.placement is not None and is_open(shift.draft.space, record.placement):
            yield record
