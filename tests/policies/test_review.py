"""Situations that a strict reader found by reading: each went wrong once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_policy, a_scenario, at, costly, finishes, one, outcome_of, traced
from tests.property.drive import Drive
from tests.unit.core.stage import Strings
from trainmaster.core.draft import Draft
from trainmaster.core.invariants import check
from trainmaster.core.lifecycle import Phase
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Run, Shape, gpus
from trainmaster.model.queue import Queue
from trainmaster.model.result import Status
from trainmaster.model.units import GIB, HOUR, SECOND
from trainmaster.perf.perf_model import IDEAL, Breakage
from trainmaster.sim.driver import Scenario, Simulation
from trainmaster.sim.metrics import result_of


def test_a_run_ends_although_somebody_waits_for_a_node_that_left_for_good() -> None:
    jobs = [traced("a", 1, 5), traced("b", 4, 100, at_s=20)]
    scenario = a_scenario(jobs, "2x2", node_changes=(at(10, e.NodeLeft(1)),))
    for policy in ("fifo", "las", "srtf", "tiresias-l"):
        result = outcome_of(scenario, a_policy(policy))
        assert one(result, "b").status is Status.UNFINISHED, policy


def test_a_node_that_left_by_plan_is_not_brought_back_by_a_repair() -> None:
    breaking = replace(IDEAL, breakage=Breakage(mtbf_ms=HOUR, repair_ms=36 * SECOND))
    changes = (at(0, e.NodeLeft(1)),)
    scenario = a_scenario([traced("b", 4, 10)], "2x2", breaking, node_changes=changes)
    assert one(outcome_of(scenario, a_policy("fifo")), "b").status is Status.UNFINISHED


@pytest.mark.parametrize(
    "late",
    [
        e.RunFailed(Run("a", 1)),
        e.RunSucceeded(Run("a", 1)),
        e.RunStopped(Run("a", 1)),
        e.RunLost(Run("a", 1)),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_late_and_repeated_facts_of_a_run_that_is_over_are_ignored(late: e.Event) -> None:
    world = Strings("1x2").running("a", 0)
    world.tell(e.RunLost(Run("a", 1)))
    world.tell(late)
    assert world.phase("a") is Phase.PENDING


def test_a_run_may_end_before_its_start_was_heard_of() -> None:
    world = Strings("1x2").submit("a")
    world.plan(a.Start("a", world.on(0)))
    world.tell(e.RunSucceeded(Run("a", 1)))
    assert "a" not in world.state.jobs
    assert world.state.occupancy.total_free() == 2


def test_nodes_that_nobody_knows_are_ignored() -> None:
    world = Strings("1x2")
    world.tell(e.NodeDraining(7), e.NodeLeft(7), e.NodeJoined(7), e.NodeUndrained(7))


def test_a_freezing_leaves_the_gpu_memory_that_the_newcomer_states() -> None:
    """`b` wants all 16 GiB of the GPUs on which `a` would leave 4 MiB: `a` is halted instead."""
    full = Demand(Shape(2, memory=16 * GIB), 2, 2)
    jobs = [traced("a", 2, 100), traced("b", full, 10, at_s=10)]
    world = costly(can_freeze=True, resume_ms=25_000, thaw_ms=1_000)
    run = Drive(a_scenario(jobs, "1x3", world), a_policy("srtf")).run()
    run.everything_ended()


def test_a_frozen_run_loses_what_its_last_checkpoint_does_not_keep() -> None:
    world = replace(costly(can_freeze=True), breakage=Breakage(checkpoint_ms=HOUR))
    jobs = [traced("long", 2, 2_000), traced("short", 2, 600, at_s=1_000)]
    changes = (at(1_005, e.NodeLeft(0)), at(1_010, e.NodeJoined(0)))
    result = outcome_of(a_scenario(jobs, "1x3", world, node_changes=changes), a_policy("srtf"))
    assert finishes(result) == {"short": 1_610, "long": 3_610}


def test_a_run_that_is_cut_has_its_books_in_order() -> None:
    jobs = [traced("a", 1, 1_000), traced("b", 1, 1_000)]
    result = outcome_of(a_scenario(jobs, "1x2", until_s=100), a_policy("fifo"))
    assert [job.suspended_ms for job in result.jobs] == [0, 0]
    assert [job.held for job in result.jobs] == [100 * SECOND * 1_000] * 2


def test_who_is_stopped_while_waiting_is_cancelled() -> None:
    world = Strings("1x1").running("a", 0).submit("b")
    world.plan(a.Stop("b"))
    assert world.last is not None
    assert world.last.given_up == [("b", Phase.CANCELLED)]


def test_who_is_out_of_retries_has_failed() -> None:
    job = replace(traced("a", 1, 10), failed_attempts_ms=(60 * SECOND,))
    result = outcome_of(
        a_scenario([job], "1x1", replace(IDEAL, has_failures=True)), a_policy("fifo")
    )
    assert (one(result, "a").status, finishes(result)) == (Status.FAILED, {"a": 60})


def test_estimates_and_oracles_follow_failed_attempts() -> None:
    job = traced("a", 1, 10, failed_s=(60, 90))
    failing = replace(IDEAL, has_failures=True)
    seen: list[tuple[int | None, bool]] = []
    simulation = Simulation(a_scenario([job], "1x1", failing), a_policy("fifo"))
    while simulation.step():
        for record in simulation.controller.state.jobs.values():
            left = simulation.controller.view.remaining(record, simulation.now)
            seen.append((left, record.oracle is None))
    assert [left for left, _ in seen if left] == [
        160_000,
        160_000,
        100_000,
        100_000,
        10_000,
        10_000,
    ]
    assert all(unknown for _, unknown in seen)


def test_a_refused_move_of_a_promised_thaw_leaves_the_books_as_they_were() -> None:
    world = Strings("2x2", can_freeze=True).running("a", 0)
    world.plan(a.Suspend("a"))
    world.tell(e.RunSuspended(Run("a", 1), 0, frozen=True))
    world.running("b", 0).running("c", 2)
    world.plan(a.Suspend("b"), a.Resume("a", world.on(0)))
    assert world.refused(a.Migrate("a", world.on(2)))
    check(world.state)


def test_a_draft_rolls_back_as_often_as_it_is_asked() -> None:
    world = Strings("1x4").running("a", 0).submit("b").submit("c")
    draft = Draft(world.controller.view)
    mark = draft.checkpoint()
    for _ in range(2):
        draft.suspend(world.job("a"))
        draft.start(world.job("b"), world.on(1))
        draft.reserve(world.job("c"), world.on(2).slices, None)
        draft.stop(world.job("c"))
        draft.roll_back(mark)
        check(world.state)
    assert draft.plan().actions == ()


def test_cpu_slots_are_no_gpus() -> None:
    job = traced("a", Demand(Shape(2), 2, 2, gpu_type="cpu"), 100)
    result = outcome_of(a_scenario([job, traced("g", 1, 100)], "n1[1] n2[4cpu]"), a_policy("fifo"))
    assert result.summary.gpu_util == pytest.approx(1.0)
    assert one(result, "a").rho is None


def test_entitlement_follows_the_tree_of_queues() -> None:
    """q holds half, c1 and c2 under p a quarter each: just what they are entitled to."""
    jobs = [
        traced("a", 1, 10, queue="c1"),
        traced("b", 1, 10, queue="c2"),
        traced("d", 2, 10, queue="q"),
    ]
    plain = a_scenario(jobs, "1x4")
    tree = [Queue("p"), Queue("c1", "p"), Queue("c2", "p"), Queue("q")]
    queues = {queue.name: queue for queue in tree}
    scenario = Scenario(plain.trace, plain.topology, "1x4", IDEAL, queues=queues)
    simulation = Simulation(scenario, a_policy("fifo"))
    simulation.run()
    assert result_of(simulation).summary.jain_index == pytest.approx(1.0)


def test_who_molds_takes_elastic_jobs_larger_than_the_cluster() -> None:
    soft = traced("soft", gpus(8, minimum=2, maximum=8), 10)
    molded = outcome_of(a_scenario([soft], "1x4"), a_policy("fifo", elastic="moldable"))
    assert finishes(molded) == {"soft": 20}
    assert (
        one(outcome_of(a_scenario([soft], "1x4"), a_policy("fifo")), "soft").status
        is Status.REJECTED
    )


def test_a_run_does_not_grow_onto_gpus_that_another_is_only_leaving() -> None:
    """Shrinking one and growing another in the same plan was refused at admission."""
    jobs = [
        traced("grown", gpus(1, minimum=1, maximum=3), 60),
        traced("ready", gpus(1, minimum=1, maximum=4), 60),
        traced("late", 1, 10, at_s=20),
    ]
    scenario = a_scenario(jobs, "1x4", costly(resize_ms=1000))
    Drive(scenario, a_policy("fifo", elastic="malleable")).run().everything_ended()
