"""Runs that go on by the orders of a store that is gone: the state follows what exists."""

from __future__ import annotations

from tests.builders import a_job
from tests.unit.core.stage import Strings
from tests.unit.core.test_slots import slots
from trainmaster.core.lifecycle import Phase
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Run
from trainmaster.model.units import NOMINAL


def found(stage: Strings, name: str, attempt: int, *gpus: int, frozen: bool = False) -> e.Event:
    return e.RunAdopted(Run(name, attempt), stage.on(*gpus), NOMINAL, frozen)


def four() -> Strings:
    return Strings(slots(count=4), can_freeze=True)


def test_an_unknown_job_is_where_its_run_is_and_nothing_is_ordered() -> None:
    stage = four()
    submitted = e.JobSubmitted(a_job("a", 2), attempts=3, first_start_ms=0)
    assert stage.tell(submitted, found(stage, "a", 3, 1, 2)) == []
    assert (stage.phase("a"), stage.job("a").placement) == (Phase.RUNNING, stage.on(1, 2))
    assert stage.job("a").run == Run("a", 3)
    stage.later(5)
    assert stage.tell(e.JobWithdrawn("a")) == [a.Kill(Run("a", 3))]


def test_a_frozen_one_waits_and_is_thawed_by_the_policy() -> None:
    stage = four()
    submitted = e.JobSubmitted(a_job("a", 1), attempts=1)
    assert stage.tell(submitted, found(stage, "a", 1, 0, frozen=True)) == []
    assert (stage.phase("a"), stage.job("a").frozen) == (Phase.SUSPENDED, stage.on(0))
    assert stage.state.occupancy.free_gpus == [4]
    assert stage.plan(a.Resume("a", stage.on(0))) == [a.Thaw(Run("a", 1))]
    stage.tell(e.RunResumed(Run("a", 1), NOMINAL))
    assert stage.phase("a") is Phase.RUNNING


def test_jobs_that_have_changed_places_since_are_where_they_are_now() -> None:
    stage = four().running("a", 0).running("b", 1)
    stage.tell(found(stage, "a", 1, 1), found(stage, "b", 2, 0))
    assert stage.job("a").placement == stage.on(1)
    assert stage.job("b").placement == stage.on(0)
    assert stage.job("b").run == Run("b", 2)
    assert {stage.phase("a"), stage.phase("b")} == {Phase.RUNNING}


def test_a_job_that_ran_is_frozen_and_one_that_was_frozen_runs_now() -> None:
    stage = four().running("a", 0).running("b", 1)
    stage.plan(a.Suspend("b"))
    stage.tell(e.RunSuspended(Run("b", 1), 5, frozen=True))
    assert stage.tell(found(stage, "a", 1, 0, frozen=True), found(stage, "b", 1, 0)) == []
    assert (stage.phase("a"), stage.job("a").frozen) == (Phase.SUSPENDED, stage.on(0))
    assert (stage.phase("b"), stage.job("b").placement) == (Phase.RUNNING, stage.on(0))
    assert stage.job("b").frozen is None


def test_a_start_that_is_on_its_way_gives_way() -> None:
    stage = four().running("a", 0).submit("b").submit("c")
    stage.plan(a.Suspend("a"), a.Start("b", stage.on(0)))
    assert stage.phase("b") is Phase.STARTING  # it waits for `a` to leave
    stage.tell(found(stage, "c", 1, 0))
    assert (stage.phase("b"), stage.phase("c")) == (Phase.PENDING, Phase.RUNNING)
    stage.tell(e.RunSuspended(Run("a", 1), 5, frozen=True))
    assert stage.phase("a") is Phase.SUSPENDED


def test_a_slot_is_only_a_number() -> None:
    """Two that were told the same one: the second has another from now on."""
    stage = four()
    jobs = [e.JobSubmitted(a_job(name, 1), attempts=1) for name in ("a", "b")]
    orders = stage.tell(*jobs, found(stage, "a", 1, 0), found(stage, "b", 1, 0))
    assert orders == [a.Rebind(Run("b", 1), stage.on(1))]
    assert stage.job("b").placement == stage.on(1)


def test_where_there_is_no_room_it_is_stopped_in_memory() -> None:
    stage = Strings(slots(count=1), can_freeze=True)
    jobs = [e.JobSubmitted(a_job(name, 1), attempts=1) for name in ("a", "b")]
    orders = stage.tell(*jobs, found(stage, "a", 1, 0), found(stage, "b", 1, 0))
    assert orders == [a.Freeze(Run("b", 1))]
    stage.tell(e.RunSuspended(Run("b", 1), 5, frozen=True))
    assert (stage.phase("a"), stage.phase("b")) == (Phase.RUNNING, Phase.SUSPENDED)


def test_one_that_its_user_suspended_stays_held() -> None:
    stage = four()
    held = e.JobSubmitted(a_job("a", 1), held=True, attempts=1)
    assert stage.tell(held, found(stage, "a", 1, 0, frozen=True)) == []
    assert stage.phase("a") is Phase.HELD
    assert stage.plan() == []
    stage.tell(e.JobReleased("a"))
    assert stage.plan(a.Resume("a", stage.on(0))) == [a.Thaw(Run("a", 1))]


def test_a_held_job_whose_run_goes_on_is_suspended() -> None:
    stage = four()
    held = e.JobSubmitted(a_job("a", 1), held=True, attempts=1)
    assert stage.tell(held, found(stage, "a", 1, 0)) == [a.Freeze(Run("a", 1))]
    stage.tell(e.RunSuspended(Run("a", 1), 5, frozen=True))
    assert stage.phase("a") is Phase.HELD


def test_an_older_attempt_or_a_job_that_is_being_ended_is_left_as_it_is() -> None:
    stage = four().running("a", 0).running("b", 1)
    stage.tell(e.JobWithdrawn("b"))
    stage.tell(found(stage, "a", 0, 3), found(stage, "b", 2, 3), found(stage, "unknown", 1, 3))
    assert stage.job("a").placement == stage.on(0)
    assert stage.phase("b") is Phase.STOPPING


def test_a_suspension_that_this_store_did_not_order_is_a_fact_all_the_same() -> None:
    stage = four().running("a", 0).running("b", 1)
    stage.later(5).tell(e.RunSuspended(Run("a", 1), 5, frozen=True), e.RunSuspended(Run("b", 1), 7))
    assert (stage.phase("a"), stage.job("a").frozen) == (Phase.SUSPENDED, stage.on(0))
    assert (stage.phase("b"), stage.job("b").saved_work) == (Phase.SUSPENDED, 7)
    assert stage.state.occupancy.free_gpus == [4]
