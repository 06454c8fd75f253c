"""A plan in the making: books and unbooks on top of the view, and can take everything back.

Only a draft changes the occupancy while a policy plans. Bookings go straight into it, each with its
exact inverse in a log. `plan` undoes them all, so that the state is as before and only the admitted plan
changes it; where a policy raises, the controller undoes its bookings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord, kept_memory
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
from trainmaster.model.placement import Placement, Sharing, Slice
from trainmaster.model.plan import M, Plan

Savepoint = tuple[int, int | None, tuple[Any, ...]]
"""A point to roll back to: the length of the undo log, the budget, and the decisions."""


class Draft:
    """The decisions of one pass."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.space = view.occupancy
        self.budget = view.budget
        """Thousandths of a GPU that may still be booked; None = no bound."""
        self._log = self.space.undo_log
        self._begin = len(self._log)
        self._placed: dict[str, tuple[JobRecord, Placement]] = {}
        self._evicted: dict[str, JobRecord] = {}
        self._vacated: set[int] = set()
        """GPUs that this draft has ever taken from a run, even if that was rolled back."""
        self._stopped: list[JobRecord] = []
        self._reserved: dict[str, Reserve] = {}
        self._released: list[str] = []
        self._postponed: dict[str, JobRecord] = {}

    # -- decisions -----------------------------------------------------------------------------

    def start(self, record: JobRecord, placement: Placement) -> None:
        """Place a waiting (or just evicted) job."""
        self._book(record, placement)
        if placement == record.frozen and placement.sharing is not Sharing.EXCLUSIVE:
            self._release_kept(record, placement)
        self._placed[record.id] = (record, placement)

    def _release_kept(self, record: JobRecord, placement: Placement) -> None:
        """What a frozen run keeps is free when it goes on: others may share its GPUs in this pass."""
        host, memory, *_ = kept_memory(self.space.topology, record, placement)
        gpus = tuple(placement.gpus())
        self.space.book_frozen(gpus, -memory, -host)
        self._log.append((self.space.book_frozen, (gpus, memory, host)))

    def suspend(self, record: JobRecord) -> None:
        """Take a running job's GPUs away; a later `start` of it in this draft makes it a migration."""
        placement = record.placement
        assert placement is not None
        self._vacated.update(placement.gpus())
        self._unbook(record, placement)
        self._evicted[record.id] = record

    def keep(self, record: JobRecord) -> bool:
        """Undo an eviction if the job's GPUs are all still free and within the budget; else False.

        Its run is there already, so it may stay on a closed node too.
        """
        placement = record.placement
        assert placement is not None
        if self.budget is not None and placement.total_share > self.budget:
            return False
        if record.id not in self._evicted:
            return False
        if self.space.refusal(placement, record.demand, is_there=True):
            return False
        self._book(record, placement)
        del self._evicted[record.id]
        return True

    def restore(self, record: JobRecord) -> None:
        """Undo an eviction whose GPUs are still free, even on a closed node."""
        assert record.placement is not None
        self._book(record, record.placement)
        del self._evicted[record.id]

    def occupy(self, record: JobRecord, placement: Placement) -> None:
        """Book GPUs as if the job ran there, without starting it; `vacate` takes it back."""
        self._book(record, placement)

    def vacate(self, record: JobRecord, placement: Placement) -> None:
        """The opposite of `occupy`."""
        self._unbook(record, placement)

    def resize(self, record: JobRecord, placement: Placement) -> None:
        """Give a running elastic job another set of GPUs, which overlaps its current one."""
        held = record.placement
        assert held is not None
        self._vacated.update(held.gpus())
        self._unbook(record, held)
        self._book(record, placement)
        self._placed[record.id] = (record, placement)

    def replace(self, record: JobRecord, placement: Placement) -> None:
        """Change the placement of a job that this draft has placed; its current one means no change."""
        _, before = self._placed[record.id]
        self._vacated.update(before.gpus())
        self._unbook(record, before)
        self._book(record, placement)
        if placement == record.placement and record.id not in self._evicted:
            del self._placed[record.id]
        else:
            self._placed[record.id] = (record, placement)

    def stop(self, record: JobRecord) -> None:
        self._stopped.append(record)

    def postpone(self, record: JobRecord, slices: tuple[Slice, ...]) -> None:
        """Leave a waiting job to the next pass; these free GPUs are kept for it in this one."""
        self.reserve_gpus(slices)
        self._postponed[record.id] = record

    def reserve(
        self,
        record: JobRecord,
        slices: tuple[Slice, ...],
        until_ms: int | None,
        open_to: OpenTo = OpenTo.NOBODY,
    ) -> None:
        """Hold whole free GPUs for a waiting job."""
        self.reserve_gpus(slices, is_open=open_to is OpenTo.OPPORTUNISTIC)
        self._reserved[record.id] = Reserve(record.id, slices, until_ms, open_to)

    def unreserve(self, record: JobRecord) -> bool:
        """Undo what this draft has reserved for a job; returns whether there was anything."""
        held = self._reserved.pop(record.id, None)
        if held is not None:
            self.unreserve_gpus(held.slices, is_open=held.open_to is OpenTo.OPPORTUNISTIC)
        return held is not None

    def release(self, record: JobRecord) -> None:
        """Make a job's reserved GPUs available to this pass."""
        held = self.view.reservations.get(record.id)
        if held is not None and record.id not in self._released:
            self.unreserve_gpus(held.slices, is_open=held.open_to is OpenTo.OPPORTUNISTIC)
            self._released.append(record.id)

    def has_released(self, record: JobRecord) -> bool:
        return record.id in self._released

    def reserve_gpus(self, slices: tuple[Slice, ...], *, is_open: bool = False) -> None:
        """Keep GPUs from being booked, except by opportunistic jobs if `is_open`."""
        self.space.reserve_gpus(slices, is_open)
        self._log.append((self.space.unreserve_gpus, (slices,)))

    def unreserve_gpus(self, slices: tuple[Slice, ...], *, is_open: bool = False) -> None:
        """The opposite of `reserve_gpus`."""
        self.space.unreserve_gpus(slices)
        self._log.append((self.space.reserve_gpus, (slices, is_open)))

    @contextmanager
    def closed(self, node: int) -> Iterator[None]:
        """Close a node within this block."""
        self.space.close(node)
        self._log.append((self.space.open, (node,)))
        yield
        self.space.open(node)
        self._log.append((self.space.close, (node,)))

    # -- queries -------------------------------------------------------------------------------

    def affords(self, share: int) -> bool:
        """Whether this much is left of the budget."""
        return self.budget is None or share <= self.budget

    def fits_instead(self, record: JobRecord, placement: Placement) -> bool:
        """Whether a run could have this placement in place of its own."""
        assert record.placement is not None
        length, budget = len(self._log), self.budget
        self._unbook(record, record.placement)
        is_free = self.space.refusal(placement, record.demand) is None
        fits = is_free and self.affords(placement.total_share)
        self.space.undo(length)
        self.budget = budget
        return fits

    def is_empty(self) -> bool:
        """Whether no job has been placed."""
        return not self._placed

    def is_evicted(self, record: JobRecord) -> bool:
        return record.id in self._evicted

    def is_at_hand(self, gpu: int) -> bool:
        """Whether no run has yet to leave it. Runs can grow only onto such GPUs, since they do not wait."""
        return gpu not in self._vacated and gpu not in self.view.releasing

    def vacated_nodes(self) -> set[int]:
        """Nodes where this draft has ever taken GPUs from a run."""
        node_of = self.space.node_of
        return {node_of[gpu] for gpu in self._vacated}

    def is_placed(self, record: JobRecord) -> bool:
        return record.id in self._placed

    def is_postponed(self, record: JobRecord) -> bool:
        """Whether it waits for something that is under way, so that no run is to be preempted for it."""
        return record.id in self._postponed

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
        """Whether this draft has placed, evicted or postponed it."""
        job = record.id
        return job in self._placed or job in self._evicted or job in self._postponed

    def apply(self, plan: Plan) -> int:
        """Make the decisions of another policy's plan here; returns the share that it adds."""
        jobs = self.view.jobs
        with self.within(0):
            for action in plan.actions:
                APPLICATIONS[type(action)](self, jobs[action.job], action)
            assert self.budget is not None
            return -self.budget

    def _move(self, record: JobRecord, placement: Placement) -> None:
        self.suspend(record)
        self.start(record, placement)

    # -- rolling back --------------------------------------------------------------------------

    def checkpoint(self) -> Savepoint:
        """A savepoint; `roll_back` can return to it any number of times."""
        decided = (
            self._evicted,
            self._placed,
            self._stopped,
            self._reserved,
            self._released,
            self._postponed,
        )
        return len(self._log), self.budget, tuple(each.copy() for each in decided)

    def roll_back(self, mark: Savepoint) -> None:
        """Undo every decision since the savepoint."""
        length, self.budget, decided = mark
        self.space.undo(length)
        (
            self._evicted,
            self._placed,
            self._stopped,
            self._reserved,
            self._released,
            self._postponed,
        ) = (before.copy() for before in decided)

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Roll back every decision of this block at its end."""
        mark = self.checkpoint()
        try:
            yield
        finally:
            self.roll_back(mark)

    @contextmanager
    def within(self, budget: int) -> Iterator[None]:
        """Decide within a budget; `self.budget` is what is left of it until the end of the block."""
        before, self.budget = self.budget, budget
        try:
            yield
        finally:
            self.budget = before

    def _book(self, record: JobRecord, placement: Placement) -> None:
        if self.budget is not None:
            self.budget -= placement.total_share
        self.space.book(placement, record.demand)
        self._log.append((self.space.unbook, (placement, record.demand)))

    def _unbook(self, record: JobRecord, placement: Placement) -> None:
        if self.budget is not None:
            self.budget += placement.total_share
        self.space.unbook(placement, record.demand)
        self._log.append((self.space.book, (placement, record.demand)))

    # -- the result ----------------------------------------------------------------------------

    def plan(
        self,
        memo: M = None,  # type: ignore[assignment]
        wake_at: int | None = None,
        notices: tuple[DeadlineNotice, ...] = (),
    ) -> Plan[M]:
        """The decisions as actions, in an order in which they can be admitted."""
        self.space.undo(self._begin)
        return Plan(tuple(self._actions()), memo, wake_at, notices)

    def _actions(self) -> list[Action]:
        """Stops, releases, suspensions and shrinking first; then moves, growth, starts and reservations."""
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
