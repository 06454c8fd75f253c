"""What is durable of a job: its last checkpoint, wherever the fact came from."""

from __future__ import annotations

from tests.unit.core.stage import Strings
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.units import NOMINAL, SECOND

TEN = 10 * SECOND * NOMINAL
"""Work of ten seconds."""


def durable(world: Strings, name: str = "a") -> tuple[int, int]:
    record = world.job(name)
    return record.saved_work, record.saved_ms


def unsaved(world: Strings) -> int:
    """Work that is gone if the run of `a` is."""
    record = world.job("a")
    return record.work_at(world.now) - record.saved_work


def test_what_a_run_was_launched_from_counts_as_saved_at_its_start() -> None:
    world = Strings("1x1").submit("a").later(7).start("a", 0)
    assert durable(world) == (0, 7 * SECOND)
    world.later(10)
    assert unsaved(world) == TEN


def test_a_save_is_remembered_with_its_time() -> None:
    world = Strings("1x1").running("a", 0).later(10)
    world.tell(e.RunSaved(world.run("a"), TEN))
    assert durable(world) == (TEN, 10 * SECOND)
    world.later(2)
    assert unsaved(world) == 2 * SECOND * NOMINAL


def test_a_save_of_an_old_attempt_is_ignored() -> None:
    world = Strings("1x1").running("a", 0).later(10)
    world.tell(e.RunLost(world.run("a"), 0))
    world.start("a", 0)
    world.tell(e.RunSaved(world.run("a", 1), TEN))
    assert durable(world) == (0, 10 * SECOND)


def test_a_suspension_that_saves_makes_all_of_it_durable() -> None:
    world = Strings("1x1").running("a", 0).later(10)
    world.plan(a.Suspend("a"))
    world.tell(e.RunSuspended(world.run("a"), TEN))
    assert durable(world) == (TEN, 10 * SECOND)


def test_a_suspension_that_falls_back_leaves_what_was_saved_before() -> None:
    world = Strings("1x1").running("a", 0).later(10)
    world.tell(e.RunSaved(world.run("a"), TEN))
    world.later(5).plan(a.Suspend("a"))
    world.tell(e.RunSuspended(world.run("a"), TEN))
    assert durable(world) == (TEN, 10 * SECOND)
    assert world.job("a").work == TEN


def test_frozen_work_is_not_durable_and_thawing_saves_nothing() -> None:
    world = Strings("1x2", can_freeze=True).running("a", 0).later(10)
    world.plan(a.Suspend("a"))
    world.tell(e.RunSuspended(world.run("a"), TEN, frozen=True))
    assert durable(world) == (0, 0)
    world.later(5).plan(a.Resume("a", world.on(0)))
    world.tell(e.RunResumed(world.run("a"), NOMINAL))
    assert durable(world) == (0, 0)
    assert unsaved(world) == TEN


def test_a_failure_that_keeps_nothing_leaves_nothing_durable() -> None:
    world = Strings("1x1").running("a", 0).later(10)
    world.tell(e.RunSaved(world.run("a"), TEN), e.RunFailed(world.run("a"), 0))
    assert durable(world)[0] == 0
