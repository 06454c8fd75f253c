"""Jobs that are held: taken off their GPUs, hidden from policies, and let in again."""

from __future__ import annotations

import pytest

from tests.builders import a_job, a_policy, cluster
from tests.unit.core.stage import Strings
from trainmaster.core.controller import Controller
from trainmaster.core.invariants import check
from trainmaster.core.lifecycle import Phase
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Run, Shape
from trainmaster.model.units import NOMINAL


def test_a_waiting_job_is_held_at_once_and_no_policy_sees_it() -> None:
    stage = Strings().submit("a").submit("b")
    stage.tell(e.JobHeld("a"))
    assert stage.phase("a") is Phase.HELD
    assert stage.state.waiting == 1
    assert list(stage.controller.view.jobs) == ["b"]
    assert stage.last is not None
    assert stage.last.planned, "others may go first now"
    stage.tell(e.JobReleased("a"))
    assert stage.phase("a") is Phase.PENDING
    assert [record.id for record in stage.controller.view.waiting()] == ["a", "b"]


def test_a_job_may_be_held_from_the_start() -> None:
    stage = Strings()
    stage.tell(e.JobSubmitted(a_job("a"), held=True))
    assert stage.phase("a") is Phase.HELD
    assert stage.last is not None
    assert not stage.last.planned
    assert stage.refused(a.Start("a", stage.on(0)))
    stage.later(5).tell(e.JobReleased("a"))
    assert stage.last.planned
    assert stage.job("a").waiting_since_ms == 5_000
    stage.start("a", 0)


def test_a_running_job_is_suspended_first_and_that_is_no_preemption() -> None:
    stage = Strings().running("a", 0, 1)
    assert stage.later(3).tell(e.JobHeld("a")) == [a.Halt(Run("a", 1))]
    assert stage.phase("a") is Phase.SUSPENDING
    stage.tell(e.RunSuspended(Run("a", 1), 3_000 * NOMINAL))
    assert stage.phase("a") is Phase.HELD
    assert stage.job("a").preemptions == 0
    stage.later(9).tell(e.JobReleased("a"))
    assert stage.phase("a") is Phase.SUSPENDED
    stage.plan(a.Resume("a", stage.on(2, 3)))
    assert stage.job("a").run == Run("a", 2)


def test_a_frozen_run_keeps_its_room_and_is_thawed_where_it_is() -> None:
    stage = Strings(can_freeze=True).running("a", 0)
    host = stage.state.occupancy.free_host[0]
    assert stage.tell(e.JobHeld("a")) == [a.Freeze(Run("a", 1))]
    stage.tell(e.RunSuspended(Run("a", 1), 0, frozen=True))
    assert stage.phase("a") is Phase.HELD
    assert stage.job("a").frozen == stage.on(0)
    assert stage.state.occupancy.free_host[0] != host
    stage.tell(e.JobReleased("a"))
    assert stage.phase("a") is Phase.SUSPENDED
    assert stage.plan(a.Resume("a", stage.on(0))) == [a.Thaw(Run("a", 1))]


def test_released_before_it_has_left_it_is_suspended_and_asked_about() -> None:
    stage = Strings().running("a", 0)
    stage.tell(e.JobHeld("a"))
    stage.tell(e.JobReleased("a"))
    assert stage.phase("a") is Phase.SUSPENDING
    stage.tell(e.RunSuspended(Run("a", 1), 0))
    assert stage.phase("a") is Phase.SUSPENDED
    assert stage.last is not None
    assert stage.last.planned, "in the same instant, but it was not the policy's plan"


def test_a_job_that_is_on_its_way_out_is_held_when_it_is_off() -> None:
    stage = Strings().running("a", 0)
    stage.plan(a.Suspend("a"))
    assert stage.tell(e.JobHeld("a")) == []
    assert stage.phase("a") is Phase.SUSPENDING
    stage.tell(e.RunSuspended(Run("a", 1), 0))
    assert stage.phase("a") is Phase.HELD
    assert stage.job("a").preemptions == 1


def test_a_promised_launch_is_taken_back() -> None:
    stage = Strings("1x1").running("a", 0).submit("b")
    stage.plan(a.Suspend("a"), a.Start("b", stage.on(0)))
    assert stage.phase("b") is Phase.STARTING
    assert stage.tell(e.JobHeld("b")) == []
    assert stage.phase("b") is Phase.HELD
    assert not stage.state.pending_launches
    assert stage.tell(e.RunSuspended(Run("a", 1), 0)) == []


@pytest.mark.parametrize("is_off", [False, True], ids=["on its way", "arrived"])
def test_a_moving_job_gives_up_where_it_went(*, is_off: bool) -> None:
    stage = Strings("1x2").running("a", 0).running("b", 1)
    stage.plan(a.Suspend("b"), a.Migrate("a", stage.on(1)))
    if is_off:
        stage.tell(e.RunSuspended(Run("a", 1), 5))
        assert stage.phase("a") is Phase.STARTING, "promised: b is still there"
    stage.tell(e.JobHeld("a"))
    if not is_off:
        stage.tell(e.RunSuspended(Run("a", 1), 5))
    assert stage.phase("a") is Phase.HELD
    assert stage.job("a").placement is None
    assert stage.tell(e.RunSuspended(Run("b", 1), 5)) == []


LOST = {
    "lost": lambda run: e.RunLost(run, 7),
    "failed": lambda run: e.RunFailed(run, 7),
}


@pytest.mark.parametrize("fact", LOST.values(), ids=LOST)
@pytest.mark.parametrize("is_frozen", [False, True], ids=["while it leaves", "while frozen"])
def test_whatever_becomes_of_its_run_it_stays_held(fact: object, *, is_frozen: bool) -> None:
    stage = Strings(can_freeze=is_frozen).running("a", 0)
    stage.tell(e.JobHeld("a"))
    if is_frozen:
        stage.tell(e.RunSuspended(Run("a", 1), 50, frozen=True))
    stage.tell(fact(Run("a", 1)))  # type: ignore[operator]
    assert stage.phase("a") is Phase.HELD
    assert stage.job("a").work == 7
    assert stage.job("a").frozen is None
    stage.tell(e.JobReleased("a"))
    assert stage.phase("a") is Phase.SUSPENDED


def test_a_held_job_can_be_cancelled() -> None:
    stage = Strings(can_freeze=True).submit("a").running("b", 0)
    stage.tell(e.JobHeld("a"), e.JobHeld("b"))
    stage.tell(e.RunSuspended(Run("b", 1), 0, frozen=True))
    assert stage.tell(e.JobWithdrawn("a"), e.JobWithdrawn("b")) == [a.Kill(Run("b", 1))]
    assert stage.last is not None
    assert stage.last.ended_unsuccessfully == [("a", Phase.CANCELLED)]
    stage.tell(e.RunStopped(Run("b", 1)))
    assert not stage.state.jobs
    assert not stage.state.on_hold


def test_a_reservation_of_a_held_job_is_dropped() -> None:
    stage = Strings().submit("a", 4)
    stage.plan(a.Reserve("a", stage.on(0, 1).slices))
    stage.tell(e.JobHeld("a"))
    assert not stage.state.reservations
    assert stage.refused(a.Reserve("a", stage.on(0, 1).slices))


def test_held_jobs_do_not_count_in_the_job_time_integral() -> None:
    stage = Strings().submit("a").submit("b")
    stage.tell(e.JobHeld("a"))
    stage.later(10).tell(e.JobReleased("a"))
    stage.later(1).tell()
    view = stage.controller.view
    assert view.job_time_during(stage.job("b")) == 10_000 + 2_000
    assert view.job_time_during(stage.job("a")) == 2_000, "its time begins when it may run"


def test_what_changes_nothing() -> None:
    stage = Strings().submit("a").running("b", 0)
    assert stage.tell(e.JobReleased("a"), e.JobReleased("nobody"), e.JobHeld("nobody")) == []
    stage.tell(e.JobHeld("a"))
    assert stage.tell(e.JobHeld("a")) == []
    stage.tell(e.JobWithdrawn("b"))
    assert stage.tell(e.JobHeld("b")) == []
    assert stage.phase("b") is Phase.STOPPING


def test_a_frozen_run_is_halted_where_no_job_could_run_otherwise() -> None:
    """The first in line does not fit beside what is frozen, and that one is behind it in line."""
    topology = cluster("1x1")
    controller = Controller(topology, a_policy("fifo"), can_freeze=True)
    host = topology.nodes[0].memory
    greedy = Demand(Shape(1), 1, 1, host_memory=host)
    run = Run("b", 1)
    controller.step(0, [e.JobSubmitted(a_job("a", greedy), held=True)])
    controller.step(1, [e.JobSubmitted(a_job("b", at_s=1))])
    controller.step(2, [e.RunStarted(run, NOMINAL)])
    controller.step(3, [e.JobHeld("b")])
    controller.step(4, [e.RunSuspended(run, 5, frozen=True)])
    decision = controller.step(5, [e.JobReleased("a"), e.JobReleased("b")])
    assert decision.orders == [a.Halt(run)]
    assert controller.step(6, []).orders == (), "once"
    (launch,) = controller.step(7, [e.RunSuspended(run, 6)]).orders
    assert launch.run == Run("a", 1)
    check(controller.state)
