"""Elastic runs that breathe: who gives GPUs to whom, who starts on fewer, who grows and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_scenario, finishes, outcome_of, traced
from tests.policies.cases import NOW, Case, Stage, in_words
from tests.policies.ours import ours
from tests.property.drive import Drive
from trainmaster.core.invariants import check
from trainmaster.model import actions as a
from trainmaster.model.job import gpus
from trainmaster.model.plan import FrozenMap, Plan
from trainmaster.model.units import MINUTE, SECOND
from trainmaster.perf.perf_model import IDEAL
from trainmaster.perf.preemption_cost import PreemptionCost
from trainmaster.perf.scaling import Elasticity
from trainmaster.policies.trainmaster.locality_estimator import ANY_BESIDE, LocalityObservations
from trainmaster.policies.trainmaster.memo import ResizingMemo
from trainmaster.policies.trainmaster.options import ResizingTerms
from trainmaster.policies.trainmaster.policy import Trainmaster, TrainmasterMemo
from trainmaster.sim.driver import Estimates, Scenario

ON = ResizingTerms()


def resizing(terms: ResizingTerms | None = ON) -> Trainmaster:
    """Without the other stages; None: without this one too."""
    grow = "off" if terms is None else "on"
    return ours(locality="off", packing="off", resizing=terms, grow=grow)


def planned(
    case: Case, terms: ResizingTerms | None = ON, memo: TrainmasterMemo | None = None
) -> tuple[Plan, str]:
    """What one pass does."""
    stage, policy = Stage(case), resizing(terms)
    plan = policy.plan(stage.controller.view, memo or policy.first_memo(), NOW)
    check(stage.controller.state)
    return plan, in_words(plan, stage.topology)


def done(case: Case, terms: ResizingTerms | None = ON) -> str:
    return planned(case, terms)[1]


# -- growing -----------------------------------------------------------------------------------------

GROWING = {
    "a run doubles into idle GPUs": Case(
        cluster="rack r: n1[4]",
        jobs="a 1gpu elastic 1..4 running on n1:1 attained 1h",
        want="resize a on n1:2",
    ),
    "among equals who is likeliest to end soon": Case(
        cluster="rack r: n1[4]",
        jobs="old 1gpu elastic 1..2 running on n1:1 attained 9h"
        " | young 1gpu elastic 1..2 running on n1:1 attained 1h | x 1gpu running on n1:1",
        want="resize young on n1:2",
    ),
    "beside a gang that does not fit anyway": Case(
        cluster="rack r: n1[4]",
        jobs="x 2gpu priority 1 running on n1:2 attained 1h"
        " | a 1gpu priority 1 elastic 1..2 running on n1:1 attained 1h | gang 4gpu pending 1min",
        want="resize a on n1:2",
    ),
}


@pytest.mark.parametrize("case", GROWING)
def test_runs_grow(case: str) -> None:
    assert done(GROWING[case], ON) == GROWING[case].want


@pytest.mark.parametrize("case", GROWING)
def test_without_growing_gpus_stay_idle(case: str) -> None:
    assert done(GROWING[case], None) == "nothing"


def test_a_run_rests_first_and_is_looked_at_again_then() -> None:
    case = Case("rack r: n1[4]", "a 1gpu elastic 1..4 running on n1:1 attained 40s", "nothing")
    plan, words = planned(case, ON)
    assert words == "nothing"
    assert plan.wake_at == NOW - 40 * SECOND + ON.rest_ms
    assert isinstance(plan.memo, TrainmasterMemo)
    assert plan.memo.resizing.due_ms == plan.wake_at


def test_a_run_does_not_grow_for_little() -> None:
    case = Case("rack r: n1[4]", "a 1gpu elastic 1..4 running on n1:1 attained 1h", "nothing")
    assert done(case, replace(ON, gain_ppm=800_000)) == "nothing"  # twice the GPUs bring 74 %


HEAVY = Case(
    cluster="rack r: n1[4]",
    jobs="a 2gpu model vgg19 elastic 2..4 running on n1:2 attained 1h",
    want="resize a on n1",
)


def test_what_is_predicted_to_be_in_vain_is_tried_once() -> None:
    """VGG-19 is predicted to gain less than 70 % by two more GPUs; jobs mostly gain 74 %."""
    choosy = replace(ON, gain_ppm=700_000)
    assert planned(HEAVY, choosy)[1] == HEAVY.want
    seen = TrainmasterMemo(resizing=ResizingMemo(tried=FrozenMap({"vgg19/2": 4})))
    assert planned(HEAVY, choosy, seen)[1] == "nothing"


def test_gpus_that_turn_out_to_be_in_vain_are_given_back() -> None:
    """The world's table says that four GPUs are slower than two; the policy does not know it."""
    world = replace(
        IDEAL, elasticity=Elasticity(models={"vgg19": {1: 1_000_000, 2: 1_900_000, 4: 1_500_000}})
    )
    jobs = [traced("a", gpus(2, maximum=4), 1_000, model="vgg19")]
    scenario = replace(a_scenario(jobs, "1x4", world), estimates=Estimates(known=False))
    assert sizes(scenario, ON) == [(0, "a", 2), (60, "a", 4), (60, "a", 2)]


def test_a_run_does_not_disturb_gangs_that_are_worth_more() -> None:
    case = Case(
        cluster="rack r: n1[4]",
        jobs="gang 2gpu running on n1:2 attained 1min"
        " | old 1gpu elastic 1..2 running on n1:1 attained 90h",
        want="nothing",
    )
    assert done(case) == "nothing"
    harmless = TrainmasterMemo(locality=LocalityObservations(believed=FrozenMap({ANY_BESIDE: 0})))
    assert planned(case, ON, harmless)[1] == "resize old on n1:2"


# -- while a run is being resized -----------------------------------------------------------------------

UNDER_WAY = {
    "a job that needs only its growth waits for the end of the resize": Case(
        cluster="rack r: n1[4]",
        jobs="a 1gpu elastic 1..4 resizing on n1 grown 4 attained 50h | b 3gpu pending 1min",
        want="nothing",
    ),
    "what else it needs is cleared at once and kept for it": Case(
        cluster="rack r: n1[8]",
        jobs="a 1gpu priority 1 elastic 1..3 resizing on n1:3 grown 3 attained 50h"
        " | c 1gpu priority 1 elastic 1..4 running on n1:3 grown 3 attained 50h"
        " | b 6gpu priority 1 pending 1min | d 1gpu pending 1min",
        want="resize c on n1:1",
    ),
    "a run that can shrink now is taken first": Case(
        cluster="rack r: n1[8]",
        jobs="a 1gpu elastic 1..4 resizing on n1:4 grown 4 attained 50h"
        " | c 1gpu elastic 1..4 running on n1:4 grown 4 attained 50h | b 3gpu pending 1min",
        want="resize c on n1:1; start b on n1:3",
    ),
    "one that needs more than the growth preempts the run": Case(
        cluster="rack r: n1[4]",
        jobs="a 1gpu elastic 1..4 resizing on n1 grown 4 attained 50h | b 4gpu pending 1min",
        want="start b on n1; suspend a",
    ),
}


@pytest.mark.parametrize("case", UNDER_WAY)
def test_a_run_under_resize_is_not_preempted_where_shrinking_will_do(case: str) -> None:
    assert done(UNDER_WAY[case]) == UNDER_WAY[case].want


@pytest.mark.parametrize("policy", ["max-min", "afs-l", "goodput", "optimus", "gandiva", "fifo"])
@pytest.mark.parametrize("who", ["b 3gpu pending 1min", "b 4gpu elastic 1..4 pending 1min"])
def test_nor_by_other_policies_that_resize(policy: str, who: str) -> None:
    run = "a 1gpu elastic 1..4 resizing on n1 grown 4 attained 50h"
    assert Case("rack r: n1[4]", f"{run} | {who}", "nothing").done_by(policy) == "nothing"


# -- over time ---------------------------------------------------------------------------------------


def sizes(scenario: Scenario, terms: ResizingTerms) -> list[tuple[float, str, int]]:
    """(when, who, GPUs) of every launch and reshaping."""
    return [
        (now / SECOND, order.run.job, len(order.placement.slices))
        for now, orders in Drive(scenario, resizing(terms)).run().orders()
        for order in orders
        if isinstance(order, a.Launch | a.Reshape)
    ]


def visited() -> Scenario:
    """A job that could use all four GPUs, and a rigid one that comes at 200 s for 100 s."""
    jobs = [traced("a", gpus(1, maximum=4), 1_000), traced("b", gpus(3), 100, at_s=200)]
    return replace(a_scenario(jobs, "1x4"), estimates=Estimates(known=False))


def test_a_run_that_has_grown_gives_back_at_once_and_grows_again() -> None:
    """1, 2, 4 GPUs after a minute each; 60 + 120 + 320 + 100 of 1,000 s done at 300 s; then 2 and 4."""
    grown = [(0, "a", 1), (60, "a", 2), (120, "a", 4)]
    given = [(200, "a", 1), (200, "b", 3)]
    assert sizes(visited(), ON) == [*grown, *given, (300, "a", 2), (360, "a", 4)]
    assert finishes(outcome_of(visited(), resizing())) == {"a": 430, "b": 300}


def test_without_growing_it_takes_as_long_as_on_one_gpu() -> None:
    assert finishes(outcome_of(visited(), resizing(None))) == {"a": 1_000, "b": 300}


def test_a_run_rests_longer_where_changes_of_hands_cost_more() -> None:
    """Starting takes 30 s: ten times that, counted from the start."""
    world = replace(IDEAL, preemption_cost=PreemptionCost(start_ms=30 * SECOND))
    jobs = [traced("a", gpus(1, maximum=2), 1_000)]
    assert sizes(a_scenario(jobs, "1x2", world), ON) == [(0, "a", 1), (330, "a", 2)]
    eager = replace(ON, rest_switches=0)
    assert sizes(a_scenario(jobs, "1x2", world), eager) == [(0, "a", 1), (90, "a", 2)]


def test_some_gpus_stay_idle_for_newcomers_where_getting_them_back_takes_time() -> None:
    world = replace(IDEAL, preemption_cost=PreemptionCost(start_ms=SECOND))
    jobs = [traced("a", gpus(8, maximum=16), 1_000)]
    assert sizes(a_scenario(jobs, "1x16", world), ON) == [(0, "a", 8), (61, "a", 15)]
    assert sizes(a_scenario(jobs, "1x16"), ON) == [(0, "a", 8), (60, "a", 16)]


def test_what_is_remembered_is_forgotten_with_the_job() -> None:
    drive = Drive(visited(), resizing()).run()
    memo = drive.simulation.controller.memo
    assert isinstance(memo, TrainmasterMemo)
    assert set(memo.resizing.resized_ms) <= {"a"}
    assert max(memo.resizing.resized_ms.values()) >= 5 * MINUTE
