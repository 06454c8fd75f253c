"""Our own policy, what it promises: guaranteed runs, shares with memory, deadlines, answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.builders import a_policy, a_scenario, at, cluster, finishes, one, outcome_of, traced
from tests.policies.ours import after, asked, ours, ran, seen, situation
from tests.property.drive import Drive
from tests.property.worlds import CONTENDERS, scenarios
from trainmaster.core.controller import Controller, Decision
from trainmaster.model import events as e
from trainmaster.model.deadline_notices import DeadlineOutcome
from trainmaster.model.job import Estimate, Run, Source
from trainmaster.model.queue import Queue
from trainmaster.model.reasons import Why
from trainmaster.model.result import Verdict
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import NOMINAL, SECOND, WHOLE
from trainmaster.sim.driver import Scenario, Simulation

HOUR_S = 3_600

# -- nobody falls too far behind -------------------------------------------------------------------

FLOOD = [traced(f"s{n}", 1, 100, at_s=26 * n) for n in range(1_100)]
"""Short jobs that keep four GPUs busy for eight hours."""
GANGS = [traced(f"gang{n}", 4, 2 * HOUR_S, at_s=1) for n in range(3)]


def served_s(name: str, until_s: float, **options: object) -> float:
    """How long a job has run by then."""
    scenario = replace(situation([*FLOOD, *GANGS], "1x4"), until_ms=round(until_s * SECOND))
    simulation = Simulation(scenario, ours(**options))
    simulation.run()
    record = simulation.controller.state.jobs[name]
    return record.attained_at(simulation.now) / record.demand.nominal.total_share / SECOND


def test_a_starving_gang_gets_its_owed_run() -> None:
    """Short jobs go before it, and each is left alone for a minute: never are four of them older."""
    guarded = served_s("gang0", 2 * HOUR_S, guard_ratio=1, guard_slack_s=600)
    left_alone = served_s("gang0", 2 * HOUR_S, guard_ratio=0)
    assert guarded >= left_alone + 600


def watched(scenario: Scenario, **options: object) -> list[dict[str, int]]:
    """Who was owed a run after each step, and how many GPUs each wants."""
    simulation = Simulation(scenario, ours(**options))
    found = []
    while simulation.step():
        jobs, memo = simulation.controller.state.jobs, simulation.controller.memo
        debts = memo.owed.until  # type: ignore[attr-defined]
        found.append({job: jobs[job].demand.nominal.count for job in debts if job in jobs})
    return found


def test_owed_runs_hold_a_quarter_of_the_gpus_or_are_one() -> None:
    options = {"guard_ratio": 1, "guard_slack_s": 600}
    owed = watched(
        replace(situation([*FLOOD, *GANGS], "1x4"), until_ms=8 * HOUR_S * SECOND), **options
    )
    assert max(len(each) for each in owed) == 1, "three gangs starve, one at a time is served"
    crowd = [traced(f"long{n}", 2, 20_000, at_s=2) for n in range(12)]
    jobs = [
        *[replace(j, job=replace(j.job, submit_ms=j.job.submit_ms // 4)) for j in FLOOD],
        *crowd,
    ]
    owed = watched(replace(situation(jobs, "1x16"), until_ms=4 * HOUR_S * SECOND), **options)
    assert max(sum(each.values()) for each in owed) == 4, "of sixteen GPUs"


def test_the_guard_holds_in_a_queue_in_which_nothing_else_happens() -> None:
    """Nobody is preempted but for a debt; the look comes at a time when no job comes or ends."""
    jobs = [traced("long", 2, 400_000, queue="a"), traced("late", 2, 3_000, at_s=1_000, queue="a")]
    options = {"guard_ratio": 1, "guard_slack_s": 600, "hysteresis": 0, "cap": 0}
    alone, between = (
        one(ran(jobs, "1x2", queues=queues, **options), "late") for queues in ("", "a:1,b:1")
    )
    assert alone.start_ms == between.start_ms == 2_200 * SECOND, "half its age of 1200 s is fair"


def test_where_nothing_will_ever_run_nobody_is_woken_forever() -> None:
    """A server is gone for good: what it takes to run is not there, and the run ends unfinished."""
    gone = (at(50, e.NodeLeft(0)),)
    jobs = [traced("a", 2, 100), traced("b", 2, 100, at_s=5)]
    simulation = Simulation(a_scenario(jobs, "2x1", node_changes=gone), ours())
    steps = 0
    while simulation.step():
        steps += 1
        assert steps < 100, "it goes on for ever"
    assert simulation.stuck() == ["a", "b"]


# -- gangs -----------------------------------------------------------------------------------------


def test_a_gang_for_which_there_are_too_few_servers_holds_nobody_up() -> None:
    gone = (at(3, e.NodeLeft(0)),)
    jobs = [traced("gang", 2, 100, at_s=5), traced("other", 1, 100, at_s=6)]
    scenario = a_scenario(jobs, "2x1", node_changes=gone)
    assert finishes(outcome_of(scenario, ours()))["other"] == 106


# -- shares ----------------------------------------------------------------------------------------

DAY_S = 24 * HOUR_S


def held_by(scenario: Scenario, second: float, **options: object) -> dict[str, int]:
    """GPUs held by each queue then."""
    until = replace(scenario, until_ms=round(second * SECOND))
    simulation = Simulation(until, ours(**options))
    simulation.run()
    found: dict[str, int] = {}
    for record in simulation.controller.state.jobs.values():
        held = record.placement.total_share // WHOLE if record.placement is not None else 0
        found[record.job.queue] = found.get(record.job.queue, 0) + held
    return found


def many(queue: str, count: int, at_s: float = 0.0) -> list[TracedJob]:
    return [traced(f"{queue}{n}", 1, 9 * DAY_S, at_s=at_s, queue=queue) for n in range(count)]


def test_queues_that_were_stated_divide_the_gpus_by_weight() -> None:
    jobs = situation([*many("a", 8), *many("b", 8)], "1x8")
    assert held_by(jobs, 100, queues="a:3,b:1") == {"a": 6, "b": 2}
    stated = [Queue("a", weight=1), Queue("b", weight=3)]
    assert held_by(situation([*many("a", 8), *many("b", 8)], "1x8", queues=stated), 100) == {
        "a": 2,
        "b": 6,
    }


def test_where_none_was_stated_all_stand_in_one_line() -> None:
    jobs = [*many("a", 8), *many("b", 8, at_s=1)]
    assert held_by(situation(jobs, "1x8"), 50) == {"a": 8, "b": 0}


@pytest.mark.parametrize(("half_life_s", "is_remembered"), [(DAY_S, True), (0, False)])
def test_a_queue_that_was_idle_catches_up(half_life_s: int, is_remembered: bool) -> None:
    """a had all eight GPUs for a day; then b comes. Without memory they are equals."""
    scenario = situation([*many("a", 8), *many("b", 8, at_s=DAY_S)], "1x8")
    held = held_by(scenario, DAY_S + 100, queues="a:1,b:1", half_life_s=half_life_s)
    assert sum(held.values()) == 8
    assert (held["b"] > 4) is is_remembered
    assert (held["b"] == 4) is not is_remembered


def test_inside_a_queue_the_order_is_the_same() -> None:
    """Newcomers go before one that has had its quarter of an hour."""
    jobs = [
        traced("old", 1, 2_000, queue="a"),
        traced("new", 1, 100, at_s=900, queue="a"),
        traced("b", 1, 5_000, queue="b"),
    ]
    ends = finishes(ran(jobs, "1x2", queues="a:1,b:1"))
    assert (ends["new"], ends["old"]) == (1_000, 2_100)


def placed(simulation: Simulation) -> dict[str, Run]:
    return {r.id: r.run for r in simulation.controller.state.jobs.values() if r.placement}


def test_stating_queues_in_the_middle_of_a_run_loses_nothing() -> None:
    jobs = [traced(f"{'ab'[n % 2]}{n}", 1, 900, at_s=60 * n, queue="ab"[n % 2]) for n in range(60)]
    drive = Drive(situation(jobs, "1x2"), ours(hysteresis=0.65))
    simulation = drive.simulation
    while simulation.now < 6 * HOUR_S * SECOND:
        assert simulation.step()
        drive.look()
    before = simulation.controller.memo
    running = placed(simulation)
    stated = [e.QueueDefined(Queue("a", weight=1)), e.QueueDefined(Queue("b", weight=1))]
    simulation.take(simulation.now, stated)
    drive.look()
    after_it = simulation.controller.memo
    assert after_it.service is before.service, "what was seen is still known"  # type: ignore[attr-defined]
    assert before.service.known  # type: ignore[attr-defined]
    assert [name[0] for name in running] == ["b", "b"]
    assert sorted(name[0] for name in placed(simulation)) == ["a", "b"], "each has its share now"
    assert len(running.items() & placed(simulation).items()) == 1, "the other run goes on"
    while simulation.step():
        drive.look()
        assert len(drive.steps) < 3_000, "it goes on for ever"
    drive.everything_ended()


def test_a_gang_larger_than_its_queues_part_is_owed_runs_too() -> None:
    """Its queue has one of two GPUs, the other always has jobs for the second."""
    jobs = [traced(f"b{n}", 1, 5_000, queue="b") for n in range(9)]
    jobs += [traced("a", 1, 30_000, queue="a"), traced("gang", 2, 500, at_s=1, queue="a")]
    guarded, left_alone = (
        one(ran(jobs, "1x2", queues="a:1,b:1", guard_ratio=ratio, guard_slack_s=600), "gang")
        for ratio in (1, 0)
    )
    assert guarded.finish_ms is not None
    assert left_alone.finish_ms is not None
    assert guarded.finish_ms < 10_000 * SECOND
    assert left_alone.finish_ms > 20_000 * SECOND


# -- deadlines -------------------------------------------------------------------------------------


def test_a_deadline_that_can_be_kept_is_accepted_and_kept() -> None:
    """Newcomers would go before it for ever; it starts when it must."""
    stream = [traced(f"s{n}", 1, 100, at_s=100 * n) for n in range(20)]
    for deadlines, is_met in (("on", True), ("off", False)):
        jobs = [asked("a", 1, 500, within_s=1_500, at_s=0.5), *stream]
        result = outcome_of(a_scenario(jobs, "1x1"), ours(deadlines=deadlines, cap=0))
        found = one(result, "a").deadline
        assert found is not None
        assert found.is_met is is_met
        expected = Verdict.ACCEPTED if deadlines == "on" else None
        assert (found.verdict if found.notices else None) is expected


def test_one_that_cannot_is_declined_with_the_one_that_could() -> None:
    """40 s are promised, with a tenth more for error; 100 s of work cannot be done by 90."""
    jobs = [asked("first", 1, 40, within_s=60), asked("no", 1, 100, within_s=90)]
    found = one(outcome_of(a_scenario(jobs, "1x1"), ours()), "no").deadline
    assert found is not None
    assert (found.verdict, found.feasible_ms) == (Verdict.DECLINED, (44 + 110) * SECOND)
    margin = one(outcome_of(a_scenario(jobs, "1x1"), ours(deadline_margin=0)), "no").deadline
    assert margin is not None
    assert margin.feasible_ms == 140 * SECOND


def test_where_nobody_estimates_what_was_seen_of_its_kind_will_do() -> None:
    school = seen("quick", 30, times=50)
    late = after(school)
    job = asked("a", 1, 30, within_s=600, at_s=late)
    known = replace(job, job=replace(job.job, queue="quick"))
    strange = asked("b", 64, 30, within_s=600, at_s=late)
    result = outcome_of(situation([*school, known, strange], "1x64"), ours())
    verdicts = [one(result, name).deadline for name in ("a", "b")]
    assert [each.verdict for each in verdicts if each] == [Verdict.ACCEPTED, Verdict.DECLINED]


def test_an_accepted_deadline_counts_more_than_the_part_of_a_queue() -> None:
    """Its queue has one of two GPUs and it wants both, from 1000 s on at the latest."""
    due = asked("due", 2, 1_000, within_s=1_500, at_s=600)
    jobs = [replace(due, job=replace(due.job, queue="a"))]
    jobs += [traced(f"{queue}{n}", 1, 5_000, queue=queue) for queue in "ab" for n in range(3)]
    found = one(outcome_of(a_scenario(jobs, "1x2"), ours(queues="a:1,b:1")), "due").deadline
    assert found is not None
    assert found.verdict is Verdict.ACCEPTED
    assert found.is_met


# -- why a job waits -------------------------------------------------------------------------------


def submitted(controller: Controller, *jobs: TracedJob, now_s: float = 0) -> Decision:
    known = [Estimate(each.service_ms * NOMINAL, Source.TRACE) for each in jobs]
    facts = [e.JobSubmitted(each.job, k) for each, k in zip(jobs, known, strict=True)]
    return controller.step(round(now_s * SECOND), facts)


def test_who_finds_too_few_gpus_is_told_how_many_and_who_has_them() -> None:
    controller = Controller(cluster("1x4"), ours())
    submitted(controller, traced("run", 3, 100))
    submitted(controller, traced("gang", 2, 100), now_s=1)
    reason = controller.explain("gang")
    assert (reason.why, reason.need, reason.free) == (Why.NOT_ENOUGH_FREE, 2 * WHOLE, WHOLE)
    assert reason.held_by == ("run",)


@pytest.mark.parametrize(
    ("locality", "why"), [("on", Why.FRAGMENTED), ("off", Why.WAITING_FOR_RELEASE)]
)
def test_a_gang_that_waits_for_near_gpus_is_told_that_the_free_ones_lie_apart(
    locality: str, why: Why
) -> None:
    """One GPU is free on each of two servers: a pair that needs nearness does not take them yet."""
    controller = Controller(cluster("2x4"), ours(locality=locality))
    submitted(controller, traced("one", 3, 10_000), traced("two", 3, 10_000))
    submitted(controller, traced("pair", 2, 10_000, at_s=1, model="vgg16"), now_s=1)
    assert controller.explain("pair").why is why


def test_who_waits_because_its_queue_has_its_share_is_told_so() -> None:
    controller = Controller(cluster("1x2"), ours(queues="a:1,b:1"))
    submitted(controller, traced("a1", 1, 100, queue="a"), traced("b1", 1, 100, queue="b"))
    submitted(controller, traced("a2", 1, 100, at_s=1, queue="a"), now_s=1)
    reason = controller.explain("a2")
    assert (reason.why, reason.held_by) == (Why.SHARE_USED_UP, ("a1",))


def test_who_has_time_until_its_deadline_is_told_until_when_others_go_first() -> None:
    controller = Controller(cluster("1x1"), ours(deadline_margin=0))
    submitted(controller, asked("a", 1, 50, within_s=50), asked("c", 1, 50, within_s=200))
    reason = controller.explain("c")
    assert (reason.why, reason.until_ms) == (Why.DEADLINE_LEAVES_TIME, 150 * SECOND)
    assert reason.notice is not None
    assert reason.notice.what is DeadlineOutcome.ACCEPTED


# -- memory is a value -----------------------------------------------------------------------------


class Reborn(Drive):
    """A run in which the policy dies before every step, and another takes over its memo."""

    def __post_init__(self) -> None:
        super().__post_init__()
        controller, step = self.simulation.controller, self.simulation.controller.step

        def another(now: int, events: Sequence[e.Event]) -> Decision:
            controller.view.forget()
            controller.policy = type(self.policy)(self.policy.options)  # type: ignore[attr-defined, call-arg]
            return step(now, events)

        controller.step = another  # type: ignore[method-assign]


OURS = [name for name, (policy, _) in CONTENDERS.items() if policy == "trainmaster"]


@pytest.mark.parametrize("contender", OURS)
@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(scenario=scenarios())
def test_a_new_policy_with_the_old_memo_gives_the_same_orders(
    contender: str, scenario: Scenario
) -> None:
    name, options = CONTENDERS[contender]
    drives: list[Any] = [
        kind(scenario, a_policy(name, **options), checked=False) for kind in (Drive, Reborn)
    ]
    first, second = (drive.run().orders() for drive in drives)
    assert first == second
