"""Themis (NSDI'20): finish-time fairness, its auction, and leases."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from tests.builders import (
    a_job,
    a_policy,
    a_scenario,
    cluster,
    finishes,
    fraction,
    one,
    outcome_of,
    traced,
)
from tests.policies.cases import Case
from trainmaster.core.controller import Controller
from trainmaster.core.snapshot import restored, snapshot_of
from trainmaster.model import events as e
from trainmaster.model.job import Run, gpus
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import NOMINAL, SECOND
from trainmaster.perf.perf_model import DEFAULT
from trainmaster.policies.themis import auction
from trainmaster.policies.themis import policy as themis
from trainmaster.policies.themis.apps import rho
from trainmaster.policies.themis.auction import Bid, Bundle, allocate, kept_fractions
from trainmaster.policies.themis.policy import Themis, ThemisOptions
from trainmaster.sim.driver import Simulation

# -- rho -------------------------------------------------------------------------------------------


def alone_with(total: float, demand_max: int, cluster: int, contenders: float) -> float:
    """T_id: the time of `total` serial work on the whole cluster, times the mean number of contenders."""
    return total / min(cluster, demand_max) * contenders


def speed_of(gpus: int, demand_max: int, slowdown: float) -> float:
    """Iterations per unit of time, 1 on one GPU: min(|G|, demand_max) / (iter_time_serial x S(G))."""
    return min(gpus, demand_max) / slowdown


APP_1 = alone_with(total=100, demand_max=4, cluster=8, contenders=2)
APP_2 = alone_with(total=40, demand_max=4, cluster=8, contenders=2)


@pytest.mark.parametrize(
    ("gpus_held", "slowdown", "want"),
    [(2, 1.0, 1.2), (4, 1.0, 0.8), (4, 1.3, 0.92), (0, 1.0, inf)],
)
def test_rho_of_app_1(gpus_held: int, slowdown: float, want: float) -> None:
    """Started at 0, now 20, 80 of 100 iterations left."""
    assert APP_1 == 50
    assert rho(20, 80, speed_of(gpus_held, 4, slowdown), APP_1) == pytest.approx(want)


@pytest.mark.parametrize(("gpus_held", "want"), [(2, 1.5), (4, 1.0)])
def test_rho_of_app_2(gpus_held: int, want: float) -> None:
    """Started at 10, now 20, all of 40 iterations left."""
    assert APP_2 == 20
    assert rho(10, 40, speed_of(gpus_held, 4, 1.0), APP_2) == pytest.approx(want)


# -- the auction -----------------------------------------------------------------------------------


def bid(name: str, **bundles: float) -> Bid:
    """`bid("a", g2=0.5, g4=0.9)`."""
    return Bid(name, tuple(Bundle(int(size[1:]), value) for size, value in bundles.items()))


def sizes(winners: auction.Winners) -> dict[str, int]:
    return {name: bundle.gpus for name, bundle in winners.items()}


def test_the_product_of_values_decides() -> None:
    """0.5 x 0.5 beats 0.9 for one and little for the other."""
    bids = [bid("a", g2=0.5, g3=0.6), bid("b", g1=0.2, g2=0.5)]
    assert sizes(allocate(bids, 4)) == {"a": 2, "b": 2}


def test_most_apps_are_served_first() -> None:
    """One gang of 4 at a high value loses to two of 2: every product with an unserved app is 0."""
    bids = [bid("large", g4=9.0), bid("a", g2=0.1), bid("b", g2=0.1)]
    assert sizes(allocate(bids, 4)) == {"a": 2, "b": 2}


def test_the_payment_is_what_the_others_lose() -> None:
    """Alone, each could have had 4 GPUs (0.9); beside the other it has 2 (0.6): keeps 0.6 / 0.9."""
    bids = [bid("a", g2=0.6, g4=0.9), bid("b", g2=0.6, g4=0.9)]
    winners = allocate(bids, 4)
    assert sizes(winners) == {"a": 2, "b": 2}
    kept = kept_fractions(bids, 4, winners)
    assert kept["a"] == pytest.approx(2 / 3)
    assert kept["b"] == pytest.approx(2 / 3)


def test_who_takes_nothing_from_anybody_pays_nothing() -> None:
    bids = [bid("a", g2=0.6), bid("b", g2=0.6)]
    assert kept_fractions(bids, 4, allocate(bids, 4)) == {"a": 1.0, "b": 1.0}


def test_gangs_that_cannot_all_be_served_pay_over_those_that_are() -> None:
    """Else every product is 0, and a fraction 0 / 0."""
    bids = [bid("a", g4=0.5), bid("b", g4=0.4)]
    winners = allocate(bids, 4)
    assert sizes(winners) == {"a": 4}
    assert kept_fractions(bids, 4, winners) == {"a": 1.0}


@pytest.mark.parametrize("gpus_offered", range(1, 13))
def test_the_greedy_serves_as_many_as_the_exact(gpus_offered: int) -> None:
    bids = [bid(f"a{i}", **{f"g{1 + i % 3}": 0.3, f"g{4 + i % 3}": 0.5 + i / 10}) for i in range(4)]
    exact, greedy = auction._exact(bids, gpus_offered), auction._greedy(bids, gpus_offered)
    assert len(greedy) == len(exact)
    assert sum(sizes(greedy).values()) <= gpus_offered


# -- the filter ------------------------------------------------------------------------------------


class Watched(Themis):
    """Notes who bids."""

    bidders: list[list[str]]

    def _auction(self, bidders, offered):  # type: ignore[no-untyped-def]
        self.bidders.append([each.name for each in bidders])
        return super()._auction(bidders, offered)


def asked(f: float, jobs: list[TracedJob], cluster: str) -> list[list[str]]:
    policy = Watched(ThemisOptions(filter_f=f, lease_s=10))
    policy.bidders = []
    outcome_of(a_scenario(jobs, cluster), policy)
    return policy.bidders


def test_of_ten_apps_two_bid_at_f_08() -> None:
    jobs = [traced(f"j{i}", 1, 100) for i in range(10)]
    assert len(asked(0.8, jobs, "1x4")[0]) == 2
    assert len(asked(0.0, jobs, "1x4")[0]) == 10


def test_the_app_with_the_larger_rho_is_asked_first() -> None:
    """Short jobs suffer more from the same wait."""
    jobs = [traced("busy", 2, 60), traced("long", 2, 1000, at_s=1), traced("short", 2, 20, at_s=1)]
    contested = [names for names in asked(0.9, jobs, "1x2") if names != ["busy"]]
    assert contested[0] == ["short"]


# -- leases, payment and leftovers in a whole run ------------------------------------------------


def test_leases_pass_gpus_on() -> None:
    """Two jobs of 30 s on one GPU, leases of 10 s: they take turns, and the second is not last by 30 s."""
    jobs = [traced("a", 1, 30), traced("b", 1, 30)]
    result = outcome_of(a_scenario(jobs, "1x1"), a_policy("themis", lease_s=10))
    assert one(result, "b").start_ms == 10_000
    assert finishes(result) == {"a": 50, "b": 60}


def test_without_leases_running_out_nobody_yields() -> None:
    jobs = [traced("a", 1, 30), traced("b", 1, 30)]
    result = outcome_of(a_scenario(jobs, "1x1"), a_policy("themis", lease_s=1000))
    assert finishes(result) == {"a": 30, "b": 60}


def elastic(name: str, service_s: float, most: int) -> TracedJob:
    return traced(name, gpus(1, minimum=1, maximum=most), service_s)


class Unpaid(Themis):
    """Everybody keeps all they won: the mechanism switched off."""

    def _auction(self, bidders, offered):  # type: ignore[no-untyped-def]
        bids = [
            Bid(each.name, tuple(Bundle(n, 1 / late) for n, late, _ in each.grants))
            for each in bidders
        ]
        winners = allocate(bids, offered)
        return [(each, winners[each.name].gpus) for each in bidders if each.name in winners]


def first_grants(policy: Themis) -> dict[str, int]:
    """GPUs that each of two elastic jobs gets at time 0 on a node of 8, a third waiting outside."""
    jobs = [elastic("a", 1000, 8), elastic("b", 1000, 8), elastic("c", 100_000, 8)]
    scenario = replace(a_scenario(jobs, "1x8"), until_ms=0)
    simulation = Simulation(scenario, policy)
    simulation.run()
    records = simulation.controller.state.jobs.values()
    return {r.id: len(r.placement.slices) if r.placement else 0 for r in records}


def test_the_hidden_payment_leaves_gpus_to_apps_outside_the_auction() -> None:
    options = ThemisOptions(filter_f=0.4)
    unpaid, paid = first_grants(Unpaid(options)), first_grants(Themis(options))
    assert unpaid == {"a": 4, "b": 4, "c": 0}
    assert paid["c"] >= 1
    assert paid["a"] + paid["b"] < unpaid["a"] + unpaid["b"]


def test_what_nobody_wins_is_given_out_all_the_same() -> None:
    """At f = 1 a single app bids; the others still start on what is left."""
    jobs = [traced(f"j{i}", 1, 100) for i in range(4)]
    result = outcome_of(a_scenario(jobs, "1x4"), a_policy("themis", filter_f=1))
    assert all(job.start_ms == 0 for job in result.jobs)


# -- gangs that are worst off ----------------------------------------------------------------------

SINGLES = [traced(f"s{i}", 1, 4000, at_s=i) for i in range(6)]
WIDE = [*SINGLES, traced("wide", 4, 100, at_s=5)]
"""Leases of single GPUs end one by one: the pool never holds the four that `wide` needs."""


@pytest.mark.parametrize(
    "options",
    [{}, {"filter_f": 1}, {"filter_f": 0}, {"starve_after_s": 120}, {"min_run_s": 300}],
)
def test_gpus_are_collected_for_a_gang_that_is_worst_off(options: dict[str, float]) -> None:
    result = outcome_of(a_scenario(WIDE, "1x4"), a_policy("themis", **options))
    assert 600 <= one(result, "wide").start_ms / 1000 <= 1200


def test_without_collecting_it_waits_for_the_others_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs are lent for full leases, whichever jobs wait."""
    monkeypatch.setattr(themis, "collection_time", lambda *_: None)
    result = outcome_of(a_scenario(WIDE, "1x4"), a_policy("themis"))
    assert one(result, "wide").start_ms > 4_000_000


def test_while_gpus_are_collected_nobody_is_sent_away_before_min_run() -> None:
    result = outcome_of(a_scenario(WIDE, "1x4"), a_policy("themis", min_run_s=900))
    assert one(result, "wide").start_ms == 903_000


def test_collecting_leaves_no_gpu_idle() -> None:
    """All work until the last jobs end: 24,400 GPU-s on four GPUs."""
    result = outcome_of(a_scenario(WIDE, "1x4"), a_policy("themis"))
    assert max(finishes(result).values()) < 24_400 / 4 * 1.05


# -- apps ------------------------------------------------------------------------------------------


def test_jobs_of_one_app_share_its_rho() -> None:
    """Five jobs of one program against one of another: by apps, both get half of the cluster's turns."""

    def of(app: str, job: TracedJob) -> TracedJob:
        return replace(job, job=replace(job.job, app=app, user="u"))

    many = [of("sweep", traced(f"s{i}", 1, 60)) for i in range(5)]
    jobs = [*many, of("single", traced("single", 1, 60))]
    by_app = outcome_of(a_scenario(jobs, "1x1"), a_policy("themis", lease_s=10))
    alone = [replace(job, job=replace(job.job, app="")) for job in jobs]
    by_job = outcome_of(a_scenario(alone, "1x1"), a_policy("themis", lease_s=10))
    assert one(by_app, "single").finish_ms < one(by_job, "single").finish_ms  # type: ignore[operator]


def of_app(app: str, job: TracedJob) -> TracedJob:
    return replace(job, job=replace(job.job, app=app, user="u"))


class Appraised(Themis):
    """Notes what the bundles of each app come to, first round only."""

    seen: dict[str, list[int]]

    def _auction(self, bidders, offered):  # type: ignore[no-untyped-def]
        for each in bidders:
            self.seen.setdefault(each.name, [gpus_ for gpus_, _, _ in each.grants])
        return super()._auction(bidders, offered)


def test_an_app_bids_for_no_more_than_the_offer_holds() -> None:
    """Its rho is that of its best feasible bundle: 40 jobs cannot all run on 4 GPUs."""
    policy = Appraised(ThemisOptions(filter_f=0))
    policy.seen = {}
    sweep = [of_app("sweep", traced(f"s{i}", 1, 60)) for i in range(40)]
    outcome_of(a_scenario([*sweep, of_app("single", traced("x", 1, 60))], "1x4"), policy)
    assert policy.seen == {"default/u/sweep": [1, 2, 3, 4], "default/u/single": [1]}


def test_an_app_of_many_jobs_bids_for_a_few_numbers_of_them() -> None:
    """A table of every number of a thousand jobs would cost their square in each round."""
    policy = Appraised(ThemisOptions(filter_f=0))
    policy.seen = {}
    sweep = [of_app("sweep", traced(f"s{i}", 1, 60)) for i in range(101)]
    outcome_of(a_scenario(sweep, "25x4"), policy)
    assert policy.seen == {"default/u/sweep": [*range(1, 17), 32, 64, 100]}


def test_a_run_whose_gpus_were_won_by_another_moves_to_those_that_are_left() -> None:
    """`q` ends as the lease of `p` does; `w` wins either node, and `p` goes on on the other."""
    jobs = [traced("p", 4, 100), traced("q", 4, 10)]
    jobs += [traced("w", 4, 20, at_s=1), traced("big", 8, 1000, at_s=1)]
    scenario = replace(a_scenario(jobs, "2x4"), until_ms=25_000)
    result = outcome_of(scenario, a_policy("themis", lease_s=10))
    assert one(result, "w").start_ms == 10_000
    assert one(result, "p").preemptions == 0
    assert one(result, "p").suspended_ms == 0


def test_jobs_of_no_length_are_served_like_others() -> None:
    """Their fair share of nothing takes no time: rho must stay a number."""
    jobs = [traced(f"z{i}", 2, 0) for i in range(3)] + [traced("c", 1, 10)]
    result = outcome_of(a_scenario(jobs, "1x2"), a_policy("themis", filter_f=0))
    assert max(job.finish_ms for job in result.jobs) == 10_000  # type: ignore[type-var]


def test_a_bundle_is_valued_where_it_would_be_had() -> None:
    """`e` runs on two slow GPUs; a fast one elsewhere is no reason to give up one of them.

    Valued there and taken away here, it shrank and grew in turn, and never ended.
    """
    jobs = [traced("hog", 1, 30), traced("e", gpus(2, minimum=1, maximum=2), 200)]
    scenario = a_scenario(jobs, "n1[1fast] n2[2slow]", DEFAULT, until_s=5000)
    result = outcome_of(scenario, a_policy("themis", lease_s=20))
    assert one(result, "e").finish_ms == pytest.approx(424_000, abs=1000)


CASES = {
    "an idle GPU goes to a waiting job": Case(
        cluster="n1[4]",
        jobs="a 2gpu needs 1h pending 1min | b 2gpu needs 1h pending 1s",
        want="start a on n1:2; start b on n1:2",
    ),
    "a run under lease is left alone": Case(
        cluster="n1[2]",
        jobs="old 2gpu needs 9h running on n1 attained 10s | new 2gpu needs 1min pending 1h",
        want="nothing",
    ),
    "when the lease is over, the one that is worse off takes the GPUs": Case(
        cluster="n1[2]",
        jobs="old 2gpu needs 9h running on n1 attained 2h | new 2gpu needs 1min pending 1h",
        want="start new on n1; suspend old",
    ),
    "a run younger than min_run_s stays, lease or not": Case(
        cluster="n1[2]",
        jobs="old 2gpu needs 9h running on n1 attained 2h | new 2gpu needs 1min pending 1h",
        want="nothing",
        options={"min_run_s": 7200},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_situations(name: str) -> None:
    assert CASES[name].done_by("themis") == CASES[name].want


def test_gpus_that_nobody_wants_go_to_elastic_jobs_on_any_node() -> None:
    """Alone from 1,600 s on, the job uses both nodes; max-min ends it at 20,937.5 s, which is the least."""
    jobs = [traced("big", gpus(16, minimum=1, maximum=16), 20_000)]
    jobs += [traced(f"small{n}", 1, 1_000, at_s=10) for n in range(15)]
    scenario = a_scenario(jobs, "2x8")
    least = finishes(outcome_of(scenario, a_policy("max-min")))["big"]
    assert least == 20_937.5
    end = finishes(outcome_of(scenario, a_policy("themis")))["big"]
    assert end is not None
    assert end < 1.01 * least


def test_a_half_that_joins_another_does_not_keep_its_gpu_longer() -> None:
    """Half a GPU is leased until 600 s, the other from 500 s on: a job for all of it waits until 600 s."""
    half = [traced("a", fraction(0.5), 10_000), traced("b", fraction(0.5), 10_000, at_s=500)]
    waits = traced("whole", 1, 20, at_s=510)
    starts = [
        {
            job.job_id: job.start_ms
            for job in outcome_of(a_scenario(jobs, "1x1"), a_policy("themis")).jobs
        }
        for jobs in ([half[0], waits], [*half, waits])
    ]
    assert starts[1]["b"] == 500 * SECOND
    assert starts[1]["whole"] == starts[0]["whole"] == 600 * SECOND


def test_a_lease_that_is_renewed_on_a_drained_node_outlasts_a_restart() -> None:
    policy, topology = a_policy("themis", lease_s=10), cluster("1x1")
    controller = Controller(topology, policy)
    controller.step(0, [e.JobSubmitted(a_job("a"))])
    controller.step(1, [e.RunStarted(Run("a", 1), NOMINAL)])
    controller.step(5 * SECOND, [e.NodeDraining(0), e.JobSubmitted(a_job("b"))])
    controller.step(12 * SECOND, [])
    body = snapshot_of(controller)
    again = restored(body, topology, a_policy("themis", lease_s=10), can_freeze=False).controller
    news = [e.JobSubmitted(a_job("c"))]
    assert again.step(13 * SECOND, news) == controller.step(13 * SECOND, news)
