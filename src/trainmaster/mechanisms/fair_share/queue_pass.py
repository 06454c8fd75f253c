"""One pass of a policy that divides between queues: the inner policies plan, then reclaim, then lending.

1. In the order of offers, each queue's inner policy plans for its own jobs within the queue's budget
   (and what no other queue can claim), and jobs that fit the budget start. A queue above its budget may
   still swap its own jobs for each other. The inner policy is asked only where a job of the queue has
   changed or its own time has come.
2. Queues that are owed GPUs get them back from queues that hold more than theirs (reclaim.py).
3. What is left is lent, job by job, to the first in the order of offers, up to its maximum.

No job is touched twice in a pass, so no job goes back and forth at one instant: reclaimed GPUs are given
within a budget, and GPUs within a budget are not reclaimed while demands stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainmaster.core.draft import Draft
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.queue_views import QueueView
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.fair_share.queue_tree import QueueNode, QueueTree
from trainmaster.mechanisms.preemption_guards import STARVING, PreemptionGuards
from trainmaster.mechanisms.type_choice import TypeChoice
from trainmaster.model.codec import stored_as
from trainmaster.model.placement import Placement
from trainmaster.model.plan import FrozenMap
from trainmaster.model.units import WHOLE
from trainmaster.placement.placers import Placer

Inner = BasePolicy[Any, Any]


@stored_as("fair-share.Inner")
@dataclass(frozen=True, slots=True)
class QueuePassMemo:
    """By queue: the inner policy's memory, and when it wants to be asked again."""

    inner: FrozenMap[str, object] = field(default_factory=FrozenMap)
    wakes: FrozenMap[str, int] = field(default_factory=FrozenMap)


class QueuePass:
    """The draft of one pass, and what each queue holds in it."""

    def __init__(
        self,
        view: View,
        parts: Mapping[str, QueueView],
        tree: QueueTree,
        inner_of: Callable[[str], Inner],
        memo: QueuePassMemo,
        guards: PreemptionGuards,
        now: int,
    ) -> None:
        self.parts = parts
        self.tree = tree
        self.draft = Draft(view)
        self.now = now
        self._inner_of = inner_of
        self.guards = guards
        self._memo = memo
        self._new_memos: dict[str, object] = {}
        self._wakes = dict(memo.wakes)
        self._is_moldable = any(inner_of(name).is_moldable for name in list(parts)[:1])
        self._to_ask = self._queues_to_ask(view)
        self._due: int | None = None
        self._collecting: list[JobRecord] = []
        """Starving jobs for which free GPUs collect, once all that is within budgets has started."""
        self.choice: TypeChoice | None = None
        """How jobs choose between types of devices; None: they take the fastest that is free."""

    def _queues_to_ask(self, view: View) -> set[str]:
        """Queues with changes, queues whose inner policy asked to be woken by now, and all if a node drains.

        All too if the inner policy molds jobs, because only it can say what fits.
        """
        if view.draining or self._is_moldable:
            return set(self.parts)
        found = {name for name in view.dirty_queues if name in self.parts}
        for name, at in self._memo.wakes.items():
            if at <= self.now and name in self.parts:
                found.add(name)
        for job in view.reservations:
            found.add(view.jobs[job].job.queue)
        return found

    def memo(self) -> QueuePassMemo:
        """The memory after this round: the same value where nothing has changed."""
        memo, wakes = self._memo, self._memo.wakes
        if self._wakes != wakes:
            wakes = FrozenMap({name: at for name, at in self._wakes.items() if name in self.parts})
        elif not self._new_memos:
            return memo
        return QueuePassMemo(memo.inner.updated(self._new_memos), wakes)

    def wake_by(self, time: int | None) -> None:
        """Ask again no later than then."""
        if time is not None and (self._due is None or time < self._due):
            self._due = time

    def wake_at(self) -> int | None:
        """When an inner policy wants to be asked again, or a protected run no longer is."""
        times = [at for at in self._wakes.values() if at > self.now]
        if self._due is not None:
            times.append(self._due)
        return min(times, default=None)

    # -- when there is enough for all ------------------------------------------------------------

    def is_enough_for_all(self, total: int) -> bool:
        """Whether all demands together fit, so that there is nothing to divide."""
        if self.tree.has_maxima:
            return False
        return sum([part.wanted for part in self.parts.values()]) <= total

    def serve_all(self) -> bool:
        """Start every job that fits; False where a job is left waiting nevertheless."""
        is_done = True
        for name, part in self.parts.items():
            leaf = self.tree.leaves[name]
            leaf.budget = part.wanted
            if name in self._to_ask:
                self._planned(part, leaf, 0 if self._must_not_overtake(part) else None)
            if part.waiting_count and self._may_fit(part, None):
                self._start_by_rank(part, leaf, None)
            is_done = is_done and (not part.waiting_count or leaf.used >= part.wanted)
        return is_done

    # -- within budgets --------------------------------------------------------------------------

    def plan_within_budgets(self) -> None:
        leaves = self.tree.offers()
        is_contended = sum([self.parts[leaf.name].waiting_count > 0 for leaf in leaves]) > 1
        for leaf in leaves:
            part = self.parts[leaf.name]
            if leaf.name in self._to_ask:
                self._ask(part, leaf, is_contended=is_contended)
            if part.waiting_count:
                self._start_by_rank(part, leaf, leaf.budget)
        self.take_note()

    def take_note(self) -> None:
        """Ask the inner policies of queues with changes that have not been asked yet."""
        for name in sorted(self._to_ask & self.parts.keys()):
            self._planned(self.parts[name], self.tree.leaves[name], None)

    def _claimed(self, leaf: QueueNode) -> int:
        """What it could still use of its budget, if only GPUs were free."""
        part = self.parts[leaf.name]
        smallest, left = part.smallest_waiting, leaf.budget - leaf.used
        if smallest is None or smallest > left:
            return 0
        return min(left, part.wanted - part.allocated)

    def _ask(self, part: QueueView, leaf: QueueNode, *, is_contended: bool) -> None:
        """Let the inner policy plan with the queue's budget, and with GPUs that no other queue waits for."""
        if self._must_not_overtake(part):
            self._planned(part, leaf, 0)
            return
        free = 0 if is_contended else self.draft.space.total_free() * WHOLE
        budget, room = max(0, leaf.budget - leaf.used, free), leaf.headroom
        self._planned(part, leaf, budget if room is None else max(0, min(budget, room)))

    def _planned(self, part: QueueView, leaf: QueueNode, budget: int | None) -> None:
        inner, queue = self._inner_of(part.queue), part.queue
        memo = self._memo_of(queue)
        self._to_ask.discard(queue)
        inner.type_choice = self.choice
        with part.within(budget) as view:
            plan = inner.plan(view, memo, self.now)
        inner.type_choice = None
        if plan.actions:
            leaf.give(self.draft.apply(plan))
        if plan.memo is not memo:
            self._new_memos[queue] = plan.memo
        self._set_wake(queue, sooner(inner, part, plan.memo, plan.wake_at, self.now))

    def _set_wake(self, queue: str, wake: int | None) -> None:
        if wake is None:
            self._wakes.pop(queue, None)
        else:
            self._wakes[queue] = wake

    def _memo_of(self, queue: str) -> Any:
        if queue in self._new_memos:
            return self._new_memos[queue]
        if queue not in self._memo.inner:
            self._new_memos[queue] = self._inner_of(queue).first_memo()
            return self._new_memos[queue]
        return self._memo.inner[queue]

    def needy(self) -> list[QueueNode]:
        """Queues that hold less than their budget and have a job that would fit it."""
        return [
            leaf for leaf in self.tree.offers() if leaf.used < leaf.budget and self._claimed(leaf)
        ]

    # -- starting by rank ------------------------------------------------------------------------

    def ranking_of(self, part: QueueView) -> RankIndex | None:
        """The queue's jobs in the order of its inner policy, if that keeps one."""
        return self._inner_of(part.queue).queue_ranking(part, self._memo_of(part.queue), self.now)

    def _must_not_overtake(self, part: QueueView) -> bool:
        """Whether the best-ranked job starves, and the inner policy would let others overtake it."""
        if part.overrule is None or not self.guards.starve_after_ms or not part.waiting_count:
            return False
        ranks = self.ranking_of(part)
        first = None if ranks is None else ranks.best_waiting(self.now)
        return first is not None and first[0] <= STARVING

    def _collects(self, record: JobRecord) -> bool:
        """Whether this job, which does not fit now, has waited so long that GPUs collect for it."""
        if not self.guards.is_starving(record, self.now):
            return False
        leaf, space = self.tree.leaves[record.job.queue], self.draft.space
        return may_accumulate(record, self._least(record), leaf, space, self.placer_of)

    def _first_that_collects(self, part: QueueView) -> Iterator[JobRecord]:
        """The first starving job for which GPUs accumulate, of a queue that holds less than its budget.

        None where an earlier job has to start first.
        """
        leaf = self.tree.leaves[part.queue]
        allows_overtaking = self._inner_of(part.queue).allows_overtaking
        ranks = self.ranking_of(part) if part.waiting_count and leaf.used < leaf.budget else None
        for _, _, record in ranks.candidates(self.now) if ranks is not None else ():
            if not self.guards.is_starving(record, self.now):
                return
            if self.draft.is_touched(record):
                continue
            if self._collects(record):
                yield record
                return
            if not allows_overtaking:
                return

    def _may_fit(self, part: QueueView, room: int | None) -> bool:
        """Whether there is any use in looking at its waiting jobs."""
        smallest = part.smallest_waiting
        if smallest is not None and self._is_moldable:
            return True
        if smallest is None or (room is not None and smallest > room):
            return False
        return smallest < WHOLE or smallest <= self.draft.space.total_free() * WHOLE

    def _start_by_rank(self, part: QueueView, leaf: QueueNode, limit: int | None) -> None:
        """Start waiting jobs, best rank first, while the queue holds no more than the limit."""

        def room() -> int | None:
            return leaf.headroom if limit is None else leaf.room_below(limit)

        if not self._may_fit(part, room()):
            return
        for record in self.waiting_by_rank(part, room):
            placement = self.placed(record, room())
            if placement is not None:
                self.start(leaf, record, placement)

    def waiting_by_rank(
        self, part: QueueView, room: Callable[[], int | None]
    ) -> Iterator[JobRecord]:
        """Waiting jobs that are not placed yet and that the room allows, best rank first.

        A job that the caller does not place is assumed not to fit: jobs with the same demand are
        skipped, and so are all others where the inner policy does not allow overtaking. If it starves,
        so is any job that could use the same GPUs (`may_accumulate`).
        """
        allows_overtaking = self._inner_of(part.queue).allows_overtaking
        ranks = self.ranking_of(part)
        if ranks is None:
            yield from self._by_priority(part, room)
            return
        candidates, space, barred = (
            ranks.candidates(self.now),
            self.draft.space,
            self._barred_to(part),
        )
        for _, group, record in candidates:
            if self.draft.is_touched(record):
                continue
            left = room()
            is_barred = not barred.isdisjoint(space.kinds_for(record.demand))
            if not is_barred and (left is None or self._least(record) <= left):
                yield record
            if not self.draft.is_touched(record):
                if self.choice is not None and self.choice.has_declined(record):
                    continue
                if not allows_overtaking:
                    return
                candidates.drop(group)
                if not is_barred and self._collects(record):
                    barred.update(space.kinds_for(record.demand))

    def _barred_to(self, part: QueueView) -> set[int]:
        """Device types of which what is free collects for starving jobs of other queues."""
        others = [each for each in self._collecting if each.job.queue != part.queue]
        return {kind for each in others for kind in self.draft.space.kinds_for(each.demand)}

    def _by_priority(self, part: QueueView, room: Callable[[], int | None]) -> Iterator[JobRecord]:
        ranked = sorted(part.waiting(), key=lambda record: (-record.job.priority, record.seq))
        failed: set[int] = set()
        for record in ranked:
            left = room()
            if record.group in failed or self.draft.is_touched(record):
                continue
            if left is None or self._least(record) <= left:
                yield record
            if not self.draft.is_touched(record):
                failed.add(record.group)

    def placer_of(self, record: JobRecord) -> Placer:
        own = self._inner_of(record.job.queue).placer
        return own(record) if self.choice is None else self.choice.placers(own)(record)

    def _least(self, record: JobRecord) -> int:
        """The smallest share that it could start with."""
        demand = record.demand
        if self._is_moldable and demand.is_elastic:
            return demand.sized(demand.min_count).total_share
        return demand.nominal.total_share

    def placed(self, record: JobRecord, room: int | None) -> Placement | None:
        """Where it fits now within the room, smaller than nominal where the inner policy molds."""
        demand, space, placer = record.demand, self.draft.space, self.placer_of(record)
        found = None
        if room is None or demand.nominal.total_share <= room:
            found = placer.place(space, record)
        if found is None and self._is_moldable and demand.is_elastic:
            for count in range(demand.nominal.count - 1, demand.min_count - 1, -1):
                shape = demand.sized(count)
                if found is None and (room is None or shape.total_share <= room):
                    found = placer.shaped(space, demand, shape, record.job.role)
        return found

    def start(self, leaf: QueueNode, record: JobRecord, placement: Placement) -> None:
        self.draft.unreserve(record)
        self.draft.start(record, placement)
        leaf.give(placement.total_share)

    def give(self, record: JobRecord, sign: int) -> None:
        """Count the GPUs of a job that ran before this pass for its queue again (1), or no longer (-1)."""
        queue = record.job.queue
        self.tree.leaves[queue].give(sign * self.parts[queue].allocated_to(record))

    # -- lending ---------------------------------------------------------------------------------

    def lend(self) -> None:
        """One job at a time to the first in the order of offers that can use what is left."""
        if self.guards.starve_after_ms:
            parts = self.parts.values()
            self._collecting = [each for part in parts for each in self._first_that_collects(part)]
        borrowers = {
            leaf.name: self._borrowers(self.parts[leaf.name], leaf)
            for leaf in self.tree.leaves.values()
            if leaf.wanted and self._may_fit(self.parts[leaf.name], leaf.headroom)
        }
        while borrowers:
            for leaf in self.tree.offers():
                if leaf.name in borrowers:
                    if not self._lend_one(leaf, borrowers[leaf.name]):
                        del borrowers[leaf.name]
                    break

    def _borrowers(self, part: QueueView, leaf: QueueNode) -> Iterator[JobRecord]:
        return self.waiting_by_rank(part, lambda: leaf.headroom)

    def _lend_one(self, leaf: QueueNode, borrowers: Iterator[JobRecord]) -> bool:
        """Start the next job that fits; jobs that did not fit before do not fit now."""
        for record in borrowers:
            placement = self.placed(record, leaf.headroom)
            if placement is not None:
                self.start(leaf, record, placement)
                return True
        return False


def sooner(inner: Inner, part: QueueView, memo: Any, wake: int | None, now: int) -> int | None:
    """That time, or the earlier one at which a guard of a job of the queue begins or ends."""
    ranks = inner.queue_ranking(part, memo, now) if part.overrule is not None else None
    due = ranks.next_expiry() if ranks is not None else None
    return wake if due is None or (wake is not None and wake < due) else due


def may_accumulate(
    record: JobRecord,
    least: int,
    leaf: QueueNode,
    space: Occupancy,
    placer_of: Callable[[JobRecord], Placer],
) -> bool:
    """Whether free GPUs accumulate for a gang that has waited `starve_after_s` and does not fit yet.

    To go first does not help a gang that does not fit while others pass it. So no job behind it in its
    queue starts on GPUs that it could use, and no other queue borrows such GPUs, until enough are free.
    Other queues keep what is theirs: nothing accumulates for a gang that is larger than its queue's part
    of the cluster, or that the nodes still in use cannot hold.
    """
    if least > leaf.budget or leaf.never_holds(least):
        return False
    if not (space.closed or space.aside):
        return True
    kinds = space.kinds_for(record.demand)
    hurt = {*space.closed, *(space.node_of[gpu] for gpu in space.aside)}
    if placer_of(record).insists and any(space.node_type[node] in kinds for node in hurt):
        return False
    usable = [
        gpus
        for node, gpus in enumerate(space.usable)
        if node not in space.closed and space.node_type[node] in kinds
    ]
    return sum(usable) * WHOLE >= least
