"""One view per queue, for policies that divide between queues: each shows only its own jobs.

Each change is passed on once to the view of its queue, so that a pass costs what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from trainmaster.core.change_log import ChangeLog
from trainmaster.core.lifecycle import HIDDEN_PHASES, WAITING
from trainmaster.core.rank_index import GroupOf, RankIndex, RankOf
from trainmaster.core.state import JobRecord, State
from trainmaster.core.view import View
from trainmaster.model.actions import Reserve
from trainmaster.model.placement import Placement
from trainmaster.model.plan import Rank
from trainmaster.model.topology import CPU_TYPE

Counted = tuple[int, int, bool]
"""What a job counts for in its queue: thousandths of a GPU held and wanted, and whether it waits."""


class QueueView(View):
    """The view of one queue."""

    def __init__(self, state: State, queue: str) -> None:
        super().__init__(state, ChangeLog())
        self.queue = queue
        self.allocated = 0
        """Thousandths of a GPU that its jobs hold."""
        self.wanted = 0
        """Thousandths of a GPU that its jobs would hold if all ran: its demand."""
        self.waiting_count = 0
        self._sizes: dict[int, int] = {}
        """Thousandths of a GPU wanted -> number of waiting jobs that want that much."""
        self._jobs: dict[str, JobRecord] = {}
        self._counted: dict[int, Counted] = {}
        self.overrule: Callable[[JobRecord, Rank, int], Rank] | None = None
        """How the policy between queues changes a rank of the inner policy."""

    # -- keeping up ------------------------------------------------------------------------------

    def note_job(self, record: JobRecord) -> None:
        """Record that a job of this queue has changed."""
        self._log.note_job(record)
        known = self._counted.pop(record.seq, None)
        if known is not None:
            self._count(known, -1)
        if record.phase in HIDDEN_PHASES:
            self._jobs.pop(record.id, None)
            return
        self._insert(record)
        counted = self._counted[record.seq] = self._shares(record)
        self._count(counted, 1)

    def _insert(self, record: JobRecord) -> None:
        """Keep jobs in order of submission; a job released from a hold returns to its old position."""
        jobs = self._jobs
        is_back = bool(jobs) and next(reversed(jobs.values())).seq > record.seq
        if record.id not in jobs and is_back:
            jobs = {**jobs, record.id: record}
            self._jobs = dict(sorted(jobs.items(), key=lambda item: item[1].seq))
        else:
            jobs[record.id] = record

    def _shares(self, record: JobRecord) -> Counted:
        """GPUs that the job holds, and would hold if it ran; CPU slots do not count."""
        placement, demand = record.placement, record.demand
        held = placement.total_share if placement is not None else 0
        wanted = max(held, demand.nominal.total_share)
        if demand.gpu_type is not None and demand.allows(CPU_TYPE):
            if placement is not None and self._is_on_cpus(placement):
                held = 0
            wanted = 0 if demand.gpu_type == CPU_TYPE else wanted
        return held, wanted, record.phase in WAITING

    def _is_on_cpus(self, placement: Placement) -> bool:
        return self.topology.type_of_gpu[placement.slices[0].gpu].name == CPU_TYPE

    def _count(self, counted: Counted, sign: int) -> None:
        held, wanted, waits = counted
        self.allocated += sign * held
        self.wanted += sign * wanted
        if waits:
            self.waiting_count += sign
            left = self._sizes.get(wanted, 0) + sign
            if left:
                self._sizes[wanted] = left
            else:
                del self._sizes[wanted]

    def note_end(self, record: JobRecord) -> None:
        """Record that a job of this queue has ended since the last pass."""
        self._log.ended.append(record)

    def clear_ended(self) -> None:
        """Forget the jobs that had ended before the last pass."""
        if self._log.ended:
            self._log.ended = []

    def note_nodes(self, nodes: set[int]) -> None:
        """Record nodes where a waiting job may now fit."""
        self._log.note_nodes(nodes)

    def allocated_to(self, record: JobRecord) -> int:
        """Thousandths of a GPU that a job of this queue holds."""
        return self._counted[record.seq][0]

    @property
    def is_active(self) -> bool:
        """Whether it has live jobs, or news of one that has ended."""
        return bool(self._jobs or self._log.ended)

    @property
    def smallest_waiting(self) -> int | None:
        """Thousandths of a GPU that its smallest waiting job wants."""
        return min(self._sizes, default=None)

    # -- what a policy sees ----------------------------------------------------------------------

    @property
    def jobs(self) -> Mapping[str, JobRecord]:
        return self._jobs

    def newest_first(self) -> Iterable[JobRecord]:
        return reversed(self._jobs.values())

    @property
    def requeued(self) -> Sequence[JobRecord]:
        return [record for record in self._state.log.requeued if record.job.queue == self.queue]

    @property
    def reservations(self) -> Mapping[str, Reserve]:
        reservations = self._state.reservations.items()
        return {job: held for job, held in reservations if job in self._jobs}

    @contextmanager
    def within(self, budget: int | None) -> Iterator[View]:
        """The view for a plan that may book at most this much more than it frees; None: no bound."""
        self.budget = budget
        try:
            yield self
        finally:
            self.budget = None

    def has_nothing_to_schedule(self) -> bool:
        return self.waiting_count == 0 and not self._state.draining

    def ranked(self, rank: RankOf, now: int, *, group: GroupOf, with_running: bool) -> RankIndex:
        """The jobs of this queue by rank; runs are included, because they may be preempted."""
        overrule = self.overrule
        if overrule is not None:
            inner = rank

            def rank(record: JobRecord) -> Rank:
                return overrule(record, inner(record), now)

        return super().ranked(rank, now, group=group, with_running=True)

    def is_stable(self, ranks: RankIndex, now: int) -> bool:
        """Always False, because the queue's budget may have changed."""
        return False


class QueueViews:
    """The views of all queues; kept from pass to pass."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._by_queue: dict[str, QueueView] = {}
        self._active: dict[str, QueueView] = {}
        """Queues with live or just ended jobs, by name."""
        self._with_ended: list[QueueView] = []

    def by_queue(self) -> Mapping[str, QueueView]:
        """Every queue with live or just ended jobs, by name, up to date with all changes."""
        changes = self._view.changes(QueueViews)
        dirty = self._with_ended
        for record in changes.read_jobs():
            part = self._of(record)
            part.note_job(record)
            dirty.append(part)
        for part in dirty:
            part.clear_ended()
        self._with_ended = []
        for record in self._view.ended:
            part = self._of(record)
            part.note_end(record)
            self._with_ended.append(part)
        nodes = changes.read_nodes()
        for part in self._active.values() if nodes else ():
            if part.waiting_count:  # without waiting jobs there is no failed placement to try again
                part.note_nodes(nodes)
        if any(
            part.is_active != (part.queue in self._active) for part in (*dirty, *self._with_ended)
        ):
            parts = self._by_queue
            self._active = {name: parts[name] for name in sorted(parts) if parts[name].is_active}
        return self._active

    def _of(self, record: JobRecord) -> QueueView:
        queue = record.job.queue
        part = self._by_queue.get(queue)
        if part is None:
            part = self._by_queue[queue] = QueueView(self._view._state, queue)
            self._view.children.append(part)
        return part


def queue_views_of(view: View) -> Mapping[str, QueueView]:
    """A view for each queue with live or just ended jobs, for a policy between queues."""
    return view.index(QueueViews, view).by_queue()
