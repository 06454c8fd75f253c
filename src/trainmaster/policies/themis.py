"""Themis (Mahajan et al., NSDI'20): finish-time fairness by auctions of leased GPUs.

rho = the time an app takes in the shared cluster / the time with a 1/N share of it, N its mean number
of contenders. Whenever GPUs are free or leases have run out, the (1 - `filter_f`) apps with the largest
rho bid for them; partial allocation picks disjoint bundles that serve most bidders with the largest
product of 1/rho; each winner keeps only what its hidden payment leaves; what is withheld or unwanted
goes to the others by rho, work-conserving. Every grant is a lease of `lease_s`.

Deviations. Gangs: bids are gang-feasible bundles (the paper's apps mould freely); values are products
over the apps that are served. A bundle is valued at the place that the offer has for it alone. An app
of several jobs ends its work at the sum of their speeds. A lease lasts at least as long in training, so
that restarts cannot eat it, and ends on a grid of a tenth of it: rounds come together. Remaining work
comes from estimates; without one, a job is taken to need as much again as it has done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainmaster.core.draft import Draft
from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model.plan import FrozenMap, Plan
from trainmaster.model.units import NOMINAL, ceil_div, to_ms
from trainmaster.perf.throughput import NOTHING_MEASURED, Corrections, Estimator
from trainmaster.policies.auction.apps import AppIndex, Contender
from trainmaster.policies.auction.auction import Bid, Bundle, allocate, kept_fractions
from trainmaster.policies.auction.census import Census
from trainmaster.policies.auction.leasing import Ends, Granting
from trainmaster.policies.base import BasePolicy
from trainmaster.policies.guards import PreemptiveOptions
from trainmaster.policies.line.elastic import grow_idle
from trainmaster.policies.line.greedy import evacuate
from trainmaster.policies.options import fraction, option, positive_seconds

NO_LEASES: FrozenMap[str, int] = FrozenMap()
NO_APPS = Census()
GRID = 10
"""Leases end on multiples of a lease / GRID."""


@dataclass(frozen=True, slots=True)
class ThemisOptions(PreemptiveOptions):
    filter_f: float = option(
        0.8, fraction, "1 - the fraction of apps, worst off first, that may bid"
    )
    lease_s: float = option(600.0, positive_seconds, "how long a grant lasts")


@dataclass(frozen=True, slots=True)
class Memo:
    """How many apps there were, until when GPUs are leased, and what speeds were measured."""

    census: Census = NO_APPS
    leases: FrozenMap[str, int] = NO_LEASES
    corrections: Corrections = NOTHING_MEASURED


class Themis(BasePolicy[ThemisOptions]):
    name = "themis"
    options_type = ThemisOptions

    def __init__(self, options: ThemisOptions) -> None:
        super().__init__(options)
        self._lease = to_ms(options.lease_s)
        self._bidding_ppm = NOMINAL - round(options.filter_f * NOMINAL)
        self._index: AppIndex | None = None
        self._ends = Ends()
        self._estimator: Estimator | None = None

    @property
    def molds(self) -> bool:
        return True

    def first_memo(self) -> Memo:
        return Memo()

    def forget(self) -> None:
        super().forget()
        self._index = self._estimator = None

    # -- one round -------------------------------------------------------------------------------

    def plan(self, view: View, memo: object, now: int) -> Plan:
        assert isinstance(memo, Memo)
        index = self._follow(view, memo)
        if index.has_changed:
            index.has_changed = False
            memo = replace(memo, census=memo.census.counted(index.jobs, now))
        if view.is_settled() and not index.elastic:
            return Plan((), memo)
        draft = Draft(view)
        if view.draining:
            evacuate(view, draft, self.placer)
        granting = Granting(draft, self._estimate(view), memo.corrections)
        if not index.elastic and granting.give_to_all(index.in_line()):
            leases = self._leased(view, draft, memo, (), now)
            return draft.plan(replace(memo, leases=leases))
        pool = [record for record in self._ends.due(now) if not draft.is_touched(record)]
        if pool or view.occupancy.total_free():
            granting.learn(pool)
            memo = replace(memo, corrections=granting.corrections)
            for record in pool:
                draft.suspend(record)
            contenders = self._contenders(index, pool, memo, now)
            self._hold_round(view, granting, contenders, grows=bool(index.elastic))
            memo = replace(memo, leases=self._leased(view, draft, memo, pool, now))
        return draft.plan(memo, self._ends.next())

    def wake(self, view: View, memo: object, now: int) -> int | None:
        assert isinstance(memo, Memo)
        index = self._follow(view, memo)
        return None if view.is_settled() and not index.elastic else self._ends.next()

    def _hold_round(
        self, view: View, granting: Granting, contenders: list[Contender], *, grows: bool
    ) -> None:
        gpus, offered = max(1, view.topology.training_gpus), granting.offered()
        for contender in contenders:
            contender.value(granting.speed, granting.best_speed, gpus, offered)
        able = sorted((each for each in contenders if each.grants), key=Contender.order)
        bidders = able[: max(1, ceil_div(self._bidding_ppm * len(able), NOMINAL))]
        for contender, gpus_kept in self._auction(bidders, offered):
            granting.give(contender, gpus_kept)
        granting.keep_all()
        granting.give_leftovers(able)
        if grows and all(granting.has_all(each) for each in contenders):
            grow_idle(view, granting.draft, granting.is_faster)

    def _auction(self, bidders: Sequence[Contender], offered: int) -> list[tuple[Contender, int]]:
        """Who won how many GPUs, after payment; in order of need."""
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

    # -- who contends ----------------------------------------------------------------------------

    def _contenders(
        self, index: AppIndex, pool: Sequence[JobRecord], memo: Memo, now: int
    ) -> list[Contender]:
        found = []
        for name, candidates in index.contending(pool).items():
            census, jobs = memo.census, index.jobs[name]
            life, mean = census.life_of(name, now), census.mean_since(name, now)
            starving = any(self.guards.is_starving(record, now) for record in candidates)
            found.append(Contender(name, jobs, candidates, life, mean, starving, now))
        return found

    def _end_of(self, record: JobRecord, leases: FrozenMap[str, int]) -> int | None:
        """When its GPUs return to the pool: the lease is over, in training time too."""
        since = record.run_since_ms
        if record.phase is not Phase.RUNNING or since is None:
            return None
        return max(leases.get(record.id, 0), since + self._lease, since + self.guards.min_run_ms)

    def _leased(
        self, view: View, draft: Draft, memo: Memo, pool: Sequence[JobRecord], now: int
    ) -> FrozenMap[str, int]:
        """New leases for whoever was given GPUs or kept them."""
        grid = max(1, self._lease // GRID)
        end = ceil_div(now + self._lease, grid) * grid
        kept = {record.id: end for record in pool if not draft.is_evicted(record)}
        given = dict.fromkeys(draft.placed(), end)
        if not kept and not given:
            return memo.leases
        leases = memo.leases.updated({**kept, **given}).only(view.jobs)
        for record in pool:
            if record.id in kept:
                self._ends.put(record, self._end_of(record, leases))
        return leases

    # -- what is known ---------------------------------------------------------------------------

    def _follow(self, view: View, memo: Memo) -> AppIndex:
        index = view.followed(AppIndex)
        news, index.news = index.news, []
        if self._index is not index:
            self._index, self._ends = index, Ends()
            news = list(view.jobs.values())
        for record in news:
            self._ends.put(record, self._end_of(record, memo.leases))
        return index

    def _estimate(self, view: View) -> Estimator:
        if self._estimator is None:
            self._estimator = Estimator(view.topology)
        return self._estimator
