"""Reclaim GPUs from queues that hold more than their share: whole gangs, no more than needed.

A run is preempted only if its queue, and every ancestor that the claimant is not in, keeps its own share,
and never while it is protected by `min_run_s`. Runs are counted before anything is booked, so that an
attempt that cannot succeed costs a look at each run and no more.

Some jobs are due now, whatever the queues' budgets are: starving jobs, and jobs with deadlines to meet.
What they need counts as guaranteed to their queue. A due job preempts runs of its own queue first, the
worst-ranked before the others, then runs of the queues that hold most; never another job that is due.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

from trainmaster.core.lifecycle import ALLOCATED, WAITING
from trainmaster.core.queue_views import QueueView
from trainmaster.core.state import JobRecord
from trainmaster.mechanisms.fair_share.queue_pass import QueuePass
from trainmaster.mechanisms.fair_share.queue_tree import QueueNode
from trainmaster.mechanisms.gang_victims import NodeVictimCount
from trainmaster.model.placement import Placement
from trainmaster.model.units import WHOLE

Own = Callable[[QueueNode], int]
"""A queue's own share, which is not reclaimed."""
ToGo = Callable[["Reclaim", Sequence[QueueView]], Iterator[JobRecord]]
"""Runs of these queues in the order in which they are preempted."""


class Reclaim:
    """One rule of what may be reclaimed from which queues, applied in one pass."""

    def __init__(self, round_: QueuePass, own: Own, to_go: ToGo) -> None:
        self.round = round_
        self._own = own
        self._to_go = to_go
        self._hopeless: dict[Hashable, int] = {}
        """The smallest size for which reclaiming has failed; room only shrinks during a pass."""

    def serve(self, leaf: QueueNode, owed: int) -> None:
        """Start waiting jobs of a queue up to what it is owed, preempting runs of other queues."""
        round_ = self.round
        part = round_.parts[leaf.name]
        smallest = part.smallest_waiting
        if smallest is None or smallest > owed - leaf.used:
            return
        for record in round_.waiting_by_rank(part, lambda: owed - leaf.used):
            placement = round_.placed(record, owed - leaf.used)
            if placement is not None and not leaf.full_for(placement.total_share):
                round_.start(leaf, record, placement)
            elif record.demand.nominal.total_share <= owed - leaf.used:
                self._make_room(leaf, record, has_gpus=placement is not None)

    def excess(self, leaf: QueueNode) -> int:
        """How much more than its own a queue holds."""
        return leaf.used - self._own(leaf)

    def _make_room(self, leaf: QueueNode, record: JobRecord, *, has_gpus: bool) -> None:
        """Preempt runs so that the job starts; runs that are not in its way stay."""
        round_, draft, size = self.round, self.round.draft, record.demand.nominal.total_share
        givers = [
            each
            for each in reversed(round_.tree.offers())
            if each is not leaf and self.excess(each) > 0
        ]
        feasibility = ReclaimFeasibility(round_, record, has_gpus=has_gpus)
        cache_key = (feasibility.cache_key, leaf.parent)
        if size >= self._hopeless.get(cache_key, size + 1):
            return
        if not feasibility.could_fit(sum(self.excess(each) for each in givers)):
            return
        mark, gone, going = draft.checkpoint(), list[JobRecord](), list[JobRecord]()
        placement = None
        for victim in self._to_go(self, [round_.parts[each.name] for each in givers]):
            if not self._can_go(victim, leaf, size):
                continue
            round_.give(victim, -1)
            going.append(victim)
            if feasibility.fits_after(victim) and not leaf.full_for(size):
                needed = [each for each in going if feasibility.is_needed(each)]
                going = [each for each in going if not feasibility.is_needed(each)]
                for each in needed:
                    draft.suspend(each)
                gone += needed
                placement = round_.placed(record, size)
                if placement is not None:
                    break
        for victim in going:
            round_.give(victim, 1)
        if placement is None:
            draft.roll_back(mark)
            for victim in gone:
                round_.give(victim, 1)
            if feasibility.cache_key is not None:
                self._hopeless[cache_key] = size
            return
        round_.start(leaf, record, placement)
        for victim in reversed(gone):
            if not self._leaf(victim).full_for(self._size(victim)) and draft.keep(victim):
                round_.give(victim, 1)

    def _leaf(self, victim: JobRecord) -> QueueNode:
        return self.round.tree.leaves[victim.job.queue]

    def _size(self, victim: JobRecord) -> int:
        return self.round.parts[victim.job.queue].allocated_to(victim)

    def _can_go(self, victim: JobRecord, claimant: QueueNode, wanted: int) -> bool:
        """Whether preempting it would help and leaves its queue and ancestors their own share."""
        round_, size, leaf = self.round, self._size(victim), self._leaf(victim)
        if not 0 < size <= self.excess(leaf):
            return False
        if round_.draft.is_touched(victim) or victim.phase not in ALLOCATED or victim.is_protected:
            return False
        if leaf.parent is not claimant.parent:
            around = set(claimant.path())
            outside = [node for node in leaf.path() if node not in around]
            if any(size > self.excess(node) for node in outside):
                return False
        full = claimant.full_for(wanted)
        if full and not set(leaf.path()).issuperset(full):
            return False
        guards = round_.guards
        if not guards.may_preempt(victim, round_.now):
            round_.wake_by(guards.next_due(victim, round_.now))
            return False
        return True


class ReclaimFeasibility:
    """Counts what preempted runs would free, to say when a job may fit."""

    def __init__(self, round_: QueuePass, record: JobRecord, *, has_gpus: bool) -> None:
        space, demand = round_.draft.space, record.demand
        self._space = space
        self._kinds = space.kinds_for(demand)
        self._need = demand.nominal.count
        self._free = sum([space.free_gpus[kind] for kind in self._kinds])
        self._is_counted = record.is_whole and not space.shared_gpus and not has_gpus
        self._clearing: NodeVictimCount | None = None
        if round_.placer_of(record).insists:
            is_even = all(space.is_even[kind] for kind in self._kinds)
            self._is_counted &= is_even and demand.cpus is None and demand.host_memory is None
            largest = max([space.largest[kind] for kind in self._kinds])
            self._clearing = NodeVictimCount(space, self._kinds, self._need, largest)

    @property
    def cache_key(self) -> Hashable:
        """A key of jobs such that if one does not fit, larger ones do not either; None = no key."""
        if not self._is_counted:
            return None
        return (self._kinds, self._clearing is not None)

    def could_fit(self, excess: int) -> bool:
        """Whether this much more could be enough."""
        return not self._is_counted or self._free * WHOLE + excess >= self._need * WHOLE

    def fits_after(self, victim: JobRecord) -> bool:
        """Whether the job may fit once this run is preempted too."""
        if not self._is_counted:
            return True
        if self._clearing is not None:
            return self._clearing.add(victim)
        space = self._space
        assert victim.placement is not None
        for piece in victim.placement.slices:
            if space.node_type[piece.node] in self._kinds and space.is_offered(piece.gpu):
                self._free += 1
        return self._free >= self._need

    def is_needed(self, victim: JobRecord) -> bool:
        """Whether the job needs the GPUs of this run, which has been counted."""
        if not self._is_counted or self._clearing is None:
            return True
        return self._clearing.is_needed(victim)


def reclaim_and_lend(round_: QueuePass) -> None:
    """Reclaim every queue's budget and guarantee from queues that hold more, then lend what is left."""
    budgets = Reclaim(round_, _budget, worst_ranked_first)
    guarantees = Reclaim(round_, guaranteed, worst_ranked_first)
    for leaf in round_.needy():
        budgets.serve(leaf, leaf.budget)
        guarantees.serve(leaf, leaf.claim.least)
    round_.lend()


def _budget(node: QueueNode) -> int:
    return node.budget


def guaranteed(node: QueueNode) -> int:
    return node.claim.least


def worst_ranked_first(reclaim: Reclaim, parts: Sequence[QueueView]) -> Iterator[JobRecord]:
    """Queue by queue, as they come, the worst-ranked run first."""
    round_ = reclaim.round
    for part in parts:
        order, leaf = round_.ranking_of(part), round_.tree.leaves[part.queue]
        runs = latest_started(reclaim, [part]) if order is None else order.worst_first(round_.now)
        for record in runs:
            if reclaim.excess(leaf) <= 0:
                break
            yield record


def latest_started(reclaim: Reclaim, parts: Sequence[QueueView]) -> Iterator[JobRecord]:
    """Runs of all these queues, the latest started first, because they lose the least work."""
    runs = [record for part in parts for record in part.running()]
    yield from sorted(runs, key=_latest_first)


def _latest_first(record: JobRecord) -> tuple[bool, int, int]:
    since = record.run_since_ms
    return (since is not None, -(since or 0), -record.seq)


# -- jobs that are due ------------------------------------------------------------------------------


def start_due_jobs(round_: QueuePass, records: Sequence[JobRecord]) -> None:
    """Start the due jobs that wait, in this order, after all queues have planned within their budgets."""
    due = {record.seq for record in records}
    for record in records:
        if record.phase in WAITING and not round_.draft.is_touched(record):
            _start_due(round_, record, due)


def _start_due(round_: QueuePass, record: JobRecord, due: set[int]) -> None:
    draft, leaf = round_.draft, round_.tree.leaves[record.job.queue]
    mark, gone = draft.checkpoint(), list[JobRecord]()
    placement = _place_due(round_, record)
    for victim in _giving_way(round_, record, due) if placement is None else ():
        draft.suspend(victim)
        round_.give(victim, -1)
        gone.append(victim)
        placement = _place_due(round_, record)
        if placement is not None:
            break
    if placement is None:
        draft.roll_back(mark)
        for victim in gone:
            round_.give(victim, 1)
        return
    round_.start(leaf, record, placement)
    for victim in reversed(gone):
        if draft.keep(victim):
            round_.give(victim, 1)


def _place_due(round_: QueuePass, record: JobRecord) -> Placement | None:
    """Where it fits now, within the maxima; not looked for before enough GPUs are free at all."""
    space, demand, leaf = round_.draft.space, record.demand, round_.tree.leaves[record.job.queue]
    free = sum([space.free_gpus[kind] for kind in space.kinds_for(demand)])
    if leaf.full_for(demand.nominal.total_share) or (
        record.is_whole and free < demand.nominal.count
    ):
        return None
    return round_.placed(record, None)


def _giving_way(round_: QueuePass, record: JobRecord, due: set[int]) -> Iterator[JobRecord]:
    """Runs that may be preempted for it, in order."""
    mine = round_.tree.leaves[record.job.queue]
    others = [leaf for leaf in reversed(round_.tree.offers()) if leaf is not mine]
    for leaf in (mine, *others):
        part = round_.parts[leaf.name]
        order = round_.ranking_of(part)
        for run in order.worst_first(round_.now) if order is not None else ():
            is_free = run.phase in ALLOCATED and not round_.draft.is_touched(run)
            if is_free and run.seq not in due:
                yield run
