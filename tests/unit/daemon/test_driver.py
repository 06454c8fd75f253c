"""The loop from events to kept steps, on a real store; nothing is launched."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders import a_job
from trainmaster.core.controller import Controller
from trainmaster.core.lifecycle import Phase
from trainmaster.daemon.clock import Clock
from trainmaster.daemon.driver import EVENTS_PER_STEP, LEAST_BETWEEN_S, Driver
from trainmaster.daemon.inbox import Request
from trainmaster.daemon.job_control import JobControl
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.live_job import Hold, LiveJob, StoredSubmission
from trainmaster.daemon.policies import policy_of
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.daemon.service_api import Conflict, Unavailable
from trainmaster.daemon.submission_checks import SubmissionChecks
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.model import events as e
from trainmaster.model.actions import Order
from trainmaster.model.engine_reports import Ended, Frozen, Lost, Report, Saved, Started, StopOrder
from trainmaster.model.job import Estimate, Job, Run, Source, gpus
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.submission import Dependency
from trainmaster.model.topology import parse_shorthand
from trainmaster.model.units import NOMINAL, SECOND
from trainmaster.store.rows import JobFilter
from trainmaster.store.store import Store

FIFO = PolicySpec("fifo")
RECIPE = LaunchSpec(("true",), "/", "")


def a_driver(store: Store, folder: Path, engine: type[LocalEngine] = LocalEngine) -> Driver:
    """Of a cluster of one device: who asks for two waits."""
    topology = parse_shorthand("1x1")
    controller = Controller(topology, policy_of(FIFO), make_policy=policy_of)
    return Driver(controller, store, engine(folder, topology), Clock(0), FIFO)


def waiting(id: str, *depends_on: str) -> LiveJob:
    job = a_job(id, gpus(2))
    kept = StoredSubmission(RECIPE, job, tuple(Dependency(each) for each in depends_on))
    return LiveJob(job, id, kept, {}, holds={Hold.DEPENDENCY} if depends_on else set())


def wish_for(*lives: LiveJob) -> Request:
    events = [LoggedEvent(e.JobSubmitted(live.job, held=bool(live.holds))) for live in lives]
    return Request(events=events, new_jobs=lives)


def run(what: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(what())


def test_many_facts_are_several_steps_that_are_kept_together(store: Store, tmp_path: Path) -> None:
    async def scenario() -> None:
        driver = a_driver(store, tmp_path)
        count = 2 * EVENTS_PER_STEP + 1
        asked = asyncio.create_task(
            driver.ask(wish_for(*[waiting(str(number)) for number in range(1, count + 1)]))
        )
        await asyncio.sleep(0)
        await driver.step()
        await asked
        assert driver.writer.seq == 3
        assert [step.seq for step in store.steps()] == [1, 2, 3]
        rows = store.jobs(JobFilter(limit=1000))
        assert len(rows) == count
        assert {row.state for row in rows} == {"pending"}

    run(scenario)


def test_a_policy_that_asks_every_millisecond_is_asked_less_often(
    store: Store, tmp_path: Path
) -> None:
    driver = a_driver(store, tmp_path)
    driver._wake_at = driver.clock.now() + 1
    driver.stepped_s = time.monotonic() + 1000  # so that the time of this test does not matter
    assert 900 < (driver._seconds_to_wait() or 0) <= 1000 + LEAST_BETWEEN_S
    driver.stepped_s = time.monotonic() - LEAST_BETWEEN_S
    assert driver._seconds_to_wait() in (0.0, 0.001)
    driver.stepped_s += 1000
    driver.inbox.follow_up([LoggedEvent(e.JobWithdrawn("1"))])
    assert driver._seconds_to_wait() == 0.0, "news are looked at at once"


def test_a_job_is_not_held_for_one_that_ended_while_it_was_asked_for(
    store: Store, tmp_path: Path
) -> None:
    async def scenario() -> None:
        driver = a_driver(store, tmp_path)
        first, then = waiting("1"), waiting("2", "1")
        for wish in (wish_for(first), Request(events=[LoggedEvent(e.JobWithdrawn("1"))])):
            asked = asyncio.create_task(driver.ask(wish))
            await asyncio.sleep(0)
            await driver.step()
            await asked
        late = asyncio.create_task(driver.ask(wish_for(then)))
        await asyncio.sleep(0)
        await driver.step()
        await late
        await driver.step()
        assert then.record is not None
        assert then.record.phase is Phase.CANCELLED  # it was to run after a success

    run(scenario)


def test_what_is_asked_of_a_job_that_has_ended_meanwhile_is_refused(
    store: Store, tmp_path: Path
) -> None:
    async def scenario() -> None:
        driver = a_driver(store, tmp_path)
        asked = asyncio.create_task(driver.ask(Request(events=[LoggedEvent(e.JobHeld("7"))])))
        await asyncio.sleep(0)
        await driver.step()
        with pytest.raises(Conflict, match="ended meanwhile"):
            await asked
        assert store.story("7") == []

    run(scenario)


def test_a_refused_cancellation_leaves_the_grace_period_as_it_was(
    store: Store, tmp_path: Path
) -> None:
    async def scenario() -> None:
        driver = a_driver(store, tmp_path)
        job = waiting("1")
        asked = asyncio.create_task(driver.ask(wish_for(job)))
        await asyncio.sleep(0)
        await driver.step()
        await asked
        driver.writer.trouble = "The disk is full."
        control = JobControl(driver, SubmissionChecks(driver))
        with pytest.raises(Unavailable, match="disk is full"):
            await control.cancel("1", now=True)
        assert job.recipe.grace_ms == RECIPE.grace_ms > 0

    run(scenario)


class QuietEngine(LocalEngine):
    """Takes orders and does nothing: what happened is reported by the test."""

    async def execute(self, order: Order, spec: LaunchSpec) -> None:
        pass


@pytest.mark.parametrize("set_by_ms", [0, -3_600_000, 7_200_000])
def test_run_times_are_right_while_the_wall_clock_is_set(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_by_ms: int
) -> None:
    steady_s = 50.0
    monkeypatch.setattr(time, "clock_gettime", lambda _: steady_s)

    async def scenario() -> None:
        nonlocal steady_s
        topology, job = parse_shorthand("1x1"), a_job("1", gpus(1))
        controller = Controller(topology, policy_of(FIFO), make_policy=policy_of)
        driver = Driver(controller, store, QuietEngine(tmp_path, topology), Clock(0), FIFO)
        driver.inbox.request(wish_for(LiveJob(job, "1", StoredSubmission(RECIPE, job), {})))
        await driver.step()
        wall_ms, first = driver.clock.now() + set_by_ms, Run("1", 1)
        steady_s = 60.0
        driver.inbox.report(Started(first, wall_ms + 10_000, steady_ms=60_000), 2)
        steady_s = 60.1
        await driver.step()
        driver.inbox.report(Ended(first, wall_ms + 16_000, code=0, steady_ms=66_000), 3)
        steady_s = 66.2
        await driver.step()

    run(scenario)
    (row,) = store.jobs(JobFilter())
    assert row.state == "succeeded"
    assert JobHistory.from_json(row.record_json).run_ms == 6_000
    assert row.start_ms is not None
    assert row.finish_ms is not None
    assert row.finish_ms - row.start_ms == 6_000


def test_a_job_does_not_end_before_it_starts(store: Store, tmp_path: Path) -> None:
    """One that is over before its start was taken in."""

    async def scenario() -> None:
        topology, job = parse_shorthand("1x1"), a_job("1", gpus(1))
        controller = Controller(topology, policy_of(FIFO), make_policy=policy_of)
        driver = Driver(controller, store, QuietEngine(tmp_path, topology), Clock(0), FIFO)
        driver.inbox.request(wish_for(LiveJob(job, "1", StoredSubmission(RECIPE, job), {})))
        await driver.step()
        for report in (Started(Run("1", 1), 1), Ended(Run("1", 1), 2, code=0)):
            driver.inbox.report(report, report.at_ms)
        await driver.step()

    run(scenario)
    (row,) = store.jobs(JobFilter())
    assert row.start_ms is not None
    assert row.finish_ms is not None
    assert row.finish_ms >= row.start_ms


@pytest.mark.parametrize(("was_killed", "counted"), [(False, 1), (True, 0)])
def test_a_kill_at_the_end_of_the_grace_period_is_no_observed_suspension(
    store: Store, tmp_path: Path, was_killed: bool, counted: int
) -> None:
    async def scenario() -> None:
        topology, job = parse_shorthand("1x1"), a_job("1", gpus(1))
        controller = Controller(topology, policy_of(FIFO), make_policy=policy_of)
        driver = Driver(controller, store, QuietEngine(tmp_path, topology), Clock(0), FIFO)
        driver.inbox.request(wish_for(LiveJob(job, "1", StoredSubmission(RECIPE, job), {})))
        await driver.step()
        driver.inbox.report(Started(Run("1", 1), 1), 1)
        await driver.step()
        driver.inbox.request(Request(events=[LoggedEvent(e.JobHeld("1"))]))
        await driver.step()
        over = Ended(Run("1", 1), 2, code=137, asked=StopOrder.HALT, was_killed=was_killed)
        driver.inbox.report(over, 2)
        await driver.step()
        assert controller.state.jobs["1"].phase is Phase.HELD
        assert controller.state.switch_times.suspensions.count == counted

    run(scenario)


async def with_a_run(store: Store, folder: Path, job: Job, **how: bool) -> Driver:
    """A driver whose only job started at 50 s."""
    topology = parse_shorthand("1x1")
    controller = Controller(topology, policy_of(FIFO), make_policy=policy_of, **how)
    driver = Driver(controller, store, QuietEngine(folder, topology), Clock(0), FIFO)
    driver.inbox.request(wish_for(LiveJob(job, job.id, StoredSubmission(RECIPE, job), {})))
    await driver.step()
    driver.inbox.report(Started(Run(job.id, 1), 0, steady_ms=50_000), 2)
    await driver.step()
    return driver


@pytest.mark.parametrize(
    ("unsaved_ms", "lost_ms"), [(None, 0), (0, 0), (4_000, 4_000), (99_000, 10_000)]
)
def test_a_program_that_ends_when_told_has_saved_what_it_did_until_its_last_file(
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unsaved_ms: int | None,
    lost_ms: int,
) -> None:
    """It ran for ten seconds, was told to stop, and ended with exit code 0."""
    steady_s = 50.0
    monkeypatch.setattr(time, "clock_gettime", lambda _: steady_s)

    async def scenario() -> None:
        nonlocal steady_s
        run = Run("1", 1)
        driver = await with_a_run(store, tmp_path, a_job("1", gpus(1)), cannot_save_at_first=True)
        steady_s = 60.0
        driver.jobs["1"].holds.add(Hold.OWNER)
        driver.inbox.request(Request(events=[LoggedEvent(e.JobHeld("1"))]))
        await driver.step()
        ended = Ended(
            run, 0, 0, StopOrder.HALT, has_left=True, unsaved_ms=unsaved_ms, steady_ms=60_000
        )
        driver.inbox.report(ended, 3)
        await driver.step()
        live = driver.jobs["1"]
        assert live.history.lost_ms == lost_ms
        assert live.record is not None
        assert live.record.saved_work == (10_000 - lost_ms) * NOMINAL
        assert live.record.cannot_save is bool(unsaved_ms)

    run(scenario)


FIRST = Run("1", 1)


@pytest.mark.parametrize(
    ("reports", "lost_ms", "saved_ms", "work_ms"),
    [
        ([Saved(FIRST, 0, steady_ms=57_000)], 0, 7_000, 0),
        ([Ended(FIRST, 0, 3, steady_ms=57_000)], 7_000, 0, 0),
        ([Lost(FIRST, 0, steady_ms=57_000)], 7_000, 0, 0),
        ([Frozen(FIRST, 0, steady_ms=57_000)], 0, 0, 7_000),
        ([Ended(FIRST, 0, 3, steady_ms=40_000)], 0, 0, 0),
        (
            [Saved(FIRST, 0, steady_ms=54_000), Ended(FIRST, 0, 3, steady_ms=57_000)],
            *(3_000, 4_000, 4_000),
        ),
        (
            [Saved(FIRST, 0, steady_ms=54_000), Lost(FIRST, 0, steady_ms=57_000)],
            *(3_000, 4_000, 4_000),
        ),
    ],
    ids=[
        *("saved", "failed", "lost", "stopped in memory", "before its start was taken in"),
        *("saved and failed", "saved and lost"),
    ],
)
def test_what_happened_while_no_manager_looked_counts_by_its_own_time(
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reports: list[Report],
    lost_ms: int,
    saved_ms: int,
    work_ms: int,
) -> None:
    """It started at 50 s, the last report is of 57 s, and all are read at 90 s."""
    steady_s = 50.0
    monkeypatch.setattr(time, "clock_gettime", lambda _: steady_s)

    async def scenario() -> None:
        nonlocal steady_s
        driver = await with_a_run(store, tmp_path, a_job("1", gpus(1), retries=1))
        steady_s = 90.0
        for number, report in enumerate(reports, 3):
            driver.inbox.report(report, number)
        await driver.step()
        live = driver.jobs["1"]
        assert live.record is not None
        assert live.history.lost_ms == lost_ms
        assert (live.record.saved_work, live.record.work) == (saved_ms * NOMINAL, work_ms * NOMINAL)
        saves = [report.steady_ms for report in reports if isinstance(report, Saved)]
        expected = driver.clock.at(saves[0] or 0) if saves else None
        assert live.history.saved_at_ms == expected

    run(scenario)


def test_the_first_end_of_a_program_is_told_to_jobs_of_that_program_alone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the others, of which there may be thousands, none is looked at."""
    told: list[str] = []

    async def scenario() -> None:
        driver = await with_a_run(store, tmp_path, a_job("1", gpus(1)))
        programs = {"2": RECIPE, "3": LaunchSpec(("false",), "/", "")}
        jobs = {id: StoredSubmission(recipe, a_job(id, 1)) for id, recipe in programs.items()}
        others = [LiveJob(kept.job, id, kept, {}) for id, kept in jobs.items()]
        driver.inbox.request(wish_for(*others))
        await driver.step()
        look = driver.run_times.first_estimates

        def noted(jobs: Iterable[LiveJob]) -> Iterator[LoggedEvent]:
            seen = [*jobs]
            told.extend(live.id for live in seen)
            return look(seen)

        monkeypatch.setattr(driver.run_times, "first_estimates", noted)
        driver.inbox.report(Ended(Run("1", 1), 9_000, 0, steady_ms=59_000), 3)
        await driver.step()
        await driver.step()
        estimates = {id: live.record and live.record.estimate for id, live in driver.jobs.items()}
        assert [id for id, known in estimates.items() if known is not None] == ["2"]

    run(scenario)
    assert told == ["2"]


def test_a_run_that_outlasts_its_estimate_has_a_later_one_though_nothing_happens(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steady_s = 50.0
    monkeypatch.setattr(time, "clock_gettime", lambda _: steady_s)
    left: list[int] = []

    async def scenario() -> None:
        nonlocal steady_s
        topology, job = parse_shorthand("1x1"), a_job("1", gpus(1))
        controller = Controller(topology, policy_of(FIFO), make_policy=policy_of)
        driver = Driver(controller, store, QuietEngine(tmp_path, topology), Clock(0), FIFO)
        driver.inbox.request(wish_for(LiveJob(job, "1", StoredSubmission(RECIPE, job), {})))
        await driver.step()
        driver.inbox.report(Started(Run("1", 1), driver.clock.now()), 2)
        known = Estimate(60 * SECOND * NOMINAL, Source.STEPS)
        driver.inbox.follow_up([LoggedEvent(e.JobProfiled("1", estimate=known))])
        await driver.step()
        for _ in range(3):
            await asyncio.sleep(0)
            driver.stepped_s -= LEAST_BETWEEN_S
            steady_s += driver._seconds_to_wait() or 0  # as the loop would, with nothing to do
            await driver.step()
            record, now = controller.state.jobs["1"], driver.clock.now()
            assert record.estimate is not None
            left.append((record.finish_at(record.estimate.work, now) - now) // SECOND)

    run(scenario)
    assert left == [10, 10, 10], "after 60, 70 and 80 s"
