"""What people change while jobs live: the job itself, where it runs, and who decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_job, a_policy, cluster
from tests.policies.cases import Scripted
from tests.unit.core.stage import Strings
from trainmaster.core.controller import Controller
from trainmaster.core.invariants import check
from trainmaster.core.lifecycle import Phase
from trainmaster.core.policy import Policy
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Run, gpus
from trainmaster.model.placement import Role
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.reasons import Refused
from trainmaster.model.units import NOMINAL

# -- the job ---------------------------------------------------------------------------------------


def test_priority_queue_retries_deadline_and_grace_change_at_any_time() -> None:
    stage = Strings().running("a", 0)
    new = replace(
        stage.job("a").job, priority=5, queue="other", retries=9, deadline_ms=77, grace_ms=1
    )
    stage.tell(e.JobChanged(new))
    assert stage.job("a").job == new
    assert stage.last is not None
    assert stage.last.planned


def test_what_it_asks_for_changes_only_while_it_holds_nothing() -> None:
    stage = Strings().running("a", 0).submit("b")
    for name in "ab":
        asked = replace(stage.job(name).job, demand=gpus(3), role=Role.OPPORTUNISTIC, priority=1)
        stage.tell(e.JobChanged(asked))
    assert stage.job("a").demand == gpus(1)
    assert stage.job("a").job.role is Role.GUARANTEED
    assert stage.job("a").job.priority == 1
    assert stage.job("b").demand == stage.job("b").job.demand == gpus(3)
    assert stage.job("b").group != stage.job("a").group
    stage.start("b", 1, 2, 3)


def test_a_frozen_or_leaving_job_holds_something() -> None:
    stage = Strings(can_freeze=True).running("a", 0)
    stage.plan(a.Suspend("a"))
    stage.tell(e.JobChanged(replace(stage.job("a").job, demand=gpus(3))))
    stage.tell(e.RunSuspended(Run("a", 1), 0, frozen=True))
    stage.tell(e.JobChanged(replace(stage.job("a").job, demand=gpus(3))))
    assert stage.job("a").demand == gpus(1)


def test_the_submission_time_and_unknown_jobs_cannot_be_changed() -> None:
    stage = Strings().later(3).submit("a")
    stage.tell(e.JobChanged(replace(stage.job("a").job, submit_ms=0)), e.JobChanged(a_job("z")))
    assert stage.job("a").job.submit_ms == 3_000
    assert list(stage.state.jobs) == ["a"]


def fifo(topology: str = "1x1") -> Controller:
    return Controller(cluster(topology), a_policy("fifo"))


def test_a_higher_priority_goes_first_where_the_policy_looks_at_it() -> None:
    controller = Controller(cluster("1x1"), a_policy("trainmaster"))
    jobs = [a_job(name) for name in "abc"]
    controller.step(0, [e.JobSubmitted(job) for job in jobs])
    controller.step(1, [e.RunStarted(Run("a", 1), NOMINAL)])
    controller.step(2, [e.JobChanged(replace(jobs[2], priority=9))])
    decision = controller.step(3, [e.RunSucceeded(Run("a", 1))])
    assert [order.run.job for order in decision.orders] == ["c"]


def test_a_job_that_changes_its_queue_is_counted_there() -> None:
    policy = a_policy("fair", queues="left:1,right:1")
    controller = Controller(cluster("1x2"), policy)
    jobs = [a_job(name, queue="left") for name in "ab"]
    controller.step(0, [e.JobSubmitted(job) for job in jobs])
    controller.step(1, [e.RunStarted(Run("a", 1), NOMINAL), e.RunStarted(Run("b", 1), NOMINAL)])
    controller.step(2, [e.JobChanged(replace(jobs[1], queue="right"))])
    controller.step(3, [e.JobSubmitted(a_job("c", queue="right"))])
    decision = controller.step(1_000_000, [])
    assert not decision.orders, "each queue has its half: nobody is to give way"
    check(controller.state)


# -- what it does ----------------------------------------------------------------------------------


def test_a_move_that_somebody_asked_for() -> None:
    stage = Strings().running("a", 0)
    assert stage.tell(e.ActionRequested(a.Migrate("a", stage.on(5)))) == [a.Halt(Run("a", 1))]
    assert stage.last is not None
    assert stage.last.planned
    assert stage.tell(e.RunSuspended(Run("a", 1), 9)) == [a.Launch(Run("a", 2), stage.on(5), 9)]


def test_a_resize_that_somebody_asked_for() -> None:
    stage = Strings().submit("a", gpus(1, maximum=2)).start("a", 0)
    orders = stage.tell(e.ActionRequested(a.Resize("a", stage.on(0, 1))))
    assert orders == [a.Reshape(Run("a", 1), stage.on(0, 1))]


def test_a_suspension_that_somebody_asked_for_is_followed_by_a_pass() -> None:
    stage = Strings().running("a", 0)
    assert stage.tell(e.ActionRequested(a.Suspend("a"))) == [a.Halt(Run("a", 1))]
    stage.tell(e.RunSuspended(Run("a", 1), 0))
    assert stage.phase("a") is Phase.SUSPENDED
    assert stage.last is not None
    assert stage.last.planned


def test_what_cannot_be_done_is_refused_and_the_rest_is_done() -> None:
    stage = Strings().running("a", 0).running("b", 1)
    orders = stage.tell(
        e.ActionRequested(a.Migrate("a", stage.on(1))),
        e.ActionRequested(a.Migrate("nobody", stage.on(2))),
        e.ActionRequested(a.Migrate("b", stage.on(2))),
    )
    assert orders == [a.Halt(Run("b", 1))]
    assert stage.last is not None
    assert [(each.job, each.why) for each in stage.last.refusals] == [
        ("a", Refused.GPU_TAKEN),
        ("nobody", Refused.UNKNOWN_JOB),
    ]


# -- who decides -----------------------------------------------------------------------------------


def made(spec: PolicySpec) -> Policy:
    return a_policy(spec.name, **dict(spec.options))


def test_another_policy_decides_from_the_step_on() -> None:
    controller = Controller(cluster("1x2"), a_policy("philly"), make_policy=made)
    controller.step(0, [e.JobSubmitted(a_job("a", 2)), e.JobSubmitted(a_job("b", 1))])
    assert controller.now == 0
    decision = controller.step(5, [e.PolicyChanged("las", (("quantum_s", "7"),))])
    assert controller.now == 5
    assert controller.policy.name == "las"
    assert controller.policy.options.quantum_s == 7  # type: ignore[attr-defined]
    assert controller.memo == controller.policy.first_memo()
    assert decision.planned


def test_reservations_of_the_old_policy_are_dropped() -> None:
    stage = Strings().submit("a", 4)
    stage.controller.make_policy = made
    stage.plan(a.Reserve("a", stage.on(0, 1).slices))
    stage.tell(e.PolicyChanged("fifo"))
    assert not stage.state.reservations
    assert stage.phase("a") is Phase.STARTING


@pytest.mark.parametrize("name", ["fair", "philly", "two-level", "antman", "themis", "gandiva"])
def test_a_new_policy_finds_everything_that_waits(name: str) -> None:
    """Nothing has changed for anybody: yet nobody is overlooked."""
    controller = Controller(cluster("2x2"), Scripted(), make_policy=made)
    jobs = [a_job(f"j{n}", queue=f"q{n % 2}") for n in range(4)]
    controller.step(0, [e.JobSubmitted(job) for job in jobs])
    decision = controller.step(5, [e.PolicyChanged(name)])
    assert len(decision.orders) == 4


def test_a_controller_that_cannot_make_policies_says_so() -> None:
    with pytest.raises(ValueError, match="not told how to make the policy 'las'"):
        fifo().step(0, [e.PolicyChanged("las")])
