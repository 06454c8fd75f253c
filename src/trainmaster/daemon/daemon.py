"""The daemon: waits until it leads, recovers, drives, keeps snapshots, and answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import structlog

from trainmaster.daemon.commands import Commands
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.export import events_of, trace_of
from trainmaster.daemon.metrics import Metrics
from trainmaster.daemon.policies import DEFAULT_POLICY, Options
from trainmaster.daemon.queries import Queries
from trainmaster.daemon.recovery import home_of, reconcile, recovered, snapshot_of_driver
from trainmaster.daemon.retention import drop_code, outdated_runs
from trainmaster.daemon.service_api import (
    Accepted,
    Change,
    Changes,
    Conflict,
    Forecast,
    Health,
    JobStatus,
    LogFile,
    NodeStatus,
    PolicyStatus,
    QueueStatus,
    Submission,
    Unavailable,
)
from trainmaster.engines.protocol import Engine
from trainmaster.model.queue import Queue
from trainmaster.model.units import DAY, HOUR, MINUTE, SECOND
from trainmaster.store.protocol import Deposed, Store, StoreError, Wanted
from trainmaster.store.rows import ProgressRow, SnapshotRow, StoryRow

log = structlog.get_logger("trainmaster.daemon")

STANDBY = "this Trainmaster stands by: another one leads."
Forecaster = Callable[[SnapshotRow, str | Submission, int], Forecast]
"""Says when a job would start, asked at that time; in a thread, from a snapshot of the controller."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How often the daemon does what."""

    snapshot_steps: int = 2_000
    snapshot_ms: int = 10 * MINUTE
    keep_steps_ms: int = 7 * DAY
    """Steps older than this are dropped once a snapshot covers them."""
    keep_logs_ms: int = 30 * DAY
    """Logs and copied code of jobs that ended earlier are removed; checkpoints and history stay."""
    tidy_ms: int = HOUR
    standby_s: float = 0.5


class Daemon:
    """Implements `Service`."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        folder: Path,
        *,
        policy: tuple[str, Options] = (DEFAULT_POLICY, ()),
        forecaster: Forecaster | None = None,
        habits: Settings = Settings(),  # noqa: B008
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._engine = engine
        self._folder = folder
        self._first_policy = policy
        self._forecaster = forecaster
        self._habits = habits
        self._say = say
        """To whoever started it."""
        self._foretelling = asyncio.Semaphore(1)
        self._oracle = ThreadPoolExecutor(1, "forecast")
        """Apart from the threads that the store needs."""
        self._driver: Driver | None = None
        self._asking: Commands | None = None
        self._looking: Queries | None = None
        self._trouble = "this Trainmaster is starting."
        self._kept_seq = 0
        self._kept_ms = 0
        self.metrics = Metrics()
        self.is_active = asyncio.Event()

    # -- life ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Stand by until this one leads, then drive until cancelled; Deposed when another took over."""
        await self._until_leading()
        driver = await self._take_over()
        if self._trouble == STANDBY:
            self._say("This one leads now.")
        self._kept_ms = driver.clock.now()
        self.is_active.set()
        log.info("active", jobs=len(driver.jobs), step=driver.writer.seq)
        try:
            await asyncio.gather(driver.run(), self._snapshots(driver), self._tidy(driver))
        finally:
            with contextlib.suppress(StoreError):
                await asyncio.shield(self._keep_snapshot(driver))
            await self._engine.close()

    async def _until_leading(self) -> None:
        while True:
            try:
                if await asyncio.to_thread(self._store.lead):
                    return
                if self._trouble != STANDBY:
                    self._say("Another Trainmaster leads on this database: this one stands by.")
                self._trouble = STANDBY
            except StoreError as error:
                self._trouble = str(error)
                log.error("the store cannot be opened", why=str(error))
            await asyncio.sleep(self._habits.standby_s)

    async def _take_over(self) -> Driver:
        driver, doubtful = await asyncio.to_thread(
            recovered,
            self._store,
            self._engine,
            self._first_policy,
            self.metrics,
            home_of(self._folder),
        )
        if self._store.snapshot() is None or doubtful:
            await self._keep_snapshot(driver)
        await self._engine.open(driver.inbox.report)
        await reconcile(driver, doubtful)
        if doubtful:
            self._say(f"{len(doubtful)} runs are lost, their devices being gone: they begin again.")
        self._asking = Commands(driver, self._folder)
        self._looking = Queries(driver, self._folder)
        self._driver = driver
        return driver

    async def _snapshots(self, driver: Driver) -> None:
        """Now and then, so that a restart is quick and old steps can go."""
        while True:
            await asyncio.sleep(1.0)
            now = driver.clock.now()
            is_due = now - self._kept_ms >= self._habits.snapshot_ms
            if driver.writer.seq - self._kept_seq >= self._habits.snapshot_steps or (
                is_due and driver.writer.seq > self._kept_seq
            ):
                try:
                    await self._keep_snapshot(driver)
                    await asyncio.to_thread(self._store.compact, now - self._habits.keep_steps_ms)
                except Deposed:
                    raise
                except StoreError as error:
                    log.error("no snapshot could be kept", why=str(error))
                    self._kept_ms = now

    async def _tidy(self, driver: Driver) -> None:
        """Throw away what nobody needs any more."""
        while True:
            await asyncio.sleep(self._habits.tidy_ms / SECOND)
            before = driver.clock.now() - self._habits.keep_logs_ms
            place, store, is_live = self._folder, self._store, driver.jobs.__contains__
            try:
                for run in await asyncio.to_thread(outdated_runs, place, store, is_live, before):
                    await self._engine.forget(run)
                await asyncio.to_thread(drop_code, place, store, is_live, before)
            except (StoreError, OSError) as error:
                log.warning("old logs could not be removed", why=str(error))

    async def _keep_snapshot(self, driver: Driver) -> None:
        async with driver.turn:
            if driver.writer.is_torn:
                return
            snapshot = await asyncio.to_thread(snapshot_of_driver, driver)
        await asyncio.to_thread(self._store.keep_snapshot, snapshot)
        self._kept_seq, self._kept_ms = snapshot.seq, driver.clock.now()

    # -- parts -----------------------------------------------------------------------------------------

    @property
    def driver(self) -> Driver:
        if self._driver is None:
            raise Unavailable(self._trouble)
        return self._driver

    @property
    def asking(self) -> Commands:
        if self._asking is None:
            raise Unavailable(self._trouble)
        return self._asking

    @property
    def looking(self) -> Queries:
        if self._looking is None:
            raise Unavailable(self._trouble)
        return self._looking

    # -- changing --------------------------------------------------------------------------------------

    async def submit(
        self, asked: Sequence[Submission], key: str | None = None, request_hash: str = ""
    ) -> Sequence[Accepted]:
        return await self.asking.submit(asked, key, request_hash)

    async def cancel(self, job: str) -> None:
        await self.asking.cancel(job)

    async def suspend(self, job: str) -> None:
        await self.asking.suspend(job)

    async def resume(self, job: str) -> None:
        await self.asking.resume(job)

    async def save(self, job: str) -> None:
        for live in await self.asking.live(job):
            if live.record is None or live.record.since_ms is None:
                raise Conflict(f"job {live.id} does not run now, so it cannot save.")
            await self._engine.save(live.record.run)

    async def move(self, job: str, node: str) -> None:
        await self.asking.move(job, node)

    async def change(self, job: str, changes: Changes) -> None:
        await self.asking.change(job, changes)

    async def define_queue(self, queue: Queue) -> None:
        await self.asking.define_queue(queue)

    async def set_policy(self, name: str, options: Mapping[str, str]) -> PolicyStatus:
        await self.asking.set_policy(name, options)
        return self.policy()

    # -- looking ---------------------------------------------------------------------------------------

    def health(self) -> Health:
        if self._driver is None:
            return Health("standby", "" if self._trouble == STANDBY else self._trouble)
        return Health("active", self._driver.writer.trouble)

    def now_ms(self) -> int:
        return self.driver.clock.now()

    async def jobs(self, wanted: Wanted) -> Sequence[JobStatus]:
        return await self.looking.jobs(wanted)

    async def counts(self) -> Mapping[str, int]:
        return await self.looking.counts()

    async def sheet(self, job: str) -> JobStatus:
        return await self.looking.sheet(job)

    async def story(self, job: str) -> Sequence[StoryRow]:
        row = (await self.sheet(job)).row
        return await asyncio.to_thread(self._store.story, row.id)

    async def progress(self, job: str) -> Sequence[ProgressRow]:
        row = (await self.sheet(job)).row
        return await asyncio.to_thread(self._store.progress, row.id)

    async def log_files(self, job: str) -> Sequence[LogFile]:
        return await self.looking.log_files(job)

    def nodes(self) -> Sequence[NodeStatus]:
        return self.looking.nodes()

    def queues(self) -> Sequence[QueueStatus]:
        return self.looking.queues()

    def policy(self) -> PolicyStatus:
        return self.looking.policy()

    async def environment(self, job: str) -> tuple[Path, Mapping[str, str]]:
        (live,) = await self.asking.one(job)
        if live.record is None or live.record.placement is None:
            raise Conflict(f"job {job} does not run now, so it has no environment to enter.")
        return await asyncio.to_thread(self._engine.environment, live.record.run)

    def changes(self, after: int | None = None) -> AsyncIterator[Change]:
        return self.driver.feed.follow(after)

    # -- foretelling -----------------------------------------------------------------------------------

    async def forecast(self, job: str) -> Forecast:
        await self.sheet(job)
        return await self._foretold(job)

    async def check(self, asked: Submission) -> tuple[JobStatus, Forecast]:
        asked = self.asking.check(asked)
        draft = self.looking.drafted(self.asking.drafted(asked))
        return draft, await self._foretold(asked)

    async def _foretold(self, what: str | Submission) -> Forecast:
        if self._forecaster is None:
            return Forecast(None, "nobody foretells here.")
        if self.driver.writer.trouble:  # a step stands still, perhaps for long, and keeps its turn
            return Forecast(None, self.driver.writer.trouble)
        loop, oracle = asyncio.get_running_loop(), self._oracle
        async with self._foretelling:
            async with self.driver.turn:
                snapshot = await loop.run_in_executor(oracle, snapshot_of_driver, self.driver)
            now = self.driver.clock.now()
            return await loop.run_in_executor(oracle, self._forecaster, snapshot, what, now)

    # -- recording -------------------------------------------------------------------------------------

    async def record_trace(self) -> str:
        return await asyncio.to_thread(trace_of, self._store)

    def record_events(self) -> AsyncIterator[str]:
        return events_of(self._store)
