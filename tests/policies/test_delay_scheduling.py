"""Gangs wait for nearness as long as distance would cost them; moves bring GPUs together.

As published, VGG16 on 4 GPUs loses 42 % on two nodes, an unknown model 15 %, ResNet-101 nothing.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_scenario, at, one, outcome_of, traced
from tests.policies.ours import ours
from tests.unit.core.stage import Strings
from trainmaster.estimators.service.gittins_by_bin import UNKNOWN
from trainmaster.model import events as e
from trainmaster.model.result import Result
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import HOUR, NOMINAL, SECOND, WHOLE
from trainmaster.perf.default_parameters import LOCALITY, NEIGHBOURS
from trainmaster.perf.locality import Locality
from trainmaster.perf.perf_model import IDEAL, PerfModel
from trainmaster.perf.preemption_cost import PreemptionCost
from trainmaster.policies.trainmaster.delay_scheduling import FULL_PATIENCE_RUNS
from trainmaster.policies.trainmaster.options import LocalityTerms
from trainmaster.policies.trainmaster.policy import Trainmaster, TrainmasterMemo
from trainmaster.sim.driver import Simulation
from trainmaster.text.reasons import reason_sentence

FAR = replace(IDEAL, locality=LOCALITY)
"""Distance costs what is published, and nothing else costs anything."""
IMPATIENT = LocalityTerms(patience_ppm=0)
"""Everybody takes what there is."""


def near(terms: LocalityTerms) -> Trainmaster:
    """All jobs are expected to go on for as long: nothing is learned of their service."""
    return ours(locality=terms, learn="off", siblings="off", packing="off")


def ran(
    jobs: list[TracedJob], world: PerfModel, policy: Trainmaster, cluster: str = "2x4"
) -> Result:
    return outcome_of(a_scenario(jobs, cluster, world), policy)


def waited_s(result: Result, job: str) -> float:
    got = one(result, job)
    assert got.start_ms is not None
    return (got.start_ms - got.submit_ms) / SECOND


def halves(*more: TracedJob, until_s: int = 3_000) -> list[TracedJob]:
    """Each of two nodes of four is half full: a short job of two keeps the others apart."""
    return [
        traced("a", 2, until_s, priority=1),
        traced("short", 2, 1, priority=1),
        traced("b", 2, until_s, at_s=0.5, priority=1),
        *more,
    ]


def a_gang(model: str, service_s: int = 5_000) -> TracedJob:
    return traced("gang", 4, service_s, at_s=10, model=model)


def still(left_s: int = 40_000) -> Trainmaster:
    """Without migrations; a gang of four waits as if it were expected to go on for so long."""
    expected_ms = UNKNOWN.gittins_cost(0) // (4 * WHOLE)
    patience_ppm = 2 * NOMINAL * left_s * SECOND // expected_ms
    return near(LocalityTerms(patience_ppm=patience_ppm, rest_ms=1_000 * HOUR))


# -- waiting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "waits_s"), [("vgg16", 2_990), ("resnet101", 0)])
def test_a_sensitive_gang_waits_for_one_node_and_others_do_not(model: str, waits_s: int) -> None:
    result = ran(halves(a_gang(model)), FAR, still(left_s=40_000))
    assert waited_s(result, "gang") == pytest.approx(waits_s, abs=1)


def test_it_says_that_it_waits_for_a_better_place_and_until_when() -> None:
    world = Strings("2x4").running("a", 0, 1).running("b", 4, 5)
    world.later(10).submit("gang", 4, model="vgg16").submit("large", 5, model="vgg16").later(60)
    policy, view = still(left_s=1_000), world.controller.view

    def why(job: str, now: int) -> str:
        reason = policy.explain(view, policy.first_memo(), world.job(job), now)
        return reason_sentence(reason, now)

    assert why("gang", world.now) == (
        "It needs 4 GPUs: 4 are free, but so far apart that it would be slowed down; it waits for a better"
        " place (at most 18 min more)."
    )
    assert (
        why("large", world.now) == "It needs 5 GPUs and 4 are free; jobs a and b hold the others."
    )


def test_without_patience_it_takes_what_there_is() -> None:
    result = ran(halves(a_gang("vgg16")), FAR, near(IMPATIENT))
    assert waited_s(result, "gang") < 1


@pytest.mark.parametrize(("model", "accepts"), [("vgg16", 0.7), ("mine", 0.24)])
def test_it_waits_as_long_as_distance_would_cost_it(model: str, accepts: float) -> None:
    """The first step of acceptance that covers its loss; a part of it, while nobody was seen apart."""
    result = ran(halves(a_gang(model)), FAR, still(left_s=1_000))
    cost_s = 2 * 1_000 * accepts / (1 - accepts)
    assert waited_s(result, "gang") == pytest.approx(cost_s / FULL_PATIENCE_RUNS, abs=0.01)


def test_a_gang_that_no_node_can_hold_is_not_kept_waiting() -> None:
    gang = traced("gang", 6, 100, at_s=10, model="vgg16")
    assert waited_s(ran([gang], FAR, still(left_s=40_000)), "gang") == 0


# -- learning --------------------------------------------------------------------------------------


def a_history(model: str) -> list[TracedJob]:
    """Gangs that can only lie apart, one after another, and passes every five minutes."""
    gangs = [traced(f"g{n}", 4, 900, at_s=10 + 4_000 * n, model=model) for n in range(12)]
    ticks = [traced(f"tick{n}", 1, 1, at_s=200 * n) for n in range(1, 250)]
    return halves(*gangs, *ticks, until_s=90_000)


def waits_s(world: PerfModel, model: str) -> list[float]:
    result = ran(a_history(model), world, still(left_s=1_000))
    return [waited_s(result, f"g{n}") for n in range(12)]


def test_where_distance_costs_nothing_nobody_goes_on_waiting() -> None:
    first, *_, last = waits_s(IDEAL, "vgg16")
    assert first > 500
    assert last < 50


def test_where_it_costs_what_was_published_waits_stay() -> None:
    assert min(waits_s(FAR, "vgg16")) > 500


def test_a_model_that_loses_against_all_expectation_comes_to_wait() -> None:
    """ResNet-101 is published to lose nothing; here all models lose half."""
    harsh = replace(IDEAL, locality=Locality(spans={"rack": NOMINAL // 2, "cluster": NOMINAL // 2}))
    first, *_, last = waits_s(harsh, "resnet101")
    assert first == 0
    assert last > 50


def test_what_was_seen_is_kept_in_the_memo() -> None:
    simulation = Simulation(a_scenario(a_history("vgg16"), "2x4", IDEAL), still(left_s=1_000))
    simulation.run()
    memo = simulation.controller.memo
    assert isinstance(memo, TrainmasterMemo)
    assert memo.locality.witnesses >= FULL_PATIENCE_RUNS
    assert memo.locality.believed["vgg16", "gpu"] < NOMINAL // 4


# -- company ---------------------------------------------------------------------------------------


def beside(terms: LocalityTerms, world: PerfModel) -> Result:
    """n0 has a single job and 7 free GPUs; n1 two single ones, a gang, and 2 free for a late gang."""
    jobs = [
        traced("short", 7, 5),
        traced("s0", 1, 9_000),
        *(traced(f"s{n}", 1, 9_000, at_s=n) for n in (1, 2)),
        traced("gang", 4, 9_000, at_s=10, model="resnet50"),
        traced("late", 2, 1_000, at_s=20, model="resnet50"),
    ]
    return ran(jobs, world, near(terms), "2x8")


def test_small_gangs_keep_away_from_each_other() -> None:
    loud = replace(IDEAL, interferes=True, neighbours=NEIGHBOURS)
    for avoids_gangs, run_s in ((True, 1_000), (False, 1_000 / 0.6585)):
        late = one(beside(LocalityTerms(avoids_gangs=avoids_gangs), loud), "late")
        assert late.finish_ms is not None
        assert late.finish_ms / SECOND == pytest.approx(20 + run_s, abs=1)


# -- moves -----------------------------------------------------------------------------------------


def gathering(*, start_s: int = 0, **terms: int) -> Result:
    """The gang starts apart at once; at 3,000 s both nodes are free but for itself."""
    world = replace(FAR, preemption_cost=PreemptionCost(start_ms=start_s * SECOND))
    return ran(halves(a_gang("vgg16", 20_000)), world, near(replace(IMPATIENT, **terms)))


def test_a_run_apart_moves_together_when_there_is_room() -> None:
    assert one(gathering(), "gang").migrations == 1
    assert one(gathering(rest_ms=1_000 * HOUR), "gang").migrations == 0


@pytest.mark.parametrize(("start_s", "moves"), [(60, 1), (6_000, 0)])
def test_it_moves_only_if_that_saves_more_than_it_costs(start_s: int, moves: int) -> None:
    assert one(gathering(start_s=start_s), "gang").migrations == moves


def making_room(*, at_s: int = 1_000, rest_ms: int = LocalityTerms().rest_ms) -> Result:
    """One job of one GPU on each of two nodes of four, and a gang of four comes."""
    jobs = [
        traced("short", 3, 5, priority=1),
        traced("a", 1, 9_000, priority=1),
        traced("b", 1, 9_000, at_s=1, priority=1),
        traced("gang", 4, 1_000, at_s=at_s, model="vgg16"),
    ]
    patience_ppm = 1_000 * NOMINAL
    return ran(jobs, FAR, near(LocalityTerms(patience_ppm=patience_ppm, rest_ms=rest_ms)))


def test_a_small_run_moves_away_for_a_gang() -> None:
    with_moves, without = making_room(), making_room(rest_ms=1_000 * HOUR)
    assert waited_s(with_moves, "gang") == 0
    assert [one(with_moves, job).migrations for job in ("a", "b")] == [1, 0]
    assert with_moves.summary.preemptions == 0
    assert waited_s(without, "gang") > 1_000


def test_a_run_that_has_just_started_is_left_in_peace() -> None:
    assert all(job.migrations == 0 for job in making_room(at_s=300).jobs[:1])
    assert waited_s(making_room(at_s=300), "gang") > 0


def test_a_run_on_a_node_that_drains_leaves_it_even_if_it_will_lie_apart() -> None:
    jobs = [
        traced("short", 2, 1_990, priority=1),
        traced("a", 2, 9_000, priority=1),
        traced("b", 2, 9_000, at_s=0.5, priority=1),
        traced("gang", 4, 9_000, at_s=1, model="vgg16"),
    ]
    drained = (at(2_000, e.NodeDraining(2)),)
    scenario = a_scenario(jobs, "3x4", FAR, node_changes=drained)
    result = outcome_of(scenario, still(left_s=40_000))
    assert one(result, "gang").migrations == 1
