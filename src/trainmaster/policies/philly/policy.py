"""Philly (Jeon et al., ATC'19, section 2.3): fair shares between queues, locality within patience.

Between queues: the fair layer of `fair`. A queue may use idle GPUs of others; they are taken back only
when the cluster is nearly full (`utilisation_threshold`, about 90 %). Inside a queue: first in, first
out, but a later job that fits may start while an earlier one waits for locality. A job asks for the
fewest servers of one rack; a search that lasts gives up what it holds, backs off, and asks for less
(`locality_search.py`). Each delay has a cause: the queue's share is used up, or GPUs lie apart.

Deviations. Times are those of the paper as remembered (2-3 and 2 minutes); after how many retries it
relaxes is not published: 1. The clock runs only while locality is all that is missing. Jobs of one queue
that ask for the same do not overtake each other. The number of searching and holding jobs is bounded. Failure
handling is left out. A job that has waited `starve_after_s` takes any GPUs, and free ones collect for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trainmaster.config.options import (
    NoOptions,
    at_least_zero,
    choice,
    fraction,
    option,
    positive_seconds,
    whole_number,
)
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.fair_share.fair_sharing import FairMemo, FairOptions, FairSharing
from trainmaster.mechanisms.fair_share.hierarchical_policy import QueueWeightOptions, capacity
from trainmaster.mechanisms.fair_share.queue_pass import Inner, QueuePass
from trainmaster.mechanisms.fair_share.queue_tree import QueueNode
from trainmaster.model.codec import stored_as
from trainmaster.model.job import Demand
from trainmaster.model.placement import Sharing
from trainmaster.model.plan import FrozenMap, Plan
from trainmaster.model.reasons import Reason, Why
from trainmaster.model.units import WHOLE, to_ms
from trainmaster.policies.philly.locality_search import (
    LocalitySearch,
    Searches,
    SearchPass,
    SearchTerms,
    has_headroom,
    idle_gpus,
)


@dataclass(frozen=True, slots=True)
class PhillyOptions(QueueWeightOptions):
    acquire_timeout_s: float = option(
        150.0, positive_seconds, "seconds for which a job tries to acquire all its GPUs"
    )
    backoff_s: float = option(
        120.0, positive_seconds, "seconds it then backs off, with all GPUs released"
    )
    relax_after: int = option(
        1, whole_number(1, 10**9), "number of retries after which one more server is allowed"
    )
    preemption: str = option("on", choice("on", "off"), "let starving queues reclaim GPUs")
    preempt_timeout_s: float = option(
        300.0, at_least_zero, "seconds a queue starves before it reclaims GPUs"
    )
    utilisation_threshold: float = option(
        0.9, fraction, "reclaim GPUs only when more than this fraction is allocated"
    )


@stored_as("philly.Memo")
@dataclass(frozen=True, slots=True)
class PhillyMemo:
    """The fair layer's memory, and the searches of waiting jobs."""

    fair: FairMemo = field(default_factory=FairMemo)
    searches: Searches = field(default_factory=FrozenMap)


class Philly(FairSharing[PhillyOptions, PhillyMemo]):
    name = "philly"
    options_type = PhillyOptions
    memo_type = PhillyMemo

    def __init__(self, options: PhillyOptions) -> None:
        terms = FairOptions(
            preemption=options.preemption,
            preempt_timeout_s=options.preempt_timeout_s,
            utilisation_threshold=options.utilisation_threshold,
        )
        super().__init__(options, terms)
        self._terms = SearchTerms(
            to_ms(options.acquire_timeout_s), to_ms(options.backoff_s), options.relax_after
        )

    def chosen_inner(self, options: PhillyOptions) -> tuple[Any, object]:
        return LocalitySearch, NoOptions()

    def inner_of(self, queue: str) -> Inner:
        """One policy for all queues, since it has no memory."""
        return self._any_inner

    @property
    def _search(self) -> LocalitySearch:
        assert isinstance(self._any_inner, LocalitySearch)
        return self._any_inner

    # -- a pass ----------------------------------------------------------------------------------

    def plan(self, view: View, memo: PhillyMemo, now: int) -> Plan[PhillyMemo]:
        total, before = capacity(view), memo.fair.starving
        round_ = self.begin(view, memo.fair.rounds, now)
        searching = SearchPass(round_, memo.searches, self._search, self._terms)
        starving = FrozenMap[str, int]()
        if view.has_nothing_to_schedule():
            round_.take_note()
        elif self._serve_all(round_, searching, total):
            searching.drop_started()
        else:
            self._serve_shares(round_, searching, total, before)
            starving = FrozenMap(self._starving_since(round_, before))
            searching.settle()
        fair = FairMemo(round_.memo(), starving)
        times = (self._wake_at(round_, starving), searching.wake_at())
        wake = min((at for at in times if at is not None), default=None)
        return round_.draft.plan(PhillyMemo(fair, searching.memo()), wake)

    def _serve_all(self, round_: QueuePass, searching: SearchPass, total: int) -> bool:
        """Whether there was enough for all, and every job has found a place."""
        if not round_.is_enough_for_all(total):
            return False
        leaves = [round_.tree.leaves[name] for name in round_.parts]
        searching.complete(leaves, has_headroom)
        return round_.serve_all()

    def _serve_shares(
        self, round_: QueuePass, searching: SearchPass, total: int, since: FrozenMap[str, int]
    ) -> None:
        self._divide(round_, total, {})
        searching.complete(round_.tree.offers(), _is_within_budget)
        round_.plan_within_budgets()
        if self.is_preemptive:
            self._take_back(round_, since, total)
        round_.lend()

    def wake(self, view: View, memo: PhillyMemo, now: int) -> int | None:
        return self.wake_of(view, memo.fair.rounds, now)

    # -- why jobs wait ---------------------------------------------------------------------------

    def explain(self, view: View, memo: PhillyMemo, record: JobRecord, now: int) -> Reason:
        """The common reason, unless the queue's share or locality is the cause."""
        search = self._search
        search.space, search.searches = view.occupancy, memo.searches
        search.starves = lambda other: self.guards.is_starving(other, now)
        reason = self.placement_reason(view, record, now)
        if record.placement is not None:
            return reason
        round_, need = self._divided(view, memo, now), reason.need
        leaf = round_.tree.leaves[record.job.queue]
        why, held_by = self._cause(round_, record.job.queue, record.demand), reason.held_by
        too_small, standing = leaf.too_small_for(need), leaf.standing()
        if too_small is not None:
            why, standing = Why.NEVER_FITS, too_small.standing()
        elif why is Why.SHARE_USED_UP:
            own = tuple(each.id for each in round_.parts[leaf.name].running()[:5])
            held_by = own or held_by
        elif not (why is Why.FRAGMENTED and record.id in view.reservations):
            return reason
        queue = None if why is Why.FRAGMENTED else standing
        return Reason(why, need, reason.free, reason.largest_block, held_by, queue=queue)

    def causes(self, view: View, memo: PhillyMemo, now: int) -> Callable[[str, Demand], Why]:
        """For counting delays: why jobs of a queue and demand wait now."""
        round_ = self._divided(view, memo, now)
        return lambda queue, demand: self._cause(round_, queue, demand)

    def _divided(self, view: View, memo: PhillyMemo, now: int) -> QueuePass:
        round_ = self.begin(view, memo.fair.rounds, now)
        round_.tree.divide_budgets(capacity(view))
        return round_

    def _cause(self, round_: QueuePass, queue: str, demand: Demand) -> Why:
        """Why jobs of this queue and demand wait: locality, the queue's share, or too few free GPUs."""
        space, need = round_.draft.space, demand.nominal.total_share
        leaf = round_.tree.leaves.get(queue)
        if leaf is None:  # all its jobs are on hold, or wait for the time of a retry
            return Why.NOT_ENOUGH_FREE
        if not has_headroom(leaf, need):
            return Why.SHARE_USED_UP
        reserved = sum([len(held.slices) for held in round_.draft.view.reservations.values()])
        idle = (idle_gpus(space, demand) + reserved) * WHOLE
        if demand.mode is Sharing.EXCLUSIVE and idle >= need:
            return Why.FRAGMENTED
        is_spent = len(round_.parts) > 1 and not _is_within_budget(leaf, need)
        return Why.SHARE_USED_UP if is_spent else Why.NOT_ENOUGH_FREE


def _is_within_budget(leaf: QueueNode, share: int) -> bool:
    return leaf.used + share <= leaf.budget and has_headroom(leaf, share)
