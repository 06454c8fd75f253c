"""What is remembered of inputs that could not be read."""

from __future__ import annotations

from tests.unit.core.stage import Strings
from trainmaster.core import input_facts
from trainmaster.core.snapshot import restored, snapshot_of
from trainmaster.model import events as e
from trainmaster.model.codec import dumps, loads
from trainmaster.model.inputs import MOST_FAILURES, InputBlock, InputFailure


def failed(job: str, path: str = "/d/x") -> e.InputFailed:
    return e.InputFailed(InputFailure(path, job, "ada", "a.py", "missing-file", 7))


def test_each_job_counts_once_and_the_newest_are_kept() -> None:
    world = Strings()
    for job in [*map(str, range(20)), "5"]:
        world.tell(failed(job))
    known = world.state.input_failures["/d/x"]
    assert len(known) == MOST_FAILURES
    assert [each.job for each in known][-2:] == ["19", "5"]
    for number in range(input_facts.MOST_PATHS):
        world.tell(failed("1", f"/d/{number}"))
    assert len(world.state.input_failures) == input_facts.MOST_PATHS
    assert "/d/x" not in world.state.input_failures


def test_blocks_survive_a_snapshot_and_a_return_forgets_all() -> None:
    world = Strings()
    block = InputBlock("/d/x", 9, (failed("1").failure,), "stamp")
    for event in (failed("1"), e.InputBlocked(block)):
        assert loads(dumps(event)) == event
        world.tell(event)
    body = snapshot_of(world.controller)
    again = restored(body, world.topology, world.script, can_freeze=False).controller.state
    assert again.input_blocks == {"/d/x": block}
    assert again.input_failures == world.state.input_failures
    world.tell(e.InputReturned("/d/x"))
    world.tell(e.InputReturned("/d/x"))
    assert (world.state.input_blocks, world.state.input_failures) == ({}, {})
