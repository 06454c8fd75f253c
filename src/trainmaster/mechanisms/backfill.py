"""Start jobs in order without preemption, and backfill: which jobs may overtake a head that does not fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainmaster.core.draft import Draft
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.expected_end import expected_end
from trainmaster.mechanisms.type_choice import PlacerOf, TypeChoice
from trainmaster.model.actions import OpenTo
from trainmaster.model.job import Shape
from trainmaster.model.placement import Placement, Sharing
from trainmaster.placement.placers import RELAXING

BACKFILL = ("none", "skip", "easy")
Remaining = Callable[[JobRecord, int], int | None]
"""A job's expected remaining time; None if unknown."""


def start_in_order(
    view: View,
    draft: Draft,
    ranks: RankIndex,
    now: int,
    placer_of: PlacerOf,
    backfill: str,
    *,
    can_mold: bool = False,
    remaining: Remaining | None = None,
    choice: TypeChoice | None = None,
) -> bool:
    """Start what may start; True when no job is left waiting. `easy` goes by `remaining`, or estimates.

    A job that waits for a faster type of device, by its own choice, holds nobody up.
    """
    remaining = remaining or view.remaining
    window: BackfillWindow | None = None
    head: JobRecord | None = None
    for job in view.reservations:
        draft.release(view.jobs[job])
    candidates = ranks.candidates(now)
    has_declined = False
    for _, group, record in candidates:
        placement = _fit(draft, record, placer_of, can_mold=can_mold)
        if choice is not None and placement is None and choice.has_declined(record):
            has_declined = True
            continue
        if head is None:
            if placement is not None:
                draft.start(record, placement)
                continue
            head = record
            if backfill == "none":
                break
            candidates.drop(group)
            if backfill == "easy":
                window = easy_window(view, draft, head, now, remaining)
        elif placement is None:
            candidates.drop(group)
        elif window is None or window.admits(remaining(record, now), placement, now):
            draft.start(record, placement)
    if head is not None and window is not None:
        reserve(draft, head, window)
    return head is None and not has_declined


def _fit(
    draft: Draft, record: JobRecord, placer_of: PlacerOf, *, can_mold: bool
) -> Placement | None:
    placer = placer_of(record)
    if not (can_mold and record.demand.is_elastic):
        return placer.place(draft.space, record, draft.budget)
    demand = record.demand
    for count in range(demand.nominal.count, demand.min_count - 1, -1):
        shape = demand.sized(count)
        placement = placer.shaped(draft.space, demand, shape, budget=draft.budget)
        if placement is not None:
            return placement
    return None


@dataclass(slots=True)
class BackfillWindow:
    """What may be used until the head is expected to start, and how much of it for longer."""

    shadow_ms: int | None
    """When enough GPUs are expected to be free; None if unknown."""
    spare: int
    """Whole GPUs that the head will not need then."""

    def admits(self, left: int | None, placement: Placement, now: int) -> bool:
        """Whether the job ends in time, or takes only GPUs that the head does not need."""
        if self.shadow_ms is not None and left is not None and now + left <= self.shadow_ms:
            return True
        size = len(placement.slices)
        if size <= self.spare:
            self.spare -= size
            return True
        return False


def easy_window(
    view: View, draft: Draft, head: JobRecord, now: int, remaining: Remaining
) -> BackfillWindow:
    """EASY backfill: when the head is expected to fit, and how many GPUs it leaves over then."""
    space, need = draft.space, head.demand.nominal.count
    kinds = space.kinds_for(head.demand)
    free = sum(space.free_gpus[kind] for kind in kinds)
    if free >= need:
        return BackfillWindow(shadow_ms=None, spare=0)
    ends: list[tuple[int, int]] = []
    for record in view.running():
        end = expected_end(remaining(record, now), record, now)
        if end is not None and record.placement is not None and record.is_whole:
            mine = [piece.node for piece in record.placement.slices]
            ends.append((end, sum(space.node_type[node] in kinds for node in mine)))
    for end, size in sorted(ends):
        free += size
        if free >= need:
            return BackfillWindow(shadow_ms=end, spare=free - need)
    return BackfillWindow(shadow_ms=None, spare=0)


def reserve(draft: Draft, head: JobRecord, window: BackfillWindow) -> None:
    """Hold what is still free for the head; short jobs may use it in the next pass."""
    demand = head.demand
    if demand.mode is not Sharing.EXCLUSIVE:
        return
    space = draft.space
    free = sum(space.free_gpus[kind] for kind in space.kinds_for(demand))
    count = min(free - min(window.spare, free), demand.nominal.count)
    if count < 1:
        return
    held = RELAXING.shaped(space, demand, Shape(count=count), budget=draft.budget)
    if held is not None:
        draft.reserve(head, held.slices, window.shadow_ms, OpenTo.SHORT)
