"""Themis (Mahajan et al., NSDI'20): finish-time fairness by auctions of leased GPUs.

rho = the time an app takes in the shared cluster / the time with a 1/N share of it, N its mean number
of apps. Whenever GPUs are free or leases have run out, the (1 - `filter_f`) apps with the largest
rho bid for them; partial allocation picks disjoint bundles that serve most bidders with the largest
product of 1/rho; each winner keeps only what its hidden payment leaves; what is withheld or unwanted
goes to the others by rho, work-conserving. Every grant is a lease of `lease_s`. What jobs for a part of a
GPU leave of it is no part of the offer: other such jobs start there at once, and their leases end together.

Deviations. Gangs: bids are gang-feasible bundles (the paper's apps mould freely); values are products
over the apps that are served. A bundle is valued at the place that the offer has for it alone. An app
of several jobs ends its work at the sum of their speeds. A lease lasts at least as long in training, so
that restarts do not use it up, and ends on a grid of a fifth of it, so that many end together. A waiting app
that is worst off (or starving) and that the offer cannot serve has its GPUs collected: until they could be
free together, others are lent GPUs only up to that time; then it is served before the auction. Remaining
work comes from estimates; without one, a job is taken to need as much again as it has done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from trainmaster.config.options import fraction, option, positive_seconds
from trainmaster.core.draft import Draft
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.estimators.throughput_calibration import NOTHING_MEASURED, Corrections
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.preemption_guards import PreemptiveOptions
from trainmaster.mechanisms.preemptive_scheduling import evacuate
from trainmaster.model.codec import stored_as
from trainmaster.model.plan import Plan
from trainmaster.model.units import NOMINAL, ceil_div, to_ms
from trainmaster.policies.themis.apps import ActiveAppsIntegral, AppIndex, BiddingApp
from trainmaster.policies.themis.auction import Bid, Bundle, allocate, kept_fractions
from trainmaster.policies.themis.grant_placement import GrantPlacement, PlaceEstimator
from trainmaster.policies.themis.leases import (
    NO_LEASES,
    Lease,
    LeaseEnds,
    Leases,
    LeaseTerms,
    collection_time,
)

NO_APPS = ActiveAppsIntegral()


@dataclass(frozen=True, slots=True)
class ThemisOptions(PreemptiveOptions):
    filter_f: float = option(
        0.8, fraction, "fraction of apps that may not bid: the ones with the smallest rho"
    )
    lease_s: float = option(600.0, positive_seconds, "length of a lease of GPUs, in seconds")


@stored_as("themis.Memo")
@dataclass(frozen=True, slots=True)
class ThemisMemo:
    """How many apps there were, leases, measured speeds, and the app that is served next."""

    census: ActiveAppsIntegral = NO_APPS
    leases: Leases = NO_LEASES
    corrections: Corrections = NOTHING_MEASURED
    awaited: str | None = None
    """The app that was worst off in the last round, had nothing, and got nothing."""


class Themis(BasePolicy[ThemisOptions, ThemisMemo]):
    name = "themis"
    options_type = ThemisOptions
    memo_type = ThemisMemo
    profiles = True
    is_moldable = True

    def __init__(self, options: ThemisOptions) -> None:
        super().__init__(options)
        self._terms = LeaseTerms(to_ms(options.lease_s), self.guards)
        self._bidding_ppm = NOMINAL - round(options.filter_f * NOMINAL)
        self._index: AppIndex | None = None
        self._ends = LeaseEnds()
        self._estimator: PlaceEstimator | None = None

    def forget(self) -> None:
        super().forget()
        self._index = self._estimator = None

    # -- one round -------------------------------------------------------------------------------

    def plan(self, view: View, memo: ThemisMemo, now: int) -> Plan[ThemisMemo]:
        index = self._follow(view, memo)
        if index.has_changed:
            index.has_changed = False
            memo = replace(memo, census=memo.census.counted(index.jobs, now))
        if view.has_nothing_to_schedule() and not index.elastic:
            return Plan((), memo)
        draft = Draft(view)
        if view.draining:
            evacuate(view, draft, self.placer)
        self._estimator = self._estimator or PlaceEstimator(view.topology)
        granting = GrantPlacement(draft, self._estimator, memo.corrections)
        if not index.elastic and granting.give_to_all(index.in_line()):
            return draft.plan(self._leased(draft, memo, (), self._terms.lease(now)))
        joined = self._join_shared(index, granting, memo, now)
        due = self._ends.due(now)
        staying = [each for each in due if each.is_protected or _is_on_closed(draft, each)]
        renewed = {each.id: self._terms.lease(now) for each in staying}  # nobody else can have them
        memo = replace(memo, leases=memo.leases.updated(renewed)) if renewed else memo
        for record in staying:
            self._ends.put(record, self._terms.end_of(record, memo.leases))
        pool = [each for each in due if each.id not in renewed and not draft.is_touched(each)]
        if pool or view.occupancy.total_free():
            granting.learn(pool)
            memo = replace(memo, corrections=granting.corrections)
            memo = self._round(index, memo, granting, pool, now)
        if joined:
            memo = replace(memo, leases=memo.leases.updated(joined))
        return draft.plan(memo, self._ends.next())

    def wake(self, view: View, memo: ThemisMemo, now: int) -> int | None:
        index = self._follow(view, memo)
        return None if view.has_nothing_to_schedule() and not index.elastic else self._ends.next()

    def _join_shared(
        self, index: AppIndex, granting: GrantPlacement, memo: ThemisMemo, now: int
    ) -> dict[str, Lease]:
        """Start jobs for a part of a GPU on what others leave of theirs: only whole GPUs are bid for.

        Their leases end with those of the runs beside them, so that no GPU comes back later.
        """
        joined: dict[str, Lease] = {}
        for record in index.in_line():
            beside = granting.join(record)
            ends = [self._terms.expected_end_of(run, memo.leases, now) for run in beside]
            if ends:
                joined[record.id] = Lease(max(ends), 0)
        return joined

    def _round(
        self,
        index: AppIndex,
        memo: ThemisMemo,
        granting: GrantPlacement,
        pool: list[JobRecord],
        now: int,
    ) -> ThemisMemo:
        draft, terms = granting.draft, self._terms
        for record in pool:
            draft.suspend(record)
        starves = partial(self.guards.is_starving, now=now)
        apps = index.bidders(pool, memo.census, starves, now, is_served=draft.is_placed)
        gpus, offered = max(1, draft.view.topology.training_gpus), granting.offered()
        for app in apps:
            app.value(granting.speed, granting.best_speed, gpus, offered)
        apps.sort(key=BiddingApp.order)
        worst, collected_at = (apps[0] if apps else None), None
        if worst and worst.has_nothing and not worst.grants:
            others = [run for run in index.holding.values() if not draft.is_evicted(run)]
            held = [(terms.expected_end_of(run, memo.leases, now), run) for run in others]
            collected_at = collection_time(worst.candidates[0], draft, held)
        if collected_at is None or collected_at - now >= terms.worth_ms:
            self._hold_auction(index, granting, apps, memo.awaited)
        else:
            granting.prolong(pool)
        is_due = worst and worst.has_nothing and not granting.has_any(worst)
        memo = replace(memo, awaited=worst.name if worst and is_due else None)
        return self._leased(draft, memo, pool, terms.lease(now, collected_at))

    def _hold_auction(
        self,
        index: AppIndex,
        granting: GrantPlacement,
        apps: list[BiddingApp],
        awaited: str | None,
    ) -> None:
        """The worst off first if that is overdue, then the bidders, then any app that can use the rest."""
        able = [each for each in apps if each.grants]
        bidders = able[: max(1, ceil_div(self._bidding_ppm * len(able), NOMINAL))]
        offered = granting.offered()
        if able and able[0].has_nothing and (able[0].is_starving or able[0].name == awaited):
            offered -= granting.give_first(able[0])
            bidders = bidders[1:]
        for app, gpus_kept in self._auction(bidders, offered):
            granting.give(app, gpus_kept)
        granting.keep_all()
        granting.give_leftovers(able)
        if index.elastic and all(map(granting.has_all, apps)):
            granting.grow_runs()

    def _auction(self, bidders: Sequence[BiddingApp], offered: int) -> list[tuple[BiddingApp, int]]:
        """The winners and how many GPUs each keeps after payment; in order of need."""
        bids = [
            Bid(each.name, tuple(Bundle(gpus, 1 / late) for gpus, late, _ in each.grants))
            for each in bidders
        ]
        winners = allocate(bids, offered)
        kept = kept_fractions(bids, offered, winners)
        return [
            (each, int(winners[each.name].gpus * kept[each.name] + 1e-9))
            for each in bidders
            if each.name in winners
        ]

    def _leased(
        self, draft: Draft, memo: ThemisMemo, pool: Sequence[JobRecord], lease: Lease
    ) -> ThemisMemo:
        """New leases for jobs that were given GPUs or kept them."""
        kept = [record for record in pool if not draft.is_evicted(record)]
        new = dict.fromkeys((*(record.id for record in kept), *draft.placed()), lease)
        if not new:
            return memo
        leases = memo.leases.updated(new).only(draft.view.jobs)
        for record in kept:
            self._ends.put(record, self._terms.end_of(record, leases))
        return replace(memo, leases=leases)

    # -- what is known ---------------------------------------------------------------------------

    def _follow(self, view: View, memo: ThemisMemo) -> AppIndex:
        index = view.index(AppIndex)
        index.follow(view.changes(AppIndex).read_jobs())
        news, index.news = index.news, []
        if self._index is not index:
            self._index, self._ends = index, LeaseEnds()
            news = list(view.jobs.values())
        for record in news:
            self._ends.put(record, self._terms.end_of(record, memo.leases))
        return index


def _is_on_closed(draft: Draft, record: JobRecord) -> bool:
    """Whether it runs on GPUs that no other job could get."""
    placement = record.placement
    return placement is not None and not draft.space.is_open(placement)
