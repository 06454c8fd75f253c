"""Elastic runs that breathe: who gives GPUs to whom, who starts on fewer, who grows and when."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.builders import a_scenario, finishes, outcome_of, traced
from tests.policies.breathing_hosts import BreathingFifo, BreathingGittins, Memo
from tests.policies.cases import NOW, Case, Stage, in_words
from tests.property.drive import Drive
from trainmaster.core.invariants import check
from trainmaster.model import actions as a
from trainmaster.model.job import gpus
from trainmaster.model.plan import FrozenMap, Plan
from trainmaster.model.units import MINUTE, NOMINAL, SECOND
from trainmaster.perf.perf_model import IDEAL
from trainmaster.perf.preemption_cost import Switching
from trainmaster.perf.scaling import Elasticity
from trainmaster.placement.placers import CONSOLIDATED
from trainmaster.policies.trainmaster.gang_interference import Company
from trainmaster.policies.trainmaster.resizing import Breaths, Terms
from trainmaster.sim.driver import Estimates, Scenario

ON = Terms(shrinks=True)
OFF = Terms(grows=False)


def planned(
    case: Case, terms: Terms, memo: Memo | None = None, policy: BreathingFifo | None = None
) -> tuple[Plan, str]:
    """What one pass does, in order of submission with the mechanism on these terms."""
    stage = Stage(case)
    policy = policy or BreathingFifo(terms)
    plan = policy.plan(stage.controller.view, memo or policy.first_memo(), NOW)
    check(stage.controller.state)
    return plan, in_words(plan, stage.topology)


def done(case: Case, terms: Terms = ON) -> str:
    return planned(case, terms)[1]


GIVING = {
    "a run gives what it can do without to a newcomer": Case(
        cluster="rack r: n1[4]",
        jobs="old 4gpu elastic 2..4 running on n1 attained 40h | new 2gpu pending 1min",
        want="resize old on n1:2; start new on n1:2",
    ),
    "the run gives that is likeliest to need its GPUs longest": Case(
        cluster="rack r: n1[4] n2[4]",
        jobs="young 4gpu elastic 2..4 running on n1 attained 10h"
        " | old 4gpu elastic 2..4 running on n2 attained 40h | new 2gpu pending 1min",
        want="resize old on n2:2; start new on n2:2",
    ),
    "two runs of one node give together": Case(
        cluster="rack r: n1[4]",
        jobs="a 2gpu elastic 1..2 running on n1:2 attained 10h"
        " | b 2gpu elastic 1..2 running on n1:2 attained 20h | new 2gpu pending 1min",
        want="resize a on n1:1; resize b on n1:1; start new on n1:2",
    ),
    "a gang that needs several nodes is given GPUs of several": Case(
        cluster="rack r: n1[4] n2[4]",
        jobs="a 4gpu elastic 1..4 running on n1 attained 10h"
        " | b 4gpu elastic 1..4 running on n2 attained 20h | new 6gpu pending 1min",
        want="resize a on n1:1; resize b on n2:1; start new on n1:3 n2:3",
    ),
}


@pytest.mark.parametrize("case", GIVING)
def test_runs_shrink_to_let_newcomers_in(case: str) -> None:
    assert done(GIVING[case]) == GIVING[case].want


@pytest.mark.parametrize("case", GIVING)
def test_without_shrinking_newcomers_wait(case: str) -> None:
    assert done(GIVING[case], OFF) == "nothing"


def test_who_would_have_to_leave_gives_whatever_that_is_worth_and_keeps_the_rest() -> None:
    case = Case(
        cluster="rack r: n1[4]",
        jobs="old 4gpu elastic 2..4 running on n1 attained 40h"
        " | back 2gpu suspended attained 100h waited 1min",
        want="resize old on n1:2; resume back on n1:2",
    )
    assert done(case) == case.want
    assert done(case, OFF) == "resume back on n1:2; suspend old"


KEEPING = {
    "who is worth no more than what is lost gets nothing": Case(
        cluster="rack r: n1[4]",
        jobs="old 4gpu elastic 2..4 priority 1 running on n1 attained 40h"
        " | back 2gpu suspended attained 100h waited 1min",
        want="nothing",
    ),
    "nobody goes below its minimum": Case(
        cluster="rack r: n1[4]",
        jobs="old 4gpu elastic 3..4 running on n1 attained 40h | new 2gpu pending 1min",
        want="nothing",
    ),
    "nobody shrinks for a job that would still find no room": Case(
        cluster="rack r: n1[4] n2[4]",
        jobs="a 4gpu elastic 2..4 running on n1 attained 40h"
        " | b 4gpu elastic 2..4 running on n2 attained 40h | new 3gpu pending 1min",
        want="nothing",
    ),
    "nobody is reshaped on a node that is to be emptied": Case(
        cluster="rack r: n1[4]",
        jobs="old 4gpu elastic 2..4 running on n1 attained 40h | new 2gpu pending 1min",
        draining="n1",
        want="nothing",
    ),
}


@pytest.mark.parametrize("case", KEEPING)
def test_runs_keep_what_would_be_given_in_vain(case: str) -> None:
    assert done(KEEPING[case]) == KEEPING[case].want


def test_who_was_promised_its_gpus_neither_gives_any_nor_starts_on_fewer() -> None:
    case = GIVING["a run gives what it can do without to a newcomer"]
    promised = BreathingFifo(ON)
    promised.is_exempt = lambda record: record.id in ("old", "new")
    assert planned(case, ON, policy=promised)[1] == "nothing"
    assert planned(FREE, ON, policy=promised)[1] == "nothing"


FREE = Case(
    cluster="rack r: n1[4]",
    jobs="x 3gpu running on n1:3 attained 1h | new 2gpu elastic 1..2 pending 1min",
    want="start new on n1:1",
)


def test_an_elastic_job_starts_on_what_is_free() -> None:
    assert done(FREE) == FREE.want
    assert done(FREE, OFF) == "nothing"


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
        jobs="x 2gpu running on n1:2 attained 1h | a 1gpu elastic 1..2 running on n1:1 attained 1h"
        " | gang 4gpu pending 1min",
        want="resize a on n1:2",
    ),
}


@pytest.mark.parametrize("case", GROWING)
def test_runs_grow(case: str) -> None:
    assert done(GROWING[case], replace(ON, shrinks=False)) == GROWING[case].want


@pytest.mark.parametrize("case", GROWING)
def test_without_growing_gpus_stay_idle(case: str) -> None:
    assert done(GROWING[case], OFF) == "nothing"


def test_a_run_rests_first_and_is_looked_at_again_then() -> None:
    case = Case("rack r: n1[4]", "a 1gpu elastic 1..4 running on n1:1 attained 40s", "nothing")
    plan, words = planned(case, ON)
    assert words == "nothing"
    assert plan.wake_at == NOW - 40 * SECOND + ON.rest_ms
    assert isinstance(plan.memo, Memo)
    assert plan.memo.breaths.due_ms == plan.wake_at


def test_a_run_does_not_grow_for_little() -> None:
    case = Case("rack r: n1[4]", "a 1gpu elastic 1..4 running on n1:1 attained 1h", "nothing")
    assert done(case, replace(ON, gain_ppm=800_000)) == "nothing"  # twice the GPUs bring 74 %


HEAVY = Case(
    cluster="rack r: n1[4]",
    jobs="a 2gpu model vgg19 elastic 2..4 running on n1:2 attained 1h",
    want="resize a on n1",
)


def test_what_is_foretold_to_be_in_vain_is_tried_once() -> None:
    """VGG-19 is foretold to gain less than 70 % by two more GPUs; jobs mostly gain 74 %."""
    choosy = replace(ON, gain_ppm=700_000)
    assert planned(HEAVY, choosy)[1] == HEAVY.want
    seen = Memo(breaths=Breaths(tried=FrozenMap({"vgg19/2": 4})))
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
    harmless = Memo(breaths=Breaths(company=Company(10_000, 10_000 * NOMINAL)))
    assert planned(case, ON, harmless)[1] == "resize old on n1:2"


def test_a_queue_that_has_used_its_share_grows_no_further() -> None:
    stage = Stage(GROWING["a run doubles into idle GPUs"])
    stage.controller.view.occupancy.allowance = 0
    policy = BreathingFifo(ON)
    plan = policy.plan(stage.controller.view, policy.first_memo(), NOW)
    assert plan.actions == ()


def test_who_found_no_room_together_is_tried_again_where_runs_now_give_way() -> None:
    """b is worth too little while a is young; a minute later a's GPUs are worth less to it."""
    jobs = [
        traced("c", gpus(2), 300),
        traced("a", gpus(4, minimum=2), 1_000, at_s=1),
        traced("b", gpus(2), 100, at_s=20),
        traced("d", gpus(1), 5, at_s=40),
    ]
    scenario = replace(a_scenario(jobs, "1x4"), estimates=Estimates(known=False))
    policy = BreathingFifo(ON, placer=CONSOLIDATED)
    kept = Drive(scenario, policy).run().orders()
    fresh = Drive(scenario, BreathingFifo(ON, placer=CONSOLIDATED), forgetful=Random(1)).run()
    assert kept == fresh.orders()


# -- over time ---------------------------------------------------------------------------------------


def sizes(scenario: Scenario, terms: Terms) -> list[tuple[float, str, int]]:
    """(when, who, GPUs) of every launch and reshaping."""
    return [
        (now / SECOND, order.run.job, len(order.placement.slices))
        for now, orders in Drive(scenario, BreathingFifo(terms)).run().orders()
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
    assert finishes(outcome_of(visited(), BreathingFifo(ON))) == {"a": 430, "b": 300}


def test_without_growing_it_takes_as_long_as_on_one_gpu() -> None:
    assert finishes(outcome_of(visited(), BreathingFifo(OFF))) == {"a": 1_000, "b": 300}


def test_who_was_let_in_on_fewer_comes_back_to_its_number_even_without_growing() -> None:
    jobs = [traced("x", gpus(3), 100), traced("a", gpus(4, minimum=1, maximum=6), 100, at_s=10)]
    expected = [(0, "x", 3), (10, "a", 3), (100, "a", 4)]
    assert sizes(a_scenario(jobs, "1x6"), replace(ON, grows=False)) == expected


def test_a_job_that_asks_for_more_than_there_is_runs_on_what_there_is() -> None:
    jobs = [traced("a", gpus(4, minimum=1), 100)]
    scenario = replace(a_scenario(jobs, "1x3"), estimates=Estimates(known=False))
    assert sizes(scenario, replace(ON, grows=False)) == [(0, "a", 3)]


def test_a_run_rests_longer_where_changes_of_hands_cost_more() -> None:
    """Starting takes 30 s: ten times that, counted from the start."""
    world = replace(IDEAL, switching=Switching(start_ms=30 * SECOND))
    jobs = [traced("a", gpus(1, maximum=2), 1_000)]
    assert sizes(a_scenario(jobs, "1x2", world), ON) == [(0, "a", 1), (330, "a", 2)]
    eager = replace(ON, rest_switches=0)
    assert sizes(a_scenario(jobs, "1x2", world), eager) == [(0, "a", 1), (90, "a", 2)]


def test_some_gpus_stay_idle_for_newcomers_where_getting_them_back_takes_time() -> None:
    world = replace(IDEAL, switching=Switching(start_ms=SECOND))
    jobs = [traced("a", gpus(8, maximum=16), 1_000)]
    assert sizes(a_scenario(jobs, "1x16", world), ON) == [(0, "a", 8), (61, "a", 15)]
    assert sizes(a_scenario(jobs, "1x16"), ON) == [(0, "a", 8), (60, "a", 16)]


def test_what_is_remembered_is_forgotten_with_the_job() -> None:
    drive = Drive(visited(), BreathingGittins(ON)).run()
    memo = drive.simulation.controller.memo
    assert isinstance(memo, Memo)
    assert set(memo.breaths.resized_ms) <= {"a"}
    assert max(memo.breaths.resized_ms.values()) >= 5 * MINUTE
