"""Delays before retries: a job is hidden until its time, which the core itself remembers."""

from __future__ import annotations

from tests.unit.core.stage import Strings
from trainmaster.core.lifecycle import Phase
from trainmaster.core.snapshot import restored, snapshot_of
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.units import HOUR, NOMINAL, SECOND


def test_a_delayed_retry_is_hidden_until_its_time_and_wakes_the_controller_then() -> None:
    world = Strings().running("a", 0)
    world.later(5).tell(e.RunFailed(world.run("a"), retry_in_ms=4 * SECOND))
    assert world.last is not None
    assert (world.phase("a"), world.last.wake_at) == (Phase.HELD, 9 * SECOND)
    assert "a" not in world.controller.view.jobs
    world.later(3).tell()
    assert world.phase("a") is Phase.HELD
    world.later(1).tell()
    assert (world.phase("a"), world.job("a").retry_at_ms) == (Phase.PENDING, None)
    world.start("a", 0)
    assert world.job("a").attempt == 2


def test_a_delay_and_a_hold_by_the_owner_do_not_end_each_other() -> None:
    world = Strings().running("a", 0)
    world.tell(e.RunLost(world.run("a"), retry_in_ms=4 * SECOND))
    world.later(1).tell(e.JobHeld("a"))
    world.later(1).tell(e.JobReleased("a"))
    assert world.phase("a") is Phase.HELD
    world.tell(e.JobHeld("a"))
    world.later(5).tell()
    assert (world.phase("a"), world.job("a").retry_at_ms) == (Phase.HELD, None)
    world.tell(e.JobReleased("a"))
    assert "a" in world.controller.view.jobs


def test_a_delayed_job_can_be_cancelled() -> None:
    world = Strings().running("a", 0)
    world.tell(e.RunLost(world.run("a"), retry_in_ms=HOUR))
    world.tell(e.JobWithdrawn("a"))
    assert not world.state.jobs
    assert not world.state.delayed


def test_a_delay_survives_a_snapshot() -> None:
    world = Strings().running("a", 0)
    world.tell(e.RunLost(world.run("a"), retry_in_ms=4 * SECOND))
    body = snapshot_of(world.controller)
    again = restored(body, world.topology, world.script, can_freeze=False).controller
    assert again.next_step_at == 4 * SECOND
    assert again.step(4 * SECOND, []).planned
    assert again.state.jobs["a"].phase is Phase.PENDING
    assert snapshot_of(world.controller) == body


def test_a_job_lost_for_good_has_failed() -> None:
    world = Strings().running("a", 0)
    world.tell(e.RunLost(world.run("a"), retryable=False))
    assert world.last is not None
    assert world.last.ended_unsuccessfully == [("a", Phase.FAILED)]


def lose(world: Strings, attempt: int, work: int = 0) -> None:
    world.tell(e.RunLost(world.run("a", attempt), work=work))


def test_losses_count_until_there_is_progress_or_a_failure_of_its_own() -> None:
    world = Strings().submit("a", retries=3)
    for attempt in (1, 2):
        world.start("a", 0)
        lose(world, attempt)
    assert world.job("a").losses == 2
    world.start("a", 0).later(5).tell(e.RunSaved(world.run("a", 3), 5 * SECOND * NOMINAL))
    lose(world, 3, 5 * SECOND * NOMINAL)
    assert world.job("a").losses == 1
    world.start("a", 0).tell(e.RunFailed(world.run("a", 4)))
    assert world.job("a").losses == 0
    for attempt in (5, 6):
        world.start("a", 0).later(3600)
        lose(world, attempt)
    assert world.job("a").losses == 1


def test_a_frozen_run_that_is_lost_while_its_job_is_held_keeps_both() -> None:
    world = Strings(can_freeze=True).running("a", 0)
    world.later(1).tell(e.JobHeld("a"))
    world.tell(e.RunSuspended(world.run("a"), NOMINAL, frozen=True))
    assert world.phase("a") is Phase.HELD
    world.tell(e.RunLost(world.run("a"), retry_in_ms=4 * SECOND))
    world.tell(e.JobReleased("a"))
    assert world.phase("a") is Phase.HELD
    world.later(4).tell()
    assert world.phase("a") is Phase.PENDING
    world.plan(a.Start("a", world.on(1)))
