"""Pre-runs: until one has passed a job asks for one device, and policies need not know why."""

from __future__ import annotations

import pytest

from tests.builders import a_job, fraction
from tests.unit.core.stage import Strings
from trainmaster.core.lifecycle import WAITING, Phase
from trainmaster.core.snapshot import restored, snapshot_of
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Part, Run, Shape, gpus
from trainmaster.model.units import HOUR, NOMINAL, SECOND, WHOLE


def submitted(
    size: int | Demand = 4, *, can_freeze: bool = False, cannot_save: bool = False, **job: object
) -> Strings:
    stage = Strings(can_freeze=can_freeze, cannot_save_at_first=cannot_save)
    stage.script.wake_at = HOUR
    stage.tell(e.JobSubmitted(a_job("a", size, **job), preflight=True))  # type: ignore[arg-type]
    return stage


def prerunning(**how: object) -> Strings:
    stage = submitted(**how)  # type: ignore[arg-type]
    orders = stage.plan(a.Start("a", stage.on(1)))
    assert orders == [a.Launch(Run("a", 1), stage.on(1), 0, is_prerun=True)]
    stage.started("a")
    return stage


def test_it_asks_for_one_device_until_it_has_passed_and_then_for_all() -> None:
    stage = prerunning(cannot_save=True)
    assert stage.refused(a.Start("a", stage.on(0, 1, 2, 3))) == [("a", stage.last.refusals[0].why)]  # type: ignore[union-attr]
    stage.later(9).tell(e.RunPassed(Run("a", 1)))
    job = stage.job("a")
    assert (stage.phase("a"), job.demand, job.cannot_save) == (Phase.PENDING, gpus(4), True)
    assert (job.failures, job.preemptions, job.work) == (0, 0, 0)
    assert job.attained == 9 * SECOND * WHOLE
    orders = stage.plan(a.Start("a", stage.on(0, 1, 2, 3)))
    assert orders == [a.Launch(Run("a", 2), stage.on(0, 1, 2, 3), 0)]


@pytest.mark.parametrize(
    ("demand", "is_prerun"),
    [
        (gpus(2), True),
        (gpus(4, minimum=2, maximum=8), True),
        (gpus(1), False),
        (fraction(0.5), False),
        (Demand(Shape(2, share=500), 2, 2), False),
        (Demand(Shape(2, parts=(Part(500, 0), Part(500, 0))), 2, 2), False),
    ],
)
def test_which_jobs_have_one(demand: Demand, is_prerun: bool) -> None:
    record = submitted(demand).job("a")
    assert record.is_prerun is is_prerun
    assert record.demand == (demand.on_one_device() if is_prerun else demand)
    assert record.demand.nominal.count == 1 or not is_prerun


def test_a_failed_one_is_a_failed_run_and_is_tried_again_on_one_device() -> None:
    stage = prerunning(retries=1)
    stage.tell(e.RunFailed(Run("a", 1)))
    assert (stage.phase("a"), stage.job("a").failures) == (Phase.PENDING, 1)
    assert stage.plan(a.Start("a", stage.on(2)))[0].is_prerun  # type: ignore[union-attr]
    stage.tell(e.RunFailed(Run("a", 2)))
    assert not stage.state.jobs


def test_a_preempted_one_is_ended_and_begins_again() -> None:
    stage = prerunning(can_freeze=True, cannot_save=True)
    assert stage.later(5).plan(a.Suspend("a")) == [a.Halt(Run("a", 1))]
    stage.tell(e.RunSuspended(Run("a", 1), 0))
    assert (stage.job("a").endings, stage.job("a").lost_work) == (0, 0)
    orders = stage.plan(a.Resume("a", stage.on(0)))
    assert orders == [a.Launch(Run("a", 2), stage.on(0), 0, is_prerun=True)]
    assert stage.job("a").is_protected, "once is enough"
    stage.started("a")
    stage.tell(e.RunPassed(Run("a", 2)))
    assert not stage.job("a").is_protected


def test_what_it_saves_is_not_the_jobs_work() -> None:
    stage = prerunning(cannot_save=True)
    stage.later(5).tell(e.RunSaved(Run("a", 1), 5 * SECOND * NOMINAL))
    stage.tell(e.RunLost(Run("a", 1), work=5 * SECOND * NOMINAL))
    assert stage.plan(a.Start("a", stage.on(0)))[0].work == 0  # type: ignore[union-attr]


def test_one_that_passes_while_its_owner_holds_or_cancels_it() -> None:
    stage = prerunning()
    stage.tell(e.JobHeld("a"))
    stage.tell(e.RunPassed(Run("a", 1)))
    assert (stage.phase("a"), stage.job("a").demand) == (Phase.HELD, gpus(4))
    stage.tell(e.JobReleased("a"))
    assert stage.phase("a") in WAITING
    stage = prerunning()
    assert stage.tell(e.JobWithdrawn("a")) == [a.Kill(Run("a", 1))]
    stage.tell(e.RunPassed(Run("a", 1)))
    assert not stage.state.jobs


def test_it_is_waived_while_it_waits_and_goes_on_while_it_runs() -> None:
    stage = submitted()
    stage.tell(e.PrerunWaived("a"))
    assert stage.job("a").demand == gpus(4)
    stage = prerunning()
    stage.tell(e.PrerunWaived("a"))
    assert stage.job("a").is_prerun
    stage.tell(e.RunPassed(Run("a", 1)))
    assert not stage.job("a").is_prerun


def test_a_changed_demand_and_measured_splits_wait_for_it_too() -> None:
    stage = submitted()
    split = Shape(2, parts=(Part(500, 0), Part(500, 0)))
    stage.tell(e.JobProfiled("a", splits=(split,)))
    assert (stage.job("a").demand.nominal.count, stage.job("a").demand.splits) == (1, ())
    stage.tell(e.JobChanged(a_job("a", 2)))
    assert stage.job("a").demand.nominal.count == 1
    stage.tell(e.PrerunWaived("a"))
    assert stage.job("a").demand == gpus(2)


def test_it_survives_a_snapshot() -> None:
    stage = prerunning()
    body = snapshot_of(stage.controller)
    again = restored(body, stage.topology, stage.script, can_freeze=False).controller
    assert again.state.jobs["a"].is_prerun
    again.step(stage.now, [e.RunPassed(Run("a", 1))])
    assert again.state.jobs["a"].demand == gpus(4)


def test_a_gang_that_is_found_running_has_passed_and_a_pre_run_that_is_found_goes_on() -> None:
    stage = submitted()
    stage.tell(e.RunAdopted(Run("a", 2), stage.on(0, 1, 2, 3), NOMINAL))
    assert (stage.phase("a"), stage.job("a").is_prerun) == (Phase.RUNNING, False)
    stage = submitted()
    stage.tell(e.RunAdopted(Run("a", 1), stage.on(3), NOMINAL, is_prerun=True))
    assert (stage.phase("a"), stage.job("a").is_prerun) == (Phase.RUNNING, True)
    stage.tell(e.RunPassed(Run("a", 1)))
    assert stage.job("a").demand == gpus(4)


def test_stored_orders_are_followed() -> None:
    stage = submitted()
    stage.controller.begin_following()
    placement = stage.on(0, 1, 2, 3)
    stage.controller.follow(stage.now, [], [a.Launch(Run("a", 1), stage.on(0), 0, is_prerun=True)])
    assert stage.job("a").is_prerun
    passed = [e.RunPassed(Run("a", 1))]
    stage.controller.follow(stage.now, passed, [a.Launch(Run("a", 2), placement, 0)])
    assert (stage.job("a").placement, stage.job("a").is_prerun) == (placement, False)


def test_a_device_on_which_it_failed_is_not_avoided_where_it_needs_all() -> None:
    stage = prerunning(size=8, retries=1)
    stage.tell(e.RunFailed(Run("a", 1), avoid=((0, 1),)))
    assert stage.job("a").demand.must_avoid
    stage.plan(a.Start("a", stage.on(2)))
    stage.started("a")
    stage.tell(e.RunPassed(Run("a", 2)))
    assert (stage.job("a").demand.avoid, stage.job("a").demand.must_avoid) == ((1,), False)
    stage.plan(a.Start("a", stage.on(*range(8))))
