"""Jobs that name an input which is set aside are held, and released when it is back; nothing is launched."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.daemon.test_driver import RECIPE, QuietEngine, a_driver, run, waiting, wish_for
from trainmaster.core.lifecycle import Phase
from trainmaster.daemon.cluster_control import ClusterControl
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.live_job import Hold, LiveJob
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.daemon.self_tests import SelfTests
from trainmaster.daemon.service_api import NotFound
from trainmaster.failures.input_blocks import MISSING
from trainmaster.model import events as e
from trainmaster.model.engine_reports import Ended, Started
from trainmaster.model.failure import Failure
from trainmaster.model.inputs import InputFailure
from trainmaster.model.job import Run, gpus
from trainmaster.store.store import Store

BAD = "/data/train.rec"


def naming(id: str, *arguments: str, data: tuple[str, ...] = (), user: str = "ada") -> LiveJob:
    live = waiting(id)
    recipe = replace(RECIPE, command=("python", "a.py", *arguments), workdir="/data")
    live.job = replace(live.job, user=user, app="a.py")
    live.stored = replace(live.stored, recipe=recipe, data=data, job=live.job)
    return live


async def stepped(driver: Driver, *lives: LiveJob, times: int = 3) -> None:
    """Take jobs in, and all that follows."""
    if lives:
        asked = asyncio.create_task(driver.ask(wish_for(*lives)))
        await asyncio.sleep(0)
    for _ in range(times):
        await driver.step()
    if lives:
        await asked


def fail(driver: Driver, *who: str) -> None:
    """Jobs fail on the input, each given as `job user`."""
    for each in who:
        job, user = each.split()
        seen = InputFailure(BAD, job, user, "a.py", "missing-file", 5)
        driver.inbox.follow_up([LoggedEvent(e.InputFailed(seen))])


def test_jobs_wait_for_an_input_that_is_set_aside_until_it_is_unblocked(
    store: Store, tmp_path: Path
) -> None:
    async def scenario() -> None:
        driver = a_driver(store, tmp_path)
        first, other = naming("1", BAD), naming("2", "/data/other")
        await stepped(driver, first, other)
        fail(driver, "8 ada", "9 ada")
        await stepped(driver)
        assert not driver.inputs.blocks
        fail(driver, "7 bob")
        await stepped(driver)
        assert (first.holds, other.holds) == ({Hold.INPUT}, set())
        (found,) = driver.inputs.listed()
        assert (found.block.path, found.waiting) == (BAD, ("1",))
        reason = driver.inputs.reason(first)
        assert reason is not None
        assert (reason.detail, reason.failed) == (BAD, ("8", "9", "7"))
        assert [f"{BAD} is set aside" in note for note in driver.notes()] == [True]
        assert [" and 1 job waits for it:" in note for note in driver.notes()] == [True]
        assert driver.inputs.is_blocked(first.recipe, ())
        assert not driver.inputs.is_blocked(other.recipe, ("/data",))
        control = ClusterControl(driver, SelfTests(driver, tmp_path))
        with pytest.raises(NotFound, match="not set aside"):
            await control.unblock_input("/data/other")
        asked = asyncio.create_task(control.unblock_input("/data//train.rec"))
        await asyncio.sleep(0)
        await stepped(driver)
        assert await asked == BAD
        assert (first.holds, driver.inputs.listed()) == (set(), [])
        assert driver.inputs._return_of(first) == {"input": BAD, "because": "it was unblocked"}
        assert driver.inputs._return_of(other) == {}

    run(scenario)


def test_it_comes_back_when_it_has_changed(store: Store, tmp_path: Path) -> None:
    async def scenario() -> None:
        driver = a_driver(store, tmp_path)
        held = naming("1", data=(BAD,))
        held.holds.add(Hold.OWNER)
        await stepped(driver, held)
        fail(driver, "7 bob", "8 ada", "9 ada")
        await stepped(driver)
        assert held.holds == {Hold.OWNER, Hold.INPUT}
        for stamp, is_back in ((MISSING, False), (MISSING, False), ("5 6", True)):
            driver.inbox.follow_up(driver.inputs._looked_at(BAD, stamp))
            await stepped(driver)
            assert (BAD not in driver.inputs.blocks) is is_back
        assert held.holds == {Hold.OWNER}

    run(scenario)


async def is_unblocked(driver: Driver, folder: Path) -> None:
    asked = asyncio.create_task(
        ClusterControl(driver, SelfTests(driver, folder)).unblock_input(BAD)
    )
    await asyncio.sleep(0)
    await stepped(driver)
    await asked


def test_a_job_is_judged_by_the_inputs_of_the_moment_it_arrives(
    store: Store, tmp_path: Path
) -> None:
    """Not of the one at which it was read: making an array, or copying its code, takes a while."""

    async def scenario() -> None:
        driver = a_driver(store, tmp_path, QuietEngine)
        missed = naming("1", BAD)
        missed.job = replace(missed.job, demand=gpus(1))
        fail(driver, "7 bob", "8 ada", "9 ada")
        await stepped(driver)
        await stepped(driver, missed)
        assert missed.holds == {Hold.INPUT}
        assert missed.record is not None
        assert (missed.record.phase, missed.record.attempt) == (Phase.HELD, 0), "it never started"
        (submitted,) = store.story("1")
        assert '"held_for":["input"]' in submitted.detail_json
        found = driver.jobs["0"] = naming("0", BAD)
        adopted = LoggedEvent(e.JobSubmitted(found.job, attempts=1))
        assert list(driver.inputs.at_arrival([adopted])) == [adopted], "it may be running"
        del driver.jobs["0"]
        too_late, also_owners = naming("2", BAD), naming("3", BAD)
        too_late.holds.add(Hold.INPUT)
        also_owners.holds.update((Hold.INPUT, Hold.OWNER))
        await is_unblocked(driver, tmp_path)
        await stepped(driver, too_late, also_owners)
        assert [live.holds for live in (missed, too_late)] == [set(), set()]
        assert also_owners.holds == {Hold.OWNER}
        assert too_late.record is not None
        assert too_late.record.phase is Phase.PENDING
        (released,) = [row for row in store.story("2") if row.what == "released"]
        assert BAD in str(released)

    run(scenario)


def test_a_run_goes_on_when_its_input_is_set_aside_but_its_next_one_waits(
    store: Store, tmp_path: Path
) -> None:
    async def scenario() -> None:
        driver, live = a_driver(store, tmp_path, QuietEngine), naming("1", BAD)
        live.job = replace(live.job, demand=gpus(1), retries=2)
        await stepped(driver, live)
        driver.inbox.report(Started(Run("1", 1), driver.clock.now()), 2)
        fail(driver, "7 bob", "8 ada", "9 ada")
        await stepped(driver)
        assert live.record is not None
        assert (live.record.phase, live.holds) == (Phase.RUNNING, set())
        driver.inbox.report(Ended(Run("1", 1), driver.clock.now(), code=1), 3)
        await stepped(driver)
        assert (live.record.phase, live.holds) == (Phase.HELD, {Hold.INPUT})
        await is_unblocked(driver, tmp_path)
        assert live.holds == set()

    run(scenario)


def test_the_end_of_a_run_says_something_about_its_inputs(store: Store, tmp_path: Path) -> None:
    driver, live = a_driver(store, tmp_path), naming("1", BAD, data=("/data",))
    failure = Failure("missing-file", path="train.rec")
    failed = LoggedEvent(e.RunFailed(Run("1", 1), failure=failure))
    found = [logged.event for logged in driver.inputs.news(live, [failed])]
    assert [
        (each.failure.path, each.failure.user) for each in found if isinstance(each, e.InputFailed)
    ] == [(BAD, "ada"), ("/data", "ada")]
    done = [LoggedEvent(e.RunSucceeded(Run("1", 1)))]
    assert not list(driver.inputs.news(live, done))
    for event in found:
        driver.controller.step(driver.controller.now, [event])
    back = [logged.event for logged in driver.inputs.news(live, done)]
    assert back == [e.InputReturned("/data"), e.InputReturned(BAD)]


def test_a_job_says_nothing_against_its_outputs_and_brings_them_back(
    store: Store, tmp_path: Path
) -> None:
    driver, live = a_driver(store, tmp_path), naming("1", "--out", BAD)
    failed = LoggedEvent(e.RunFailed(Run("1", 1), failure=Failure("missing-file", path=BAD)))
    assert not list(driver.inputs.news(live, [failed]))
    seen = InputFailure(BAD, "7", "bob", "b.py", "missing-file", 5)
    driver.controller.step(driver.controller.now, [e.InputFailed(seen)])
    done = driver.inputs.news(live, [LoggedEvent(e.RunSucceeded(Run("1", 1)))])
    assert [logged.event for logged in done] == [e.InputReturned(BAD)]
