"""Facts: old attempts are ignored, duplicates change nothing, failures and losses are told apart."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.builders import (
    a_job,
)
from tests.unit.core.stage import Strings
from trainmaster.core.lifecycle import Phase
from trainmaster.core.reducer import MOST_SAMPLES
from trainmaster.core.state import JobRecord
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Estimate, Oracle, Part, Run, Shape, Source
from trainmaster.model.profile import Profile
from trainmaster.model.progress import Sample
from trainmaster.model.queue import Queue
from trainmaster.model.units import NOMINAL, SECOND, WHOLE


def snapshot(record: JobRecord) -> dict[str, object]:
    return {
        name: getattr(record, name)
        for name in ("phase", "attempt", "work", "placement", "failures")
    }


def test_a_job_submitted_twice_is_one_job() -> None:
    world = Strings().submit("a")
    first = world.job("a")
    world.tell(e.JobSubmitted(a_job("a", 4)))
    assert world.job("a") is first
    assert world.state.submitted == 1


def test_progress_is_credited_by_speed_and_service_by_gpus() -> None:
    world = Strings().submit("a", 2)
    world.plan(a.Start("a", world.on(0, 1)))
    world.later(5).started("a", NOMINAL // 2)
    record = world.job("a")
    assert (record.first_start_ms, record.since_ms) == (5 * SECOND, 5 * SECOND)
    assert record.work_at(15 * SECOND) == 10 * SECOND * NOMINAL // 2
    assert record.attained_at(15 * SECOND) == 10 * SECOND * 2 * WHOLE
    world.later(10).tell(e.RunSpeedChanged(world.run("a"), record.work_at(world.now), NOMINAL))
    world.later(1)
    assert record.work_at(world.now) == 6 * SECOND * NOMINAL
    assert record.finish_at(8 * SECOND * NOMINAL, world.now) == world.now + 2 * SECOND


STALE = [
    e.RunStarted(Run("a", 1), NOMINAL),
    e.RunSuspended(Run("a", 1), 5),
    e.RunResumed(Run("a", 1), NOMINAL),
    e.RunResized(Run("a", 1), 5, NOMINAL),
    e.RunSpeedChanged(Run("a", 1), 5, 1),
    e.RunSucceeded(Run("a", 1)),
    e.RunFailed(Run("a", 1), retryable=False),
    e.RunLost(Run("a", 1)),
    e.RunStopped(Run("a", 1)),
]


@pytest.mark.parametrize("fact", STALE, ids=lambda fact: type(fact).__name__)
def test_messages_of_an_old_attempt_are_ignored(fact: e.Event) -> None:
    world = Strings().running("a", 0)
    world.later(10).tell(e.RunFailed(world.run("a")))
    world.start("a", 1)
    assert world.job("a").attempt == 2
    before = snapshot(world.job("a"))
    assert world.later(1).tell(fact) == []
    assert snapshot(world.job("a")) == before


@pytest.mark.parametrize("fact", STALE, ids=lambda fact: type(fact).__name__)
def test_messages_of_an_ended_job_are_ignored(fact: e.Event) -> None:
    world = Strings().running("a", 0)
    world.tell(e.RunSucceeded(world.run("a")))
    assert world.tell(fact) == []
    assert not world.state.jobs


@pytest.mark.parametrize(
    "fact",
    [
        e.RunStarted(Run("a", 1), NOMINAL),
        e.RunResumed(Run("a", 1), NOMINAL),
        e.RunResized(Run("a", 1), 0, NOMINAL),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_a_repeated_start_changes_nothing(fact: e.Event) -> None:
    world = Strings().running("a", 0)
    since = world.job("a").since_ms
    world.later(3).tell(fact)
    assert world.job("a").since_ms == since
    assert world.phase("a") is Phase.RUNNING


def test_a_repeated_suspension_changes_nothing() -> None:
    world = Strings().running("a", 0)
    world.later(5).plan(a.Suspend("a"))
    world.tell(e.RunSuspended(world.run("a"), 5 * SECOND * NOMINAL))
    world.tell(e.RunSuspended(world.run("a"), 5 * SECOND * NOMINAL))
    assert world.phase("a") is Phase.SUSPENDED
    assert world.job("a").work == 5 * SECOND * NOMINAL


def test_failures_limit_retries() -> None:
    world = Strings().submit("a", retries=1)
    world.start("a", 0).tell(e.RunFailed(world.run("a", 1)))
    assert world.phase("a") is Phase.PENDING
    world.start("a", 0).tell(e.RunFailed(world.run("a", 2)))
    assert "a" not in world.state.jobs


def test_lost_runs_do_not() -> None:
    world = Strings().submit("a", retries=0)
    for attempt in range(1, 5):
        world.start("a", 0).tell(e.RunLost(world.run("a", attempt), work=7))
        assert world.phase("a") is Phase.PENDING
    assert (world.job("a").failures, world.job("a").work) == (0, 7)


def test_a_failure_that_is_not_worth_a_retry_ends_the_job() -> None:
    world = Strings().running("a", 0, retries=9)
    world.tell(e.RunFailed(world.run("a"), retryable=False))
    assert "a" not in world.state.jobs


def test_a_relaunch_goes_on_from_what_was_saved() -> None:
    world = Strings().running("a", 0)
    world.later(10).tell(e.RunFailed(world.run("a"), work=4 * SECOND * NOMINAL))
    orders = world.plan(a.Start("a", world.on(1)))
    assert orders == [a.Launch(Run("a", 2), world.on(1), 4 * SECOND * NOMINAL)]


# -- withdrawing -----------------------------------------------------------------------------------


def test_withdrawn_while_pending() -> None:
    world = Strings().submit("a")
    assert world.tell(e.JobWithdrawn("a")) == []
    assert not world.state.jobs


def test_withdrawn_while_starting() -> None:
    world = Strings().submit("a")
    world.plan(a.Start("a", world.on(0)))
    assert world.tell(e.JobWithdrawn("a")) == [a.Kill(Run("a", 1))]
    assert world.phase("a") is Phase.STOPPING
    assert world.tell(e.JobWithdrawn("a")) == [], "once is enough"
    world.tell(e.RunStopped(Run("a", 1)))
    assert not world.state.jobs


def test_withdrawn_while_running_keeps_its_gpus_until_it_is_gone() -> None:
    world = Strings("1x1").running("a", 0).submit("b")
    assert world.tell(e.JobWithdrawn("a")) == [a.Kill(Run("a", 1))]
    assert world.refused(a.Start("b", world.on(0))) != []
    world.tell(e.RunStopped(Run("a", 1)))
    world.start("b", 0)


def test_withdrawn_while_suspending() -> None:
    world = Strings().running("a", 0)
    world.plan(a.Suspend("a"))
    assert world.tell(e.JobWithdrawn("a")) == [a.Kill(Run("a", 1))]
    world.tell(e.RunSuspended(Run("a", 1), 0))
    assert not world.state.jobs


def test_withdrawn_while_suspended() -> None:
    world = Strings().running("a", 0)
    world.plan(a.Suspend("a"))
    world.tell(e.RunSuspended(Run("a", 1), 0))
    assert world.tell(e.JobWithdrawn("a")) == []
    assert not world.state.jobs


def test_withdrawn_while_resizing() -> None:
    world = Strings().running("a", 0, 1)
    world.job("a").demand = world.job("a").demand.__class__(Shape(2), 1, 4)
    world.plan(a.Resize("a", world.on(0)))
    assert world.tell(e.JobWithdrawn("a")) == [a.Kill(Run("a", 1))]
    world.tell(e.RunStopped(Run("a", 1)))
    assert not world.state.jobs
    assert not world.state.releasing


def test_withdrawn_while_its_start_is_promised() -> None:
    world = Strings("1x1").running("a", 0).submit("b")
    world.plan(a.Suspend("a"), a.Start("b", world.on(0)))
    assert world.tell(e.JobWithdrawn("b")) == []
    assert "b" not in world.state.jobs
    assert world.tell(e.RunSuspended(Run("a", 1), 0)) == []


def test_withdrawn_while_frozen() -> None:
    world = Strings("1x2", can_freeze=True).running("a", 0)
    world.plan(a.Suspend("a"))
    world.tell(e.RunSuspended(Run("a", 1), 0, frozen=True))
    assert world.tell(e.JobWithdrawn("a")) == [a.Kill(Run("a", 1))]
    world.tell(e.RunStopped(Run("a", 1)))
    assert not world.state.jobs


def test_withdrawn_while_freezing_it_keeps_its_gpus_until_it_is_gone() -> None:
    world = Strings("1x1", can_freeze=True).running("a", 0).submit("b")
    world.plan(a.Suspend("a"))
    assert world.tell(e.JobWithdrawn("a")) == [a.Kill(Run("a", 1))]
    world.tell(e.RunSuspended(Run("a", 1), 0, frozen=True))
    assert world.phase("a") is Phase.STOPPING
    assert not any(isinstance(order, a.Launch) for order in world.plan(a.Start("b", world.on(0))))
    world.tell(e.RunStopped(Run("a", 1)))
    assert "a" not in world.state.jobs


def test_withdrawn_while_frozen_with_a_promise_to_thaw() -> None:
    """The promise dies with the job: nothing is thawed when the way is free."""
    world = Strings("1x2", can_freeze=True).running("a", 0)
    world.plan(a.Suspend("a"))
    world.tell(e.RunSuspended(Run("a", 1), 0, frozen=True))
    world.running("b", 0)
    world.plan(a.Suspend("b"), a.Resume("a", world.on(0)))
    assert world.tell(e.JobWithdrawn("a")) == [a.Kill(Run("a", 1))]
    assert world.tell(e.RunSuspended(Run("b", 1), 0)) == [], "a is being killed"
    world.tell(e.RunStopped(Run("a", 1)))
    assert "a" not in world.state.jobs
    assert not world.state.pending_launches


# -- profiles, queues, nodes -----------------------------------------------------------------------


def test_a_profile_brings_shapes_estimates_and_truth() -> None:
    world = Strings().submit("a")
    group = world.job("a").group
    split = Shape(2, parts=(Part(500, 1), Part(300, 1)))
    estimate, oracle = Estimate(9, Source.STEPS), Oracle(8)
    world.tell(e.JobProfiled("a", splits=(split,), estimate=estimate, oracle=oracle))
    record = world.job("a")
    assert record.demand.splits == (split,)
    assert (record.estimate, record.oracle) == (estimate, oracle)
    assert record.group != group
    assert world.tell(e.JobProfiled("nobody", estimate=estimate)) == []


def test_a_newer_profile_keeps_what_it_does_not_measure() -> None:
    world = Strings().submit("a")
    split = Shape(2, parts=(Part(500, 1), Part(300, 1)))
    told = Profile(step_us=7, speedups=((1, NOMINAL),), gpu_memory=9)
    world.tell(e.JobProfiled("a", splits=(split,), profile=told))
    world.tell(e.JobProfiled("a", profile=Profile(gpu_util_ppm=0, gpu_memory=8)))
    assert world.job("a").profile == replace(told, gpu_util_ppm=0, gpu_memory=8)
    assert world.job("a").demand.splits == (split,)


def test_queues_are_facts() -> None:
    world = Strings()
    world.tell(e.QueueDefined(Queue("vision", weight=3)))
    world.tell(e.QueueDefined(Queue("vision", weight=4)))
    assert world.controller.view.queues["vision"].weight == 4


def test_a_node_that_leaves_takes_promised_starts_with_it() -> None:
    world = Strings("2x1").running("a", 0).submit("b")
    world.plan(a.Suspend("a"), a.Start("b", world.on(0)))
    world.tell(e.NodeLeft(0), e.RunLost(Run("a", 1)))
    assert world.phase("b") is Phase.PENDING
    assert not world.state.pending_launches
    assert world.state.occupancy.total_free() == 1
    world.tell(e.NodeJoined(0))
    assert world.state.occupancy.total_free() == 2


def test_a_node_is_open_when_no_reason_is_left_to_close_it() -> None:
    world = Strings("1x1")
    world.tell(e.NodeDraining(0), e.NodeLeft(0))
    world.tell(e.NodeJoined(0))
    assert world.state.occupancy.total_free() == 0, "it is still draining"
    world.tell(e.NodeUndrained(0))
    assert world.state.occupancy.total_free() == 1


def test_a_migration_whose_target_leaves_ends_as_a_suspension() -> None:
    world = Strings("2x1").running("a", 0)
    world.plan(a.Migrate("a", world.on(1)))
    world.tell(e.NodeLeft(1))
    assert world.tell(e.RunSuspended(Run("a", 1), 0)) == []
    assert world.phase("a") is Phase.SUSPENDED


def test_reports_of_progress_are_thinned_and_not_forgotten() -> None:
    """A year of reports: few, from the first on, and the denser the later."""
    world = Strings("1x1").running("a", 0)
    for step in range(1, 1_001):
        world.tell(e.RunProgressed(Run("a", 1), Sample(step, 500_000, 1, NOMINAL)))
    steps = [sample.step for sample in world.job("a").samples]
    assert len(steps) <= MOST_SAMPLES
    assert steps[0] == 1
    assert steps[-1] == 1_000
    gaps = [later - earlier for earlier, later in pairwise(steps)]
    assert gaps == sorted(gaps, reverse=True)
    world.tell(
        e.RunProgressed(Run("a", 7), Sample(5, 1, 1, 1)),
        e.RunProgressed(Run("z", 1), Sample(5, 1, 1, 1)),
    )
    assert world.job("a").samples[-1].step == 1_000


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


def test_unknown_nodes_are_ignored() -> None:
    world = Strings("1x2")
    world.tell(e.NodeDraining(7), e.NodeLeft(7), e.NodeJoined(7), e.NodeUndrained(7))


def test_a_waiting_job_that_is_stopped_is_cancelled() -> None:
    world = Strings("1x1").running("a", 0).submit("b")
    world.plan(a.Stop("b"))
    assert world.last is not None
    assert world.last.ended_unsuccessfully == [("b", Phase.CANCELLED)]
