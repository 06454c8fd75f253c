"""GPU time of runs that ended while no manager looked: charged as their journals say, never until now."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.builders import a_job, on
from tests.usage_sums import usage_report
from trainmaster.config.limits import Limits
from trainmaster.core.controller import Controller
from trainmaster.core.state import JobRecord
from trainmaster.daemon.clock import Clock
from trainmaster.daemon.data_folder import Identity
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.inbox import Request
from trainmaster.daemon.live_job import LiveJob, StoredSubmission
from trainmaster.daemon.metrics import Metrics
from trainmaster.daemon.policies import policy_of
from trainmaster.daemon.recovery import reconcile, recovered, snapshot_of_driver
from trainmaster.daemon.report_events import LoggedEvent, lost_to
from trainmaster.daemon.usage_ledger import UsageLedger
from trainmaster.engines.local.engine import LIVE, LocalEngine
from trainmaster.engines.local.journal import Journal, JournalEntry
from trainmaster.engines.protocol import Tell, TellNode, ignore
from trainmaster.model import events as e
from trainmaster.model.actions import Order
from trainmaster.model.engine_reports import Started
from trainmaster.model.failure import Blame, Failure
from trainmaster.model.job import Run, gpus
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.queue import Queue
from trainmaster.model.quota import Budget, Period, Prices, WhenUsedUp
from trainmaster.model.stop_reasons import Suspender, Suspension
from trainmaster.model.topology import parse_shorthand
from trainmaster.model.units import HOUR, MINUTE, SECOND, WHOLE
from trainmaster.store.store import Store

FIFO = PolicySpec("fifo")
RECIPE = LaunchSpec(("true",), "/", "")
RUN = Run("1", 1)
ENDED = {
    "code": 0,
    "asked": "nothing",
    "rank": None,
    "has_left": False,
    "was_killed": False,
    "why": "",
    "tail": "",
}


class Reader(LocalEngine):
    """Reads what runs have left, and starts nothing."""

    async def open(self, tell: Tell, tell_node: TellNode = ignore) -> None:
        self._tell = tell
        (self._folder / LIVE).mkdir(parents=True, exist_ok=True)

    async def execute(self, order: Order, spec: LaunchSpec) -> None:
        pass


class Managers:
    """One manager after the other in one folder, at times of the test's own."""

    def __init__(self, store: Store, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.store, self.folder = store, folder
        self.began_ms = int(time.time() * 1000)
        self.topology = parse_shorthand("1x2")
        self._patch = patch

    @property
    def run_folder(self) -> Path:
        return self.folder / "runs" / "1" / "1"

    def begin(self, *facts: e.Event, is_started: bool = True) -> None:
        """A first manager, which starts the job and is then gone."""
        asyncio.run(self._begin(facts, is_started))

    async def _begin(self, facts: tuple[e.Event, ...], is_started: bool) -> None:
        job = a_job("1", gpus(2), at_s=self.began_ms / SECOND)
        controller = Controller(self.topology, policy_of(FIFO), make_policy=policy_of)
        engine = Reader(self.folder, self.topology)
        driver = Driver(controller, self.store, engine, Clock(self.began_ms), FIFO)
        submitted = LoggedEvent(e.JobSubmitted(job))
        live = LiveJob(job, "1", StoredSubmission(RECIPE, job), {})
        self.store.keep_snapshot(snapshot_of_driver(driver))
        driver.inbox.request(Request([*map(LoggedEvent, facts), submitted], [live]))
        await driver.step()
        self.began_ms = driver.clock.now()
        if is_started:
            driver.inbox.report(Started(RUN, self.began_ms, (1,)), 1)
            await driver.step()

    def journal(self, *entries: tuple[str, int, JournalEntry]) -> None:
        """What its supervisor wrote: at so many ms after its start."""
        self.run_folder.mkdir(parents=True)
        book = Journal(str(self.run_folder))
        for what, after_ms, said in entries:
            at = {"at_ms": self.began_ms + after_ms, "boot": "another"}
            book.append(book.entry(what, said) | at)
        book.close()

    def later(self, after_ms: int, followed_ms: int = 0) -> Driver:
        """The next manager, so long after the start, after its first step."""
        now = (self.began_ms + after_ms) / SECOND
        self._patch.setattr(time, "time", lambda: now)
        return asyncio.run(self._later(followed_ms))

    async def _later(self, followed_ms: int) -> Driver:
        engine = Reader(self.folder, self.topology)
        given: Any = (self.store, engine, None, Metrics(), Identity(), Limits())
        driver, found = recovered(*given)
        if followed_ms:
            driver.followed_ms = followed_ms
        await engine.open(driver.inbox.report)
        await reconcile(driver, found.lost)
        await driver.step()
        await engine.close()
        return driver

    def charged_s(self) -> float:
        rows = list(self.store.charges(0, self.began_ms + HOUR))
        assert all(row.to_ms - row.from_ms == row.gpu_ms // (2 * WHOLE) for row in rows)
        return sum(row.gpu_ms for row in rows) / WHOLE / SECOND


@pytest.fixture
def managers(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Managers:
    return Managers(store, tmp_path, monkeypatch)


STARTED: tuple[str, int, JournalEntry] = ("started", 0, {"pids": [1], "changed": []})


def test_a_run_that_ended_while_the_manager_was_away_is_charged_until_its_end(
    managers: Managers,
) -> None:
    managers.begin()
    managers.journal(STARTED, ("ended", MINUTE, ENDED))
    managers.later(HOUR)
    assert managers.charged_s() == pytest.approx(2 * 60)
    row = managers.store.job("1")
    assert row is not None
    assert row.state == "succeeded"


def test_its_budget_is_not_used_up_by_the_time_that_the_manager_was_away(
    managers: Managers,
) -> None:
    budget = Budget(WHOLE * HOUR // 2, Period.TOTAL, 0, WhenUsedUp.SUSPEND)
    managers.begin(e.QueueDefined(Queue("default", budget=budget)))
    managers.journal(STARTED, ("ended", MINUTE, ENDED))
    driver = managers.later(HOUR)
    quotas = driver.controller.state.quotas
    assert quotas is not None
    scope = quotas.scope("default", "")
    assert scope is not None
    assert scope.used(driver.controller.now) == 2 * WHOLE * MINUTE
    assert not scope.is_spent


def test_a_run_of_which_nothing_is_left_is_charged_until_the_last_manager_followed_it(
    managers: Managers,
) -> None:
    """After a restore on an empty machine that is the time of the backup."""
    managers.begin()
    managers.later(HOUR, followed_ms=managers.began_ms + 5 * MINUTE)
    assert managers.charged_s() == pytest.approx(2 * 5 * 60)


def test_a_run_that_was_lost_is_charged_until_its_last_sign_of_life(managers: Managers) -> None:
    """Its journal has no end: it was restored with the runs, or its machine was switched off."""
    managers.begin()
    managers.journal(STARTED, ("saved", MINUTE, {"step": 3}))
    output = managers.run_folder / "rank-0.log"
    output.write_text("epoch 1\n")
    written_s = (managers.began_ms + 3 * MINUTE) / SECOND
    os.utime(output, (written_s, written_s))
    managers.later(HOUR)
    assert managers.charged_s() == pytest.approx(2 * 3 * 60, abs=0.1)


def test_a_run_that_started_and_ended_while_the_manager_was_away_is_charged_too(
    managers: Managers,
) -> None:
    managers.begin(is_started=False)
    managers.journal(("started", MINUTE, STARTED[2]), ("ended", 3 * MINUTE, ENDED))
    managers.later(HOUR)
    assert managers.charged_s() == pytest.approx(2 * 2 * 60)
    (row,) = managers.store.charges(0, managers.began_ms + HOUR)
    assert (row.from_ms, row.to_ms) == (managers.began_ms + MINUTE, managers.began_ms + 3 * MINUTE)


def test_a_run_that_was_told_to_leave_is_charged_until_it_left(managers: Managers) -> None:
    """Longer than until it was told to, and less long where it had ended before."""
    for left_ms in (4 * SECOND, 10 * SECOND):
        topology = managers.topology
        ledger = UsageLedger(topology, Prices())
        job = a_job("1", gpus(2))
        record = JobRecord(job, 0, 0, None, None)
        live = LiveJob(job, "1", StoredSubmission(RECIPE, job), {}, record=record)
        record.placement = on(topology, 0, 1)
        record.progress(SECOND, 1_000_000)
        rows = [*ledger.settle(live, SECOND)]
        record.update_service(6 * SECOND)
        record.placement = None
        rows += ledger.settle(live, 6 * SECOND)
        record.attained = 2 * WHOLE * (left_ms - SECOND)
        record.attained_ms = left_ms
        rows += ledger.settle(live, 20 * SECOND)
        assert {row.gpu_type for row in rows} == {topology.types[0].name}
        assert sum(row.gpu_ms for row in rows) == 2 * WHOLE * (left_ms - SECOND)
        for until_ms in (left_ms, 20 * SECOND):
            report = usage_report(rows, "user", 0, until_ms, "")
            assert report.total.gpu_s == 2 * (left_ms / SECOND - 1)


def test_a_stretch_says_what_its_work_was_lost_to() -> None:
    topology = parse_shorthand("1x2")
    ledger = UsageLedger(topology, Prices())
    job = a_job("1", gpus(2))
    record = JobRecord(job, 0, 0, None, None)
    live = LiveJob(job, "1", StoredSubmission(RECIPE, job), {}, record=record)
    record.placement = on(topology, 0, 1)
    record.progress(SECOND, 1_000_000)
    list(ledger.settle(live, SECOND))
    record.update_service(6 * SECOND)
    record.placement = None
    failed = e.RunFailed(RUN, failure=Failure("cuda-out-of-memory", Blame.USER))
    said = lost_to(failed, live.history)
    live.history = replace(live.history, lost_ms=2 * SECOND, lost_to=said)
    (row,) = ledger.settle(live, 6 * SECOND)
    assert (row.lost_to, row.lost_gpu_ms) == ("cuda-out-of-memory", 2 * 2 * SECOND * WHOLE)


def test_what_work_is_lost_to() -> None:
    history = LiveJob(a_job("1", gpus(1)), "1", StoredSubmission(RECIPE, a_job("1")), {}).history
    by_ada = replace(history, suspension=Suspension(Suspender.USER, "ada"))
    suspended = e.RunSuspended(RUN, 0)
    assert lost_to(suspended, history) == "preemption"
    assert lost_to(suspended, by_ada) == "suspension"
    assert lost_to(e.RunLost(RUN, 0), by_ada) == "unknown"
    assert lost_to(e.RunResized(RUN, 0, 1), history) == "resize"
