"""One view per queue, for policies between queues: each shows only its own jobs.

Changes are dealt out to the parts once, so that each keeps its own line and a pass costs what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from trainmaster.core.lifecycle import HIDDEN_PHASES, WAITING
from trainmaster.core.rank_index import GroupOf, RankIndex, RankOf
from trainmaster.core.state import JobRecord, State
from trainmaster.core.view import View
from trainmaster.model.actions import Reserve
from trainmaster.model.placement import Placement
from trainmaster.model.plan import Rank
from trainmaster.model.topology import CPU_TYPE

Counted = tuple[int, int, bool]
"""What a job counts for in its part: thousandths of a GPU held and wanted, and whether it waits."""


class QueueView(View):
    """The view of one queue."""

    def __init__(self, state: State, queue: str) -> None:
        super().__init__(state)
        self.queue = queue
        self.allocated = 0
        """Thousandths of a GPU that its jobs hold."""
        self.wanted = 0
        """Thousandths of a GPU that its jobs would hold if all ran: its demand."""
        self.waiting_count = 0
        self._sizes: dict[int, int] = {}
        """Thousandths of a GPU that waiting jobs want: how many want so much."""
        self._jobs: dict[str, JobRecord] = {}
        self._counted: dict[int, Counted] = {}
        self._changed: dict[int, JobRecord] = {}
        self._ended: list[JobRecord] = []
        self._touched: set[int] = set()
        self.overrule: Callable[[JobRecord, Rank, int], Rank] | None = None
        """What a policy around the one that ranks has to say about a rank."""

    # -- keeping up ------------------------------------------------------------------------------

    def deal(self, record: JobRecord) -> None:
        """Take note that something about this job of ours has changed."""
        self._changed[record.seq] = record
        known = self._counted.pop(record.seq, None)
        if known is not None:
            self._count(known, -1)
        if record.phase in HIDDEN_PHASES:
            self._jobs.pop(record.id, None)
            return
        self._jobs[record.id] = record
        counted = self._counted[record.seq] = self._shares(record)
        self._count(counted, 1)

    def _shares(self, record: JobRecord) -> Counted:
        """What the job holds and would hold if it ran, in GPUs: CPU slots are nobody's share."""
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

    def deal_end(self, record: JobRecord) -> None:
        """Take note of a job of ours that has ended since the last pass."""
        self._ended.append(record)

    def clear_news(self) -> None:
        """That was the last pass."""
        if self._ended:
            self._ended = []

    def deal_touched(self, touched: set[int]) -> None:
        """Take note of nodes where room may have come up."""
        self._touched |= touched

    def allocated_to(self, record: JobRecord) -> int:
        """Thousandths of a GPU that a job of ours holds."""
        return self._counted[record.seq][0]

    @property
    def is_concerned(self) -> bool:
        """Whether it has live jobs, or news of one that has ended."""
        return bool(self._jobs or self._ended)

    @property
    def smallest_waiting(self) -> int | None:
        """Thousandths of a GPU that the least demanding of its waiting jobs wants."""
        return min(self._sizes, default=None)

    # -- what a policy sees ----------------------------------------------------------------------

    @property
    def jobs(self) -> Mapping[str, JobRecord]:
        return self._jobs

    def newest_first(self) -> Iterable[JobRecord]:
        return reversed(self._jobs.values())

    @property
    def ended(self) -> Sequence[JobRecord]:
        return self._ended

    @property
    def requeued(self) -> Sequence[JobRecord]:
        return [record for record in self._state.requeued if record.job.queue == self.queue]

    @property
    def reservations(self) -> Mapping[str, Reserve]:
        everybody = self._state.reservations
        return {job: held for job, held in everybody.items() if job in self._jobs}

    def is_settled(self) -> bool:
        return self.waiting_count == 0 and not self._state.draining

    def take_touched(self) -> set[int]:
        touched, self._touched = self._touched, set()
        return touched

    def _all_records(self) -> Iterable[JobRecord]:
        return self._jobs.values()

    def _mark(self, record: JobRecord) -> None:
        self._changed[record.seq] = record

    def _take_changed(self) -> Iterable[JobRecord]:
        changed, self._changed = self._changed, {}
        return changed.values()

    def ranked(self, rank: RankOf, now: int, *, group: GroupOf, with_running: bool) -> RankIndex:
        """The line of this queue; runs stand in it too, since they may be asked to leave."""
        overrule = self.overrule
        if overrule is not None:
            inner = rank

            def rank(record: JobRecord) -> Rank:
                return overrule(record, inner(record), now)

        return super().ranked(rank, now, group=group, with_running=True)

    def is_stable(self, ranks: RankIndex, now: int) -> bool:
        """Never taken for granted: what the queue may use can have changed."""
        return False


class QueueViews:
    """All parts of one view, by queue; kept from pass to pass."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._by_queue: dict[str, QueueView] = {}
        self._shown: dict[str, QueueView] = {}
        """Those with live or just ended jobs, by name."""
        self._told: list[QueueView] = []
        """Those that have news of ended jobs."""

    def by_queue(self) -> Mapping[str, QueueView]:
        """Every queue with live or just ended jobs, by name, with all changes dealt out."""
        view = self._view
        dirty_queues = self._told
        for record in view.take_changed():
            part = self._of(record)
            part.deal(record)
            dirty_queues.append(part)
        for part in dirty_queues:
            part.clear_news()
        self._told = []
        for record in view.ended:
            part = self._of(record)
            part.deal_end(record)
            self._told.append(part)
        self._deal_touched(view.take_touched())
        if any(
            part.is_concerned != (part.queue in self._shown)
            for part in (*dirty_queues, *self._told)
        ):
            parts = self._by_queue
            self._shown = {name: parts[name] for name in sorted(parts) if parts[name].is_concerned}
        return self._shown

    def rerank(self) -> None:
        """Ranks are to be made anew in every part."""
        for part in self._by_queue.values():
            part.rerank()

    def _of(self, record: JobRecord) -> QueueView:
        queue = record.job.queue
        part = self._by_queue.get(queue)
        if part is None:
            part = self._by_queue[queue] = QueueView(self._view._state, queue)
        return part

    def _deal_touched(self, touched: set[int]) -> None:
        """Where nobody waits, nobody has been told before that there is no room."""
        if touched:
            for part in self._shown.values():
                if part.waiting_count:
                    part.deal_touched(touched)


def queue_views_of(view: View) -> Mapping[str, QueueView]:
    """A view of its own for each queue with live or just ended jobs, for a policy between queues.

    Such a policy calls this instead of `order`: changes are told to one of them only.
    """
    if not isinstance(view.parts, QueueViews):
        view.parts = QueueViews(view)
    return view.parts.by_queue()
