"""Runs that go on by the orders of a store that is gone: the state follows what exists."""

from __future__ import annotations

import pytest

from tests.builders import a_job
from tests.unit.core.stage import Strings
from tests.unit.core.test_slots import slots
from trainmaster.core.lifecycle import Phase
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Run, Shape
from trainmaster.model.topology import Topology
from trainmaster.model.units import HOUR, NOMINAL, WHOLE


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
    stage.script.wake_at = HOUR
    stage.later(5).tell(e.RunSuspended(Run("a", 1), 5, frozen=True), e.RunSuspended(Run("b", 1), 7))
    assert (stage.phase("a"), stage.job("a").frozen) == (Phase.SUSPENDED, stage.on(0))
    assert (stage.phase("b"), stage.job("b").saved_work) == (Phase.SUSPENDED, 7)
    assert stage.state.occupancy.free_gpus == [4]


HALF = Demand(Shape(1, share=WHOLE // 2), 1, 1)


@pytest.mark.parametrize("devices", [slots(count=2), "1x2"], ids=["slots", "GPUs"])
@pytest.mark.parametrize("can_freeze", [True, False])
def test_a_neighbour_that_leaves_room_goes_on(devices: str | Topology, can_freeze: bool) -> None:
    stage = Strings(devices, can_freeze=can_freeze)
    half = stage.on(0, share=WHOLE // 2, sharing=HALF.mode)
    stage.submit("a", HALF).start("a", 0, share=WHOLE // 2, sharing=HALF.mode)
    submitted = e.JobSubmitted(a_job("b", HALF), attempts=1)
    assert stage.tell(submitted, e.RunAdopted(Run("b", 1), half, NOMINAL, False)) == []
    assert [stage.job(name).placement for name in "ab"] == [half, half]
    assert {stage.phase("a"), stage.phase("b")} == {Phase.RUNNING}


def test_only_as_many_neighbours_are_suspended_as_must_be() -> None:
    stage = Strings("1x1")
    how = {"share": WHOLE // 2, "sharing": HALF.mode}
    for name in "ab":
        stage.submit(name, HALF).start(name, 0, **how)
    submitted = e.JobSubmitted(a_job("c", HALF), attempts=1)
    adopted = e.RunAdopted(Run("c", 1), stage.on(0, **how), NOMINAL, False)
    assert stage.tell(submitted, adopted) == [a.Halt(Run("a", 1))]
    assert {stage.phase("b"), stage.phase("c")} == {Phase.RUNNING}


def test_on_slots_no_neighbour_is_suspended_while_others_are_free() -> None:
    stage = four().running("a", 0)
    submitted = e.JobSubmitted(a_job("b", 1), attempts=1)
    assert stage.tell(submitted, found(stage, "b", 1, 0)) == [a.Rebind(Run("b", 1), stage.on(1))]
    assert stage.phase("a") is Phase.RUNNING


def test_on_a_gpu_a_neighbour_that_is_in_the_way_is_suspended() -> None:
    stage = Strings("1x2").running("a", 0)
    submitted = e.JobSubmitted(a_job("b", 1), attempts=1)
    assert stage.tell(submitted, found(stage, "b", 1, 0)) == [a.Halt(Run("a", 1))]
    assert (stage.phase("a"), stage.job("b").placement) == (Phase.SUSPENDING, stage.on(0))


def test_what_runs_on_a_drained_node_goes_on() -> None:
    stage = Strings("2x1")
    stage.tell(e.NodeDraining(0))
    submitted = e.JobSubmitted(a_job("a", 1), attempts=1)
    assert stage.tell(submitted, found(stage, "a", 1, 0)) == []
    assert (stage.phase("a"), stage.job("a").placement) == (Phase.RUNNING, stage.on(0))


def test_two_on_one_gpu_of_a_drained_node_are_not_both_kept() -> None:
    stage = Strings("2x1")
    stage.tell(e.NodeDraining(0))
    jobs = [e.JobSubmitted(a_job(name, 1), attempts=1) for name in "ab"]
    orders = stage.tell(*jobs, found(stage, "a", 1, 0), found(stage, "b", 1, 0))
    assert orders == [a.Halt(Run("b", 1))]


def test_what_was_reserved_for_it_is_free_again() -> None:
    stage = four().submit("a")
    stage.plan(a.Reserve("a", stage.on(3).slices, None))
    assert stage.state.occupancy.total_free() == 3
    stage.tell(found(stage, "a", 1, 0))
    assert not stage.state.reservations
    assert stage.state.occupancy.total_free() == 3


@pytest.mark.parametrize("gpu", [4, 7])
def test_a_run_on_devices_that_are_not_there_is_left_alone(gpu: int) -> None:
    """Those of a larger cluster, or of another node."""
    stage = Strings("1x4").submit("a").submit("b")
    larger = Strings("2x4")
    stage.tell(found(larger, "a", 1, gpu), found(stage, "b", 1, 3))
    assert (stage.phase("a"), stage.phase("b")) == (Phase.PENDING, Phase.RUNNING)
    moved = Strings("2x2").submit("a")
    moved.tell(found(stage, "a", 1, 3))
    assert moved.phase("a") is Phase.PENDING
