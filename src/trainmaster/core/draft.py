"""A plan in the making: books and unbooks on top of the view, and can take everything back.

Bookings go straight into the occupancy, each with its exact inverse in a log. `plan` undoes them all,
so that the state is as before and only the admitted plan changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model.actions import (
    Action,
    Migrate,
    OpenTo,
    Release,
    Reserve,
    Resize,
    Resume,
    Start,
    Stop,
    Suspend,
)
from trainmaster.model.deadline_notices import DeadlineNotice
from trainmaster.model.placement import Placement, Slice
from trainmaster.model.plan import M, Plan

Undo = tuple[bool, JobRecord, Placement]
"""(was it a booking, whose, where)."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A point to return to."""

    length: int
    evicted: dict[str, JobRecord]
    placed: dict[str, tuple[JobRecord, Placement]]
    stopped: list[JobRecord]
    reserved: dict[str, Reserve]
    released: dict[str, tuple[Slice, ...]]


class Draft:
    """One pass's worth of decisions."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.space = view.occupancy
        self._log: list[Undo] = []
        self._placed: dict[str, tuple[JobRecord, Placement]] = {}
        self._evicted: dict[str, JobRecord] = {}
        self._vacated: set[int] = set()
        """GPUs that a run has been told to leave in this draft, or was for a while."""
        self._stopped: list[JobRecord] = []
        self._reserved: dict[str, Reserve] = {}
        self._released: dict[str, tuple[Slice, ...]] = {}

    # -- deciding ------------------------------------------------------------------------------

    def start(self, record: JobRecord, placement: Placement) -> None:
        """Place a waiting (or just evicted) job."""
        self._book(record, placement)
        self._placed[record.id] = (record, placement)

    def suspend(self, record: JobRecord) -> None:
        """Take a running job's GPUs away; a later `start` of it in this draft makes it a migration."""
        assert record.placement is not None
        self._unbook(record, record.placement)
        self._evicted[record.id] = record

    def keep(self, record: JobRecord) -> bool:
        """Undo an eviction where the job's own GPUs are all still free and affordable; else False."""
        placement, allowance = record.placement, self.space.allowance
        assert placement is not None
        if allowance is not None and placement.total_share > allowance:
            return False
        if record.id not in self._evicted or self.space.refusal(placement, record.demand):
            return False
        self._book(record, placement)
        del self._evicted[record.id]
        return True

    def restore(self, record: JobRecord) -> bool:
        """Undo an eviction whose GPUs nobody has taken, even on a node that is closed to others."""
        assert record.placement is not None
        self._book(record, record.placement)
        del self._evicted[record.id]
        return True

    def resize(self, record: JobRecord, placement: Placement) -> None:
        """Give a running elastic job another set of GPUs, which overlaps its present one."""
        assert record.placement is not None
        self._unbook(record, record.placement)
        self._book(record, placement)
        self._placed[record.id] = (record, placement)

    def replace(self, record: JobRecord, placement: Placement) -> None:
        """Another placement for a job that this draft has placed; the one that it has: none at all."""
        _, before = self._placed[record.id]
        self._unbook(record, before)
        self._book(record, placement)
        if placement == record.placement and record.id not in self._evicted:
            del self._placed[record.id]
        else:
            self._placed[record.id] = (record, placement)

    def stop(self, record: JobRecord) -> None:
        self._stopped.append(record)

    def reserve(
        self,
        record: JobRecord,
        slices: tuple[Slice, ...],
        until_ms: int | None,
        open_to: OpenTo = OpenTo.NOBODY,
    ) -> None:
        """Hold whole free GPUs for a waiting job."""
        self.space.withhold(slices, open_to_spare=open_to is OpenTo.OPPORTUNISTIC)
        self._reserved[record.id] = Reserve(record.id, slices, until_ms, open_to)

    def unreserve(self, record: JobRecord) -> bool:
        """Take back what this draft has reserved for a job; whether there was anything."""
        held = self._reserved.pop(record.id, None)
        if held is not None:
            self.space.give_back(held.slices)
        return held is not None

    def release(self, record: JobRecord) -> None:
        """Put a job's reservation back on the table for this pass."""
        held = self.view.reservations.get(record.id)
        if held is not None and record.id not in self._released:
            self.space.give_back(held.slices)
            self._released[record.id] = held.slices

    def has_released(self, record: JobRecord) -> bool:
        return record.id in self._released

    def _withhold_again(self, job: str, slices: tuple[Slice, ...]) -> None:
        is_open = self.view.reservations[job].open_to is OpenTo.OPPORTUNISTIC
        self.space.withhold(slices, open_to_spare=is_open)

    def is_empty(self) -> bool:
        """Whether nobody has been placed."""
        return not self._placed

    def is_evicted(self, record: JobRecord) -> bool:
        return record.id in self._evicted

    def is_at_hand(self, gpu: int) -> bool:
        """Whether nobody has yet to leave it: a run can grow onto such GPUs only, without waiting."""
        return gpu not in self._vacated and gpu not in self.view.releasing

    def vacated_nodes(self) -> set[int]:
        """Nodes where this draft has made room, or had for a while."""
        node_of = self.space.node_of
        return {node_of[gpu] for gpu in self._vacated}

    def is_placed(self, record: JobRecord) -> bool:
        return record.id in self._placed

    def placement_of(self, record: JobRecord) -> Placement | None:
        """Where a job will be after this draft; None if it will wait."""
        placed = self._placed.get(record.id)
        if placed is not None:
            return placed[1]
        return None if record.id in self._evicted else record.placement

    def placed(self) -> Iterable[str]:
        """Jobs that this draft starts, moves or resizes."""
        return self._placed

    def touched(self) -> Iterable[str]:
        """Jobs that this draft places or evicts."""
        return {**self._placed, **self._evicted}

    def is_touched(self, record: JobRecord) -> bool:
        """Whether this draft has placed or evicted it."""
        return record.id in self._placed or record.id in self._evicted

    def apply(self, plan: Plan) -> None:
        """Take over what another policy planned for its part of the jobs, as if decided here."""
        jobs = self.view.jobs
        for action in plan.actions:
            APPLICATIONS[type(action)](self, jobs[action.job], action)

    def _move(self, record: JobRecord, placement: Placement) -> None:
        self.suspend(record)
        self.start(record, placement)

    # -- taking back ---------------------------------------------------------------------------

    def checkpoint(self) -> Mark:
        """Where things stand; `roll_back` can return here any number of times."""
        return Mark(
            len(self._log),
            dict(self._evicted),
            dict(self._placed),
            list(self._stopped),
            dict(self._reserved),
            dict(self._released),
        )

    def roll_back(self, mark: Mark) -> None:
        """As if nothing had been decided since the checkpoint."""
        for job, reservation in self._reserved.items():
            if job not in mark.reserved:
                self.space.give_back(reservation.slices)
        self._undo_down_to(mark.length)
        for job, reservation in mark.reserved.items():
            if job not in self._reserved:
                is_open = reservation.open_to is OpenTo.OPPORTUNISTIC
                self.space.withhold(reservation.slices, open_to_spare=is_open)
        for job, slices in self._released.items():
            if job not in mark.released:
                self._withhold_again(job, slices)
        self._evicted, self._placed = dict(mark.evicted), dict(mark.placed)
        self._stopped = list(mark.stopped)
        self._reserved, self._released = dict(mark.reserved), dict(mark.released)

    def _undo_down_to(self, length: int) -> None:
        log = self._log
        while len(log) > length:
            was_booking, record, placement = log.pop()
            if was_booking:
                self.space.unbook(placement, record.demand)
            else:
                self.space.book(placement, record.demand)

    def _book(self, record: JobRecord, placement: Placement) -> None:
        self.space.book(placement, record.demand)
        self._log.append((True, record, placement))

    def _unbook(self, record: JobRecord, placement: Placement) -> None:
        self._vacated.update(placement.gpus())
        self.space.unbook(placement, record.demand)
        self._log.append((False, record, placement))

    # -- the result ----------------------------------------------------------------------------

    def plan(
        self,
        memo: M = None,  # type: ignore[assignment]
        wake_at: int | None = None,
        notices: tuple[DeadlineNotice, ...] = (),
    ) -> Plan[M]:
        """The decisions as actions, in an order in which they can be admitted."""
        for reservation in self._reserved.values():
            self.space.give_back(reservation.slices)
        if self._log:
            self._undo_down_to(0)
        for job, slices in self._released.items():
            self._withhold_again(job, slices)
        return Plan(tuple(self._actions()), memo, wake_at, notices)

    def _actions(self) -> list[Action]:
        """Stops and releases, evictions and shrinkings, then moves, growth, starts and reservations."""
        placed = self._placed.values()
        is_plain = not (self._evicted or self._stopped or self._released or self._reserved)
        if is_plain and all(record.placement is None for record, _ in placed):
            return [_start(record, where) for record, where in placed]
        starts: list[Action] = []
        moves: list[Action] = []
        smaller: list[Action] = []
        larger: list[Action] = []
        for job, (record, placement) in self._placed.items():
            if job in self._evicted:
                moves.append(Migrate(job, placement))
            elif record.placement is None:
                starts.append(_start(record, placement))
            else:
                is_smaller = placement.total_share < record.placement.total_share
                (smaller if is_smaller else larger).append(Resize(job, placement))
        return [
            *(Stop(record.id) for record in self._stopped),
            *(Release(job) for job in self._released),
            *(Suspend(job) for job in self._evicted if job not in self._placed),
            *smaller,
            *moves,
            *larger,
            *starts,
            *self._reserved.values(),
        ]


APPLICATIONS: dict[type, Callable[[Draft, JobRecord, Any], None]] = {
    Start: lambda draft, record, action: draft.start(record, action.placement),
    Resume: lambda draft, record, action: draft.start(record, action.placement),
    Suspend: lambda draft, record, action: draft.suspend(record),
    Migrate: lambda draft, record, action: draft._move(record, action.placement),
    Resize: lambda draft, record, action: draft.resize(record, action.placement),
    Stop: lambda draft, record, action: draft.stop(record),
    Reserve: lambda draft, record, action: draft.reserve(
        record, action.slices, action.until_ms, action.open_to
    ),
    Release: lambda draft, record, action: draft.release(record),
}


def _start(record: JobRecord, placement: Placement) -> Action:
    is_suspended = record.phase is Phase.SUSPENDED
    return (Resume if is_suspended else Start)(record.id, placement)
