"""Our own policy, who goes first: each part in a situation that comes out otherwise without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import (
    a_policy,
    a_scenario,
    costly,
    finishes,
    one,
    outcome_of,
    simulated,
    traced,
)
from tests.policies.ours import UNKNOWN, after, by, ours, ran, seen, situation
from tests.property.drive import Drive
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.result import Result
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import MINUTE, NOMINAL, SECOND
from trainmaster.perf.perf_model import FailureModel
from trainmaster.traces.formats import load

HOUR_S = 3_600

# -- classes ---------------------------------------------------------------------------------------

SCHOOL = [*seen("quick", 20), *seen("slow", 4_000, start_s=1_000)]
"""One GPU has seen twenty-five jobs of each kind."""
T = after(SCHOOL)
BLOCKER = traced("blocker", 1, 60, at_s=T, queue="other")
"""It has the GPU until T + 60: a run younger than a minute is left alone."""
TWO_KINDS = [
    BLOCKER,
    traced("slow", 1, 4_000, at_s=T + 1, queue="slow"),
    traced("quick", 1, 20, at_s=T + 2, queue="quick"),
]


def test_a_kind_of_job_that_was_seen_to_be_quick_goes_first() -> None:
    ends = finishes(ran([*SCHOOL, *TWO_KINDS]))
    assert ends["quick"] == T + 80, "though the slow one was there before"


def test_without_learning_the_elder_does() -> None:
    ends = finishes(ran([*SCHOOL, *TWO_KINDS], learn="off"))
    assert ends["quick"] >= T + 140, "the other has the GPU for a minute at least"


def test_until_something_is_known_who_has_had_least_goes_first() -> None:
    """A newcomer goes before one that has had a quarter of an hour."""
    jobs = [traced("old", 1, 2_000), traced("new", 1, 100, at_s=900)]
    assert finishes(ran(jobs)) == {"new": 1_000, "old": 2_100}


@pytest.mark.parametrize(("priority", "first"), [(0, "quick"), (1, "slow"), (-1, "quick")])
def test_a_higher_priority_goes_first_whatever_was_seen(priority: int, first: str) -> None:
    blocker, slow, quick = TWO_KINDS
    asked = replace(slow, job=replace(slow.job, priority=priority))
    ends = finishes(ran([*SCHOOL, blocker, asked, quick]))
    assert ends[first] == T + 60 + (20 if first == "quick" else 4_000)


# -- programs --------------------------------------------------------------------------------------


def runs_of(app: str, service_s: float, start_s: float = 0.0) -> list[TracedJob]:
    jobs = seen(f"{app}-", service_s, start_s=start_s)
    return [by("ann", app, replace(j, job=replace(j.job, queue="q"))) for j in jobs]


PROGRAMS = [*runs_of("eval", 20), *runs_of("train", 4_000, start_s=1_000)]
TWO_PROGRAMS = [
    BLOCKER,
    by("ann", "train", traced("train", 1, 4_000, at_s=T + 1, queue="q")),
    by("ann", "eval", traced("eval", 1, 20, at_s=T + 2, queue="q")),
]


def test_a_program_that_ended_soon_before_goes_first() -> None:
    assert finishes(ran([*PROGRAMS, *TWO_PROGRAMS]))["eval"] == T + 80


def test_without_history_they_are_alike() -> None:
    ends = finishes(ran([*PROGRAMS, *TWO_PROGRAMS], history="off"))
    assert ends["eval"] >= T + 140


# -- siblings --------------------------------------------------------------------------------------


def sweep(count: int, service_s: float, at_s: float = 0.0) -> list[TracedJob]:
    jobs = [traced(f"s{n}", 1, service_s, at_s=at_s + n) for n in range(count)]
    return [by("ann", "sweep", job) for job in jobs]


def test_after_one_of_a_sweep_was_quick_the_others_go_before_an_elder() -> None:
    """The stranger came before all of them but the first."""
    jobs = [*sweep(4, 20), by("bob", "train", traced("stranger", 1, 5_000, at_s=0.5))]
    ends = finishes(ran(jobs))
    assert [ends[f"s{n}"] for n in range(4)] == [20, 40, 60, 80]
    assert ends["stranger"] == 5_080


def test_without_siblings_the_elder_has_its_turn() -> None:
    jobs = [*sweep(4, 20), by("bob", "train", traced("stranger", 1, 5_000, at_s=0.5))]
    result = ran(jobs, siblings="off")
    assert one(result, "stranger").start_ms == 20 * SECOND


@pytest.mark.parametrize(("siblings", "first"), [("on", "stranger"), ("off", "s1")])
def test_after_one_of_a_sweep_took_long_the_others_step_back(siblings: str, first: str) -> None:
    """A stranger came after them; nobody is preempted here."""
    jobs = [*sweep(2, 4_000), by("bob", "train", traced("stranger", 1, 50, at_s=100))]
    result = ran(jobs, siblings=siblings, history="off", min_run_s=5_000)
    assert one(result, first).start_ms == 4_000 * SECOND


def test_a_sweep_that_is_withdrawn_before_it_ran_teaches_nothing() -> None:
    """Only what was served counts: else every sweep that is cancelled would look quick."""
    drive = Drive(situation([*sweep(3, 500), traced("other", 1, 500, at_s=0.5)]), ours())
    for _ in range(8):
        drive.simulation.step()
    controller = drive.simulation.controller
    controller.step(drive.simulation.now, [e.JobWithdrawn("s1")])
    assert controller.memo.service.fresh == ()


# -- preemption that pays --------------------------------------------------------------------------

TWINS = [traced("a", 1, 2 * HOUR_S), traced("b", 1, 2 * HOUR_S, at_s=1)]


def test_nobody_is_swapped_for_little() -> None:
    """Two jobs alike pass the GPU on at every step of service unless a run counts for less."""
    kept, all_counts, nobody = (ran(TWINS, hysteresis=part).summary for part in (0.65, 1, 0))
    assert kept.preemptions < all_counts.preemptions
    assert nobody.preemptions == 0


def test_a_run_is_left_alone_for_a_minute() -> None:
    slow = traced("slow", 1, 4_000, at_s=T, queue="slow")
    quick = traced("quick", 1, 20, at_s=T + 10, queue="quick")
    assert finishes(ran([*SCHOOL, slow, quick]))["quick"] == T + 80
    assert finishes(ran([*SCHOOL, slow, quick], min_run_s=0))["quick"] == T + 30


DEAR = costly(suspend_ms=150_000, start_ms=150_000, resume_ms=150_000)
"""A change of hands costs five minutes."""
BUSY = [traced(f"j{n}", 1, 600 + 1_700 * (n % 5), at_s=400 * n) for n in range(120)]


def shortest_run_s(drive: Drive, since_ms: int) -> float:
    """The shortest stretch of training that was ended by an order, of those begun after that."""
    began: dict[str, int] = {}
    lengths: list[float] = []
    for step in drive.steps:
        for event in step.events:
            if isinstance(event, e.RunStarted | e.RunResumed):
                began[event.run.job] = step.now
        for order in step.decision.orders:
            if isinstance(order, a.Halt | a.Freeze) and began.get(order.run.job, 0) >= since_ms:
                lengths.append((step.now - began[order.run.job]) / SECOND)
    return min(lengths)


def test_where_switching_is_dear_fewer_are_preempted_and_all_are_better_off() -> None:
    scenario = situation(BUSY, "1x8", DEAR)
    charged, not_charged = (
        outcome_of(scenario, ours(charge_switches=charge)).summary for charge in ("on", "off")
    )
    assert charged.preemptions < not_charged.preemptions
    assert charged.avg_jct_s is not None
    assert not_charged.avg_jct_s is not None
    assert charged.avg_jct_s < not_charged.avg_jct_s


@pytest.mark.parametrize(("charge", "is_long"), [("on", True), ("off", False)])
def test_a_run_is_as_long_as_two_changes_of_hands_once_their_cost_was_seen(
    charge: str, is_long: bool
) -> None:
    drive = Drive(situation(BUSY, "1x8", DEAR), ours(charge_switches=charge, hysteresis=1))
    while drive.simulation.step():
        drive.look()
    memo = drive.simulation.controller.memo
    learned_ms = 4 * HOUR_S * SECOND
    assert memo.handover_ms == (300 * SECOND if charge == "on" else 0)  # type: ignore[attr-defined]
    assert (shortest_run_s(drive, learned_ms) >= 600) is is_long


def test_where_switching_is_free_charging_for_it_changes_nothing() -> None:
    scenario = situation(BUSY, "1x8")
    assert ends_of(outcome_of(scenario, ours())) == ends_of(
        outcome_of(scenario, ours(charge_switches="off"))
    )


def ends_of(result: Result) -> list[tuple[str, int | None, int]]:
    return [(job.job_id, job.finish_ms, job.preemptions) for job in result.jobs]


# -- a cap on ranks --------------------------------------------------------------------------------

LONG_KINDS = [*seen("long", 80_000), *seen("medium", 25_000, start_s=25 * 80_005)]
LATER = after(LONG_KINDS)
STREAM = [
    traced("first", 1, 25_000, at_s=LATER, queue="medium"),
    traced("predicted", 1, 80_000, at_s=LATER + 1, queue="long"),
    *[traced(f"m{n}", 1, 25_000, at_s=LATER + 2 + 20_000 * n, queue="medium") for n in range(8)],
]
"""Jobs of seven hours keep coming; one of a day waits."""


def predicted_waits_s(cap: int) -> float:
    found = one(ran([*LONG_KINDS, *STREAM], cap=cap, guard_ratio=0), "predicted")
    assert found.start_ms is not None
    return found.start_ms / SECOND - LATER


def test_a_job_predicted_to_be_long_is_not_passed_forever() -> None:
    """Beyond four hours of rank all new ones are alike: then it was there first."""
    assert predicted_waits_s(cap=4) < 25_000
    assert predicted_waits_s(cap=0) == 9 * 25_000, "all the others had their turn"


# -- on real jobs ----------------------------------------------------------------------------------

PHILLY = Path(__file__).parents[3] / "shared/data/philly/philly1k_job.csv"


@pytest.mark.shared
@pytest.mark.skipif(not PHILLY.exists(), reason="needs ../shared/data/philly")
def test_on_a_thousand_jobs_of_philly_it_is_ahead_of_the_best_published_order() -> None:
    trace = load(PHILLY)
    scenario = replace(a_scenario([], "32x4"), trace=trace, estimates=UNKNOWN)
    ours_s, gittins_s = (
        outcome_of(scenario, policy).summary.avg_jct_s for policy in (ours(), a_policy("gittins"))
    )
    assert ours_s is not None
    assert gittins_s == 12_176.866
    assert ours_s < 11_900


# -- checkpoints -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("saves_on_demand", "lost"), [(False, {"old": 1}), (True, {})])
def test_among_equal_runs_the_one_with_the_freshest_checkpoint_gives_way(
    saves_on_demand: bool, lost: dict[str, int]
) -> None:
    """At 31 minutes `old` has saved a minute ago, `young` has not saved 27 minutes of work."""
    world = replace(
        costly(saves_on_demand=saves_on_demand),
        node_failures=FailureModel(checkpoint_ms=30 * MINUTE),
    )
    jobs = [
        traced("old", 1, 3 * HOUR_S),
        traced("young", 1, 3 * HOUR_S, at_s=4 * 60),
        traced("urgent", 1, 60, at_s=31 * 60, priority=1),
    ]
    run = simulated(situation(jobs, "1x2", world), ours(learn="off", siblings="off"))
    accounts = run.ledger.accounts.items()
    assert {name: each.lost // (MINUTE * NOMINAL) for name, each in accounts if each.lost} == lost
