"""Stored orders carried into the state, kind by kind: what was ordered counts, whatever the rules are now."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.builders import a_job
from tests.policies.cases import Scripted
from tests.unit.core.stage import Strings
from tests.unit.core.test_slots import slots
from trainmaster.core.followed_orders import FOLLOWERS, Followed, drop
from trainmaster.core.invariants import check
from trainmaster.core.lifecycle import Phase
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Run, Shape
from trainmaster.model.units import NOMINAL

A1 = Run("a", 1)


def on_slots(*, can_freeze: bool = True, count: int = 4) -> Strings:
    return Strings(slots(count=count), can_freeze=can_freeze)


def followed(stage: Strings, *orders: a.Order, facts: Sequence[e.Event] = ()) -> Followed:
    stage.controller.begin_following()
    found = stage.controller.follow(stage.now, facts, orders)
    stage.controller.decide_by(Scripted())
    check(stage.state)
    return found


def frozen_a(stage: Strings) -> Strings:
    stage.running("a", 0).plan(a.Suspend("a"))
    stage.tell(e.RunSuspended(A1, 5, frozen=True))
    return stage


def test_every_kind_of_order_has_its_function() -> None:
    assert set(FOLLOWERS) == set(a.Order.__args__)  # type: ignore[attr-defined]


def test_launch() -> None:
    stage = on_slots().submit("a").later(3)
    assert followed(stage, a.Launch(Run("a", 3), stage.on(1), 7)) == ([], [], [])
    job = stage.job("a")
    assert (job.phase, job.run, job.placement) == (Phase.STARTING, Run("a", 3), stage.on(1))
    assert (job.attempt, job.work, job.launched_ms) == (3, 7, 3_000)


def test_a_launch_on_gpus_that_another_job_was_promised_revokes_that() -> None:
    stage = on_slots(can_freeze=False).running("a", 0).submit("b").submit("c")
    stage.plan(a.Suspend("a"), a.Start("b", stage.on(0)))
    assert stage.phase("b") is Phase.STARTING
    followed(stage, a.Launch(Run("c", 1), stage.on(0), 0), facts=[e.RunSuspended(A1, 5)])
    assert (stage.phase("b"), stage.phase("c")) == (Phase.PENDING, Phase.STARTING)
    assert stage.state.pending_launches == {}


def test_a_launch_of_a_job_that_is_not_known_to_have_left() -> None:
    stage = on_slots().running("a", 0)
    followed(stage, a.Launch(Run("a", 2), stage.on(1), 4))
    job = stage.job("a")
    assert (job.phase, job.run, job.placement) == (Phase.STARTING, Run("a", 2), stage.on(1))


@pytest.mark.parametrize("can_freeze", [True, False])
def test_freeze_and_halt_are_as_they_were_ordered(can_freeze: bool) -> None:
    for order, is_frozen in ((a.Freeze(A1), True), (a.Halt(A1), False)):
        stage = on_slots(can_freeze=can_freeze).running("a", 0).later(2)
        place = stage.job("a").placement
        assert place is not None
        assert followed(stage, order) == ([], [], [])
        job = stage.job("a")
        assert (job.phase, job.placement) == (Phase.SUSPENDING, None)
        assert job.frozen == (place if is_frozen else None)
        assert job.suspend_ordered_ms == 2_000
        assert stage.state.leaving == {A1: place.slices}


@pytest.mark.parametrize("can_freeze", [True, False])
def test_a_run_that_is_to_be_held_is_suspended_as_it_was_then(can_freeze: bool) -> None:
    for order, is_frozen in ((a.Freeze(A1), True), (a.Halt(A1), False)):
        stage = on_slots(can_freeze=can_freeze).running("a", 0)
        assert followed(stage, order, facts=[e.JobHeld("a")]) == ([], [], [])
        job = stage.job("a")
        assert (job.phase, job.frozen is not None, job.is_held) == (
            Phase.SUSPENDING,
            is_frozen,
            True,
        )


def test_halt_of_a_frozen_run() -> None:
    stage = frozen_a(on_slots())
    followed(stage, a.Halt(A1))
    assert stage.phase("a") is Phase.SUSPENDED
    assert A1 in stage.state.leaving
    followed(stage, facts=[e.RunSuspended(A1, 5)])
    assert stage.job("a").frozen is None
    assert stage.state.leaving == {}


def test_thaw_in_place_and_on_other_slots() -> None:
    for place in (None, 2):
        stage = frozen_a(on_slots()).later(1)
        where = None if place is None else stage.on(place)
        assert followed(stage, a.Thaw(A1, where)) == ([], [], [])
        job = stage.job("a")
        assert (job.phase, job.run, job.frozen) == (Phase.STARTING, A1, None)
        assert job.placement == (where or stage.on(0))
        assert job.launched_ms == 1_000


def test_rebind_in_a_swap() -> None:
    stage = on_slots().running("a", 0).running("b", 1)
    followed(stage, a.Rebind(A1, stage.on(1)), a.Rebind(Run("b", 1), stage.on(0)))
    assert [stage.job(name).placement for name in "ab"] == [stage.on(1), stage.on(0)]
    assert [stage.phase(name) for name in "ab"] == [Phase.RUNNING] * 2


def test_reshape() -> None:
    stage = on_slots().submit("a", Demand(Shape(2), 1, 3)).start("a", 0, 1)
    followed(stage, a.Reshape(A1, stage.on(1, 2)))
    job = stage.job("a")
    assert (job.phase, job.placement) == (Phase.RESIZING, stage.on(1, 2))
    assert stage.state.leaving == {A1: stage.on(0).slices}


def test_kill_by_a_policy_and_by_its_owner() -> None:
    for facts in ([], [e.JobWithdrawn("a")]):
        stage = on_slots().running("a", 0)
        assert followed(stage, a.Kill(A1), facts=facts) == ([], [], [])
        assert stage.phase("a") is Phase.STOPPING
        followed(stage, facts=[e.RunStopped(A1)])
        assert "a" not in stage.state.jobs


def test_adopted_runs_are_where_they_were_found() -> None:
    stage = on_slots().running("a", 0).running("b", 1)
    followed(stage, a.Rebind(A1, stage.on(1)), a.Rebind(Run("b", 1), stage.on(0)))
    found = [
        e.JobSubmitted(a_job("c"), attempts=3),
        e.RunAdopted(Run("c", 3), stage.on(2), NOMINAL),
        e.JobSubmitted(a_job("d"), attempts=2),
        e.RunAdopted(Run("d", 2), stage.on(3), NOMINAL, frozen=True),
    ]
    assert followed(stage, facts=found) == ([], [], [])
    assert [stage.phase(name) for name in "abcd"] == [Phase.RUNNING] * 3 + [Phase.SUSPENDED]
    assert stage.job("c").placement == stage.on(2)
    assert stage.job("d").frozen == stage.on(3)


def test_an_order_that_a_fact_causes_only_today_is_named() -> None:
    stage = on_slots().running("a", 0)
    found = followed(stage, facts=[e.JobHeld("a")])
    assert found.unstored == [a.Freeze(A1)]


def test_a_run_on_devices_that_are_not_here_is_lost_and_its_attempt_counts() -> None:
    elsewhere = on_slots(count=6)
    stage = on_slots().submit("a").running("b", 1)
    orders = a.Launch(Run("a", 2), elsewhere.on(5), 0), a.Rebind(Run("b", 1), elsewhere.on(4))
    assert followed(stage, *orders).lost == [Run("a", 2), Run("b", 1)]
    assert [stage.phase(name) for name in "ab"] == [Phase.PENDING] * 2
    assert (stage.job("a").attempt, stage.job("b").attempt) == (2, 1)


def test_what_has_no_place_is_named_and_nothing_breaks() -> None:
    stage = on_slots().running("a", 0)
    found = followed(stage, a.Thaw(A1), a.Kill(Run("nobody", 1)), a.Freeze(Run("a", 9)))
    assert len(found.misfits) == 3
    assert stage.phase("a") is Phase.RUNNING


def test_after_following_the_policy_is_asked_and_reservations_are_gone() -> None:
    stage = on_slots().submit("a")
    stage.plan(a.Reserve("a", stage.on(0).slices))
    followed(stage)
    assert stage.state.reservations == {}
    assert stage.controller.step(stage.now, ()).planned


@pytest.mark.parametrize("name", ["runs", "frozen", "held", "waits"])
def test_a_job_that_has_ended_is_dropped_whatever_it_did(name: str) -> None:
    stage = frozen_a(on_slots()) if name == "frozen" else on_slots()
    if name == "runs":
        stage.running("a", 0)
    elif name != "frozen":
        stage.submit("a")
    if name == "held":
        stage.tell(e.JobHeld("a"))
    drop(stage.state, stage.job("a"), stage.now)
    assert stage.state.jobs == {}
    check(stage.state)
