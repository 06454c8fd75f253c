"""Queues as a stage: GPUs are divided between stated queues, and each queue runs its jobs in rank order.

Budgets are max-min shares by weight within guarantees and maxima, reduced by past usage
(mechanisms/fair_share/). This stage replaces starting jobs in one common rank order; all other stages are
the same with and without queues (docs/design/0016-queues-are-a-stage.md).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from heapq import merge

from trainmaster.core.queue_views import QueueView, queue_views_of
from trainmaster.core.rank_index import Candidates, Key, RankIndex, RankList
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.fair_share.decayed_fair_share import (
    divide,
    with_decayed_usage,
    with_usage,
)
from trainmaster.mechanisms.fair_share.hierarchical_policy import capacity
from trainmaster.mechanisms.fair_share.queue_pass import QueuePass
from trainmaster.mechanisms.fair_share.queue_tree import QueueNode
from trainmaster.mechanisms.fair_share.reclaim import reclaim_and_lend, start_due_jobs
from trainmaster.mechanisms.preemptive_scheduling import run_in_order
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.topology import CPU_TYPE
from trainmaster.placement.placers import Placer
from trainmaster.policies.trainmaster.delay_scheduling import drop_relaxed_failures
from trainmaster.policies.trainmaster.priority import due_now, rank
from trainmaster.policies.trainmaster.scheduling_pass import Pass
from trainmaster.policies.trainmaster.shared_gpus import can_share

UNLIMITED = 1 << 60


class QueueOrder(BasePolicy[object]):
    """The rank order and the placers of this pass, as the inner policy of every queue."""

    def __init__(self, p: Pass) -> None:
        super().__init__(None)
        self._pass = p

    def placer(self, record: JobRecord) -> Placer:
        return self._pass.placer(record)

    def queue_ranking(self, view: View, memo: None, now: int) -> RankIndex:
        p = self._pass
        return view.ranked(lambda each: rank(p, each), now, group=p.group, with_running=True)


class TrainmasterQueuePass(QueuePass):
    """The division between queues in one pass, on the draft that all stages share."""

    def __init__(self, p: Pass) -> None:
        self.shares = with_decayed_usage(p.memo.shares, p.now, p.settings.half_life_ms)
        parts = queue_views_of(p.view)
        tree = p.caches.trees.tree(p.view.queues, (*parts, *self.shares.usage.average))
        tree.count(parts)
        self._order = order = QueueOrder(p)
        super().__init__(p.view, parts, tree, lambda _: order, self.shares.rounds, p.guards, p.now)
        self._pass = p
        self._total = capacity(p.view)
        self._is_divided = False
        self._ranks: dict[str, RankIndex] = {}

    def ranking_of(self, part: QueueView) -> RankIndex:
        """The queue's jobs in rank order, ranked once per pass."""
        found = self._ranks.get(part.queue)
        if found is None:
            ranks = self._order.queue_ranking(part, None, self.now)
            found = self._ranks[part.queue] = ranks
        return found

    # -- dividing ----------------------------------------------------------------------------------

    def _divide(self, promised: list[JobRecord]) -> None:
        """Compute the budget of every queue, once; it does not depend on the draft."""
        if not self._is_divided:
            remembers = self._pass.settings.half_life_ms > 0
            divide(self.tree, self._total, self.shares.counted if remembers else None, promised)
            self._is_divided = True

    def budget_headrooms(self) -> dict[str, int]:
        """By queue: how much more it may hold within its budget."""
        leaves = self.tree.leaves
        if self.is_enough_for_all(self._total):
            budgets = {name: part.wanted for name, part in self.parts.items()}
        else:
            self._divide(due_now(self._pass))
            budgets = {name: leaves[name].budget for name in self.parts}
        return {name: leaves[name].room_below(budget) for name, budget in budgets.items()}

    def start_jobs(self) -> None:
        """Run every queue's jobs within its budget; then reclaim and lend GPUs."""
        self.choice = self._pass.type_choice
        if self._pass.view.has_nothing_to_schedule():
            self.take_note()
        elif not (self.is_enough_for_all(self._total) and self.serve_all()):
            due = due_now(self._pass)
            self._divide(due)
            self.plan_within_budgets()
            start_due_jobs(self, due)
            reclaim_and_lend(self)

    def _planned(self, part: QueueView, leaf: QueueNode, budget: int | None) -> None:
        """Run the queue's jobs in rank order within its budget."""
        p, draft = self._pass, self.draft
        self._to_ask.discard(part.queue)
        if part.has_nothing_to_schedule():
            self._set_wake(part.queue, None)
            return
        ranks = self.ranking_of(part)
        room = UNLIMITED if budget is None else budget
        stuck = p.caches.stuck_in.setdefault(part.queue, {})
        with draft.within(room):
            run_in_order(
                *(part, draft, ranks, p.now, p.group, p.placer, stuck), choice=p.type_choice
            )
            assert draft.budget is not None
            leaf.give(room - draft.budget)
        self._set_wake(part.queue, ranks.next_expiry())

    def _may_fit(self, part: QueueView, room: int | None) -> bool:
        """A job that can share may fit although no GPU is free."""
        if super()._may_fit(part, room):
            return True
        smallest = part.smallest_waiting
        if smallest is None or (room is not None and smallest > room):
            return False
        if self._pass.colocation is None:
            return False
        return any(can_share(record) for record in self.ranking_of(part).heads())

    def start(self, leaf: QueueNode, record: JobRecord, placement: Placement) -> None:
        super().start(leaf, record, placement)
        if placement.sharing is not Sharing.EXCLUSIVE and record.is_whole:
            self.recount()

    # -- what queues hold --------------------------------------------------------------------------

    def recount(self) -> None:
        """Count what each queue holds in the draft after the changes of all stages."""
        held = {name: part.allocated for name, part in self.parts.items()}
        for job in self.draft.touched():
            record = self.draft.view.jobs[job]
            queue, placement = record.job.queue, self.draft.placement_of(record)
            held[queue] += self._share(placement) - self.parts[queue].allocated_to(record)
        for name, leaf in self.tree.leaves.items():
            leaf.give(held.get(name, 0) - leaf.used)

    def _share(self, placement: Placement | None) -> int:
        if placement is None:
            return 0
        kind = self.draft.space.topology.type_of_gpu[placement.slices[0].gpu]
        return 0 if kind.name == CPU_TYPE else placement.total_share

    def headroom(self, record: JobRecord) -> int | None:
        """How much more the job's queue may hold; None: any amount."""
        self.recount()
        return self.tree.leaves[record.job.queue].headroom


class QueueRanks:
    """The ranks of all queues' jobs together, for stages that work on the whole cluster."""

    def __init__(self, queue_pass: TrainmasterQueuePass) -> None:
        self._queue_pass = queue_pass

    def _by_queue(self) -> dict[str, RankIndex]:
        """Ranked on demand: a queue that no stage looks at is not ranked."""
        return {
            name: self._queue_pass.ranking_of(part) for name, part in self._queue_pass.parts.items()
        }

    @property
    def running(self) -> Mapping[Hashable, RankList]:
        return {
            (name, rate): line
            for name, ranks in self._by_queue().items()
            for rate, line in ranks.running.items()
        }

    def has_waiting(self) -> bool:
        return any(part.waiting_count for part in self._queue_pass.parts.values())

    def key_of(self, record: JobRecord, now: int) -> Key | None:
        part = self._queue_pass.parts.get(record.job.queue)
        return None if part is None else self._queue_pass.ranking_of(part).key_of(record, now)

    def candidates(self, now: int) -> QueueCandidates:
        leaves = self._queue_pass.tree.leaves
        return self._candidates(
            {name: leaves[name].headroom for name in self._queue_pass.parts}, now
        )

    def candidates_within_budgets(self, now: int) -> QueueCandidates:
        return self._candidates(self._queue_pass.budget_headrooms(), now)

    def _candidates(self, headrooms: Mapping[str, int | None], now: int) -> QueueCandidates:
        found = dict[str, tuple[Candidates, int | None]]()
        for name, room in headrooms.items():
            part = self._queue_pass.parts[name]
            smallest = part.smallest_waiting
            if smallest is not None and (room is None or smallest <= room):
                found[name] = (self._queue_pass.ranking_of(part).candidates(now), room)
        return QueueCandidates(found)

    def next_expiry(self) -> int | None:
        times = [ranks.next_expiry() for ranks in self._by_queue().values()]
        return min((at for at in times if at is not None), default=None)


class QueueCandidates:
    """Waiting jobs of several queues that fit within the headroom of their queue, best rank first."""

    def __init__(self, by_queue: Mapping[str, tuple[Candidates, int | None]]) -> None:
        self._by_queue = by_queue

    def drop(self, group: Hashable) -> None:
        """Nothing more of this group fits in this pass."""
        assert isinstance(group, tuple)
        queue, inner = group
        self._by_queue[queue][0].drop(inner)

    def __iter__(self) -> Iterator[tuple[Key, Hashable, JobRecord]]:
        # keys are unique per job, so groups and records are never compared
        return merge(*(self._of(queue) for queue in self._by_queue))

    def _of(self, queue: str) -> Iterator[tuple[Key, Hashable, JobRecord]]:
        candidates, room = self._by_queue[queue]
        for key, group, record in candidates:
            if room is None or record.demand.nominal.total_share <= room:
                yield key, (queue, group), record
            else:
                candidates.drop(group)


def divide_between_queues(p: Pass) -> None:
    """Start jobs within the budgets of their queues."""
    assert p.queue_pass is not None
    p.queue_pass.recount()
    p.queue_pass.start_jobs()
    for stuck in p.caches.stuck_in.values():
        drop_relaxed_failures(stuck)


def remember_shares(p: Pass) -> None:
    """Record what queues hold after this pass."""
    queue_pass = p.queue_pass
    assert queue_pass is not None
    queue_pass.recount()
    p.remember(shares=with_usage(queue_pass, queue_pass.shares, p.settings.half_life_ms))
    p.wake_by(queue_pass.wake_at())
