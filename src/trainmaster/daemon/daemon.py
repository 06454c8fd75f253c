"""The manager from start to end: waits for leadership, recovers, runs the driver, stores snapshots."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from uuid import uuid4

import structlog

from trainmaster import __version__
from trainmaster.config.container_options import ANY, refusal
from trainmaster.config.limits import Limits
from trainmaster.config.notifications import NO_SETTINGS, NotificationSettings
from trainmaster.config.type_speeds import Speeds
from trainmaster.core.lifecycle import ALLOCATED
from trainmaster.daemon.accounts import Accounts
from trainmaster.daemon.admin_token import token_in_file
from trainmaster.daemon.adoption import adopt
from trainmaster.daemon.backup import copy_before_upgrade
from trainmaster.daemon.cluster_control import ClusterControl
from trainmaster.daemon.cluster_nodes import known_nodes
from trainmaster.daemon.data_folder import (
    COPIES,
    ColdStart,
    Identity,
    StoreMark,
    followed_until,
    home_of,
    largest_number,
    left_alone,
    named_in,
    refuse_cold_start,
    refuse_missing_store,
    refuse_other_folder,
    write_mark,
)
from trainmaster.daemon.device_change import apply_change, refuse_lost_runs, refuse_other_devices
from trainmaster.daemon.disk_watch import DiskWatch
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.export import events_of, trace_of
from trainmaster.daemon.failure_evidence import FailureReader
from trainmaster.daemon.folder_lock import FolderLock
from trainmaster.daemon.gpu_use_history import GpuUseHistory
from trainmaster.daemon.idle_watch import IdleRule, IdleWatch
from trainmaster.daemon.job_control import JobControl
from trainmaster.daemon.job_outputs import JobOutputs
from trainmaster.daemon.job_ports import JobPorts
from trainmaster.daemon.launch_record import LaunchRecord
from trainmaster.daemon.lease import LeaderWatch, Lease
from trainmaster.daemon.live_job import stored_submission
from trainmaster.daemon.metrics import Metrics
from trainmaster.daemon.node_tests import NodeTests
from trainmaster.daemon.notifications import Notifier
from trainmaster.daemon.overview import OverviewFacts
from trainmaster.daemon.progress_thinning import ProgressThinning
from trainmaster.daemon.queries import Forecaster, Queries
from trainmaster.daemon.recording import Present, Recording, recording_of
from trainmaster.daemon.recovery import Replayed, reconcile, recovered, snapshot_of_driver
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.daemon.response_models import StatusRow
from trainmaster.daemon.retention import (
    drop_checkpoints,
    drop_code,
    drop_gpu_use,
    drop_program_lists,
    outdated_runs,
    remove_leftovers,
)
from trainmaster.daemon.self_tests import SelfTests
from trainmaster.daemon.service_api import Asker, Health, RequestError, Submission, Unavailable
from trainmaster.daemon.submission_checks import SubmissionChecks
from trainmaster.daemon.submissions import Submissions
from trainmaster.daemon.submitted_files import SubmittedFiles
from trainmaster.daemon.vital_signs import ThreadWatch, vital_signs
from trainmaster.engines.protocol import Engine, StrayRun
from trainmaster.failures.reason_table import ReasonTable
from trainmaster.model.events import PolicyChanged, SpeedsStated
from trainmaster.model.inputs import InputBlock
from trainmaster.model.job import Run
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.units import HOUR, MINUTE, SECOND
from trainmaster.store.copies import keep_copy
from trainmaster.store.errors import DamagedStore, LeadershipLost, MigrationFailed, StoreError
from trainmaster.store.store import Store
from trainmaster.text.formatting import listing

log = structlog.get_logger("trainmaster.daemon")

ACTIVE_ROLE, STANDBY_ROLE = "active", "standby"
SETTLE_S = 60.0
"""How long after a start a node may take to be reported, that was there when the engine was made."""
STARTING = "this manager is starting."
STANDBY = "this manager is a standby: another one leads."


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """How often the manager stores snapshots and removes old data; its limits say what is old."""

    snapshot_steps: int = 2_000
    snapshot_ms: int = 10 * MINUTE
    tidy_ms: int = HOUR
    check_ms: int = HOUR
    """How often the database is checked for damage and copied."""
    standby_s: float = 0.5


THINNING_PAUSE_S = 0.1


def tidy_pause_ms(settings: RetentionSettings, limits: Limits) -> int:
    """What is kept for less than the usual pause is looked for as often as that, every minute at most."""
    kept = min(limits.keep_logs, limits.keep_checkpoints)
    return min(settings.tidy_ms, max(MINUTE, kept))


@dataclass(frozen=True, slots=True)
class _Parts:
    """What exists only while this manager is the leader."""

    driver: Driver
    files: SubmittedFiles
    submissions: Submissions
    job_outputs: JobOutputs
    job_control: JobControl
    cluster_control: ClusterControl
    queries: Queries
    overview: OverviewFacts


class Daemon:
    """One manager, as the API sees it. Methods raise RequestError and nothing else for a user's fault."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        folder: Path,
        *,
        policy: PolicySpec | None = None,
        forecaster: Forecaster | None = None,
        cold_start: ColdStart = ColdStart.REFUSE,
        ends_lost_runs: bool = False,
        settings: RetentionSettings = RetentionSettings(),
        limits: Limits = Limits(),  # noqa: B008
        reasons: ReasonTable | None = None,
        tests_devices: bool = False,
        stated_speeds: Speeds | None = None,
        notifications: NotificationSettings = NO_SETTINGS,
        container_options: Sequence[str] = ANY,
        idle_rule: IdleRule | None = None,
        runs_as_user: bool = False,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._store = store
        store.before_migration = self._copy_before_upgrade
        self.accounts = Accounts(store, partial(token_in_file, folder))
        self._engine = engine
        self._folder = folder
        self._stated_policy = policy
        """The policy to change to at the start; None: the stored one, or the default of a new store."""
        self._forecaster = forecaster
        self._cold_start = cold_start
        self._is_adopting = cold_start is ColdStart.ADOPT
        """Until the adoption is stored the folder is not this store's: without --adopt it is refused."""
        self._ends_lost_runs = ends_lost_runs
        """Whether runs are ended whose devices are gone; else the start is refused."""
        self._lock = FolderLock(folder, store.url)
        self._settings = settings
        self.limits = limits
        self._reasons = reasons
        """Why runs fail; None: the table that comes with Trainmaster."""
        self._tests_devices = tests_devices
        """Whether idle devices are tested at the start, and those of nodes that join."""
        self._stated_speeds = stated_speeds
        """Relative speeds of types of devices; None: those that were stated last."""
        self.runs_as_user = runs_as_user
        """Whether each job runs as the Unix user that submits it; else as the manager's."""
        self._notifier = Notifier(
            folder, store, notifications, is_open=not runs_as_user, host=socket.gethostname()
        )
        self._container_options = container_options
        self._idle_rule = idle_rule
        """What is done about jobs on idle GPUs; None: nothing."""
        self._idle: IdleWatch
        self._self_tests: SelfTests
        self._node_tests: NodeTests
        self._gpu_use: GpuUseHistory
        self._disks: DiskWatch
        """All while it leads."""
        self._say = say
        """Prints a line for the user."""
        self._parts: _Parts | None = None
        self._trouble = STARTING
        self._was_standby = False
        self._damage = ""
        """What the last check of the database found."""
        self._removed = ""
        """That its file was removed or exchanged."""
        self._threads = ThreadWatch()
        self._not_copied = ""
        """Why there is no new copy of it."""
        self._kept_seq = 0
        self._kept_ms = 0
        self.metrics = Metrics()
        self.is_settled = asyncio.Event()
        """Set as soon as it leads, is a standby, or waits for its database."""
        self.is_active = asyncio.Event()
        self._beating: asyncio.Task[None]
        """While it leads."""

    # -- life ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Wait for leadership, then drive until cancelled; LeadershipLost when another manager takes over."""
        self._lock.take()
        try:
            await self._drive(await self._lead())
        finally:
            self._lock.release()

    async def _drive(self, driver: Driver) -> None:
        if self._was_standby:
            self._say("This one leads now.")
        elif self._trouble != STARTING:
            self._say("The database answers again.")
        self._kept_ms = driver.clock.now()
        self.is_settled.set()
        self.is_active.set()
        log.info("active", jobs=len(driver.jobs), step=driver.writer.seq)
        try:
            await asyncio.gather(
                driver.run(),
                self._beating,
                self._threads.watch(),
                driver.readings.watch(),
                driver.inputs.watch(self._stamp_of),
                self._self_tests.test_at_start(all_devices=self._tests_devices),
                self._self_tests.watch(),
                self._node_tests.watch(),
                self._disks.watch(),
                self._idle.watch(),
                self._gpu_use.watch(),
                self._notifier.watch(driver.feed, self.health),
                self._snapshots(driver),
                self._tidy(driver),
                self._thin_progress(driver),
                self._check_store(),
                self._watch_file(),
            )
        finally:
            with contextlib.suppress(StoreError):
                await asyncio.shield(self._keep_snapshot(driver))
            await asyncio.shield(self._gpu_use.keep())
            if self._parts is not None:
                await self._parts.files.close()
            await self._engine.close()

    async def _lead(self) -> Driver:
        """Become the leader and recover, however long the database is away or another one leads."""
        watch = LeaderWatch(self.limits.leader_silence / SECOND, self._settings.standby_s)
        is_checked = False
        while True:
            try:
                await asyncio.to_thread(
                    refuse_missing_store,
                    self._folder,
                    self._store,
                    self._cold_start,
                    self._lock.other,
                )
                if await asyncio.to_thread(self._store.acquire_leadership):
                    return await self._take_over()
                if not is_checked:  # found out now, and not when it is needed
                    await asyncio.to_thread(self._check_folder)
                    engine = self._engine
                    own = None if engine.abilities.spans_machines else engine.topology
                    is_checked = await asyncio.to_thread(
                        refuse_other_devices, self._store, own, engine.name
                    )
                self._stand_by()
                if await self._replaces_leader(watch):
                    return await self._take_over()
            except LeadershipLost:
                raise
            except (DamagedStore, MigrationFailed) as error:  # waiting does not mend it
                raise RequestError(str(error)) from None
            except StoreError as error:
                self._wait_for_store(str(error))
            await asyncio.sleep(self._settings.standby_s)

    def _copy_before_upgrade(self, version: str) -> None:
        copy = copy_before_upgrade(self._store, self._folder, version)
        self._tell(
            f"The database is of an earlier version: it is brought up to date, and {copy} has it as it was."
        )

    def _stand_by(self) -> None:
        self._trouble, self._was_standby = STANDBY, True
        self.is_settled.set()

    def _wait_for_store(self, trouble: str) -> None:
        if self._trouble != trouble:
            log.error("the store cannot be opened", why=trouble)
            if self.is_settled.is_set():
                self._say(f"Waiting for the database: {trouble}")
        self._trouble = trouble
        self.is_settled.set()

    async def _replaces_leader(self, watch: LeaderWatch) -> bool:
        """Whether this standby leads now, because the leader has stopped working."""
        sign = await asyncio.to_thread(self._store.sign_of_life)
        if not watch.is_silent(sign, time.monotonic()):
            return False
        silence_s = self.limits.leader_silence / SECOND
        log.error("the leader shows no sign of life and is replaced", silent_s=silence_s)
        self._say(f"The leader has shown no sign of life for {silence_s:g} s.")
        return await asyncio.to_thread(self._store.acquire_leadership, by_force=True)

    async def _take_over(self) -> Driver:
        """Recover, and show from now on that this leader works."""
        lease = Lease(self._store, self.limits.leader_silence / SECOND)
        self._beating = asyncio.create_task(lease.keep())
        try:
            return await self._recover(lease)
        except BaseException:
            self._beating.cancel()
            raise

    async def _recover(self, lease: Lease) -> Driver:
        if self._store.database.file.path is not None:
            await asyncio.to_thread(self._store.check)
        named = await asyncio.to_thread(self._checked_identity)
        left_alone = await asyncio.to_thread(self._last_left_alone, named)
        identity = Identity(home_of(self._folder), named.store or uuid4().hex, left_alone)
        driver, found = await asyncio.to_thread(
            recovered,
            self._store,
            self._engine,
            self._stated_policy,
            self.metrics,
            identity,
            self.limits,
        )
        if self._is_adopting:
            driver.followed_ms = max(driver.followed_ms, followed_until(self._folder))
        driver.dispatcher.lease = lease
        driver.failures = FailureReader(self._folder, self._reasons)
        if found.change is not None and not self._ends_lost_runs:
            await asyncio.to_thread(refuse_lost_runs, found.change, driver)
        if named != identity or not found.is_as_stored:  # the steps to come belong to it
            await self._keep_snapshot(driver)
        self._mark_folder(driver)
        self._lock.sign()
        self._engine.number_nodes(driver.controller.state.topology)
        await self._engine.open(driver.inbox.report, driver.inbox.node_report)
        if self._engine.abilities.spans_machines:
            self._settle_nodes(driver)
        await self._reconcile(driver, found)
        self._apply_stated_policy(driver)
        self._apply_stated_speeds(driver)
        self._gpu_use = GpuUseHistory(
            self._folder, driver.clock.now, lambda job: job in driver.jobs
        )
        driver.readings.listeners.append(self._gpu_use.look)
        queries = Queries(driver, self._folder, self._forecaster, self._gpu_use)
        checks = SubmissionChecks(driver, (self._notifier.check, self._check_container))
        engine = self._engine
        files = SubmittedFiles(
            self._folder, lambda: engine.abilities.shares_files, driver.site_limits
        )
        submissions = Submissions(driver, self._folder, files, queries, checks)
        control = JobControl(driver, checks)
        if self._cold_start is ColdStart.REFUSE:
            runs = largest_number(self._folder / "runs")
            last = max(self._store.last_number(), runs, identity.left_alone or 0)
            await asyncio.to_thread(remove_leftovers, self._folder, last)
        self._self_tests = SelfTests(driver, self._folder)
        self._node_tests = NodeTests(driver)
        self._disks = DiskWatch(driver, self._folder)
        self._idle = IdleWatch(driver, self._idle_rule, control.suspend_idle)
        cluster, outputs = ClusterControl(driver, self._self_tests), JobOutputs(files, driver)
        overview = OverviewFacts(driver, queries.device_counts, self._idle)
        self._parts = _Parts(
            driver, files, submissions, outputs, control, cluster, queries, overview
        )
        return driver

    def _settle_nodes(self, driver: Driver) -> None:
        """Nodes of the store that the engine has not found, or does not report soon, are away."""
        driver.nodes.expect_only(node.name for node in self._engine.topology.nodes)

        def settle() -> None:
            driver.nodes.expect_only(())
            driver.inbox.wake()

        asyncio.get_running_loop().call_later(SETTLE_S, settle)

    def _check_container(self, asked: Submission) -> None:
        container = asked.spec.get("container")
        options = container.get("options", ()) if isinstance(container, Mapping) else ()
        if said := refusal(options, self._container_options):
            raise RequestError(f"{said}.")

    async def _reconcile(self, driver: Driver, found: Replayed) -> None:
        """Go on with the runs that exist, and name those that are ended, left alone or adopted."""
        strays = await reconcile(driver, found.lost)
        settled = set(found.lost)
        if self._cold_start is ColdStart.ADOPT:
            adopted = await adopt(driver, self._folder)
            settled |= {*adopted.runs, *adopted.left_alone}
            for line in adopted.lines():
                self._tell(line)
            self._is_adopting = False
            driver.identity = replace(driver.identity, left_alone=self._largest_number())
            await self._keep_snapshot(driver)
        for stray in strays:
            if stray.run not in settled:
                self._tell(_line_about(stray))
        if found.change is not None:
            ended = {stray.run for stray in strays}
            for line in await apply_change(found.change, driver, ended):
                self._tell(line)

    def _apply_stated_policy(self, driver: Driver) -> None:
        """Change to the policy of the command line, unless this is a standby that takes over."""
        stated = self._stated_policy
        if stated is not None and stated != driver.policy and not self._was_standby:
            self._say(f"Policy {stated.name} from now on; it was {driver.policy.name}.")
            driver.inbox.follow_up([LoggedEvent(PolicyChanged.to(stated))])
        else:
            for note in driver.policy_notes():
                self._say(f"Warning: {note}")

    def _apply_stated_speeds(self, driver: Driver) -> None:
        """Let types count as fast as the command line says, unless this is a standby that takes over."""
        stated, state = self._stated_speeds, driver.controller.state
        if stated is None or self._was_standby or dict(stated) == state.stated_speeds:
            return
        types = state.topology.speed_by_type
        for name, _ in stated:
            if name not in types:
                self._say(
                    f"Warning: --speed names {name}, and there is no device of that type now:"
                    f" there are {listing([*types])}."
                )
        driver.inbox.follow_up([LoggedEvent(SpeedsStated(stated))])

    def _tell(self, line: str) -> None:
        """To the terminal and into the log."""
        self._say(line)
        log.warning(line)

    def _check_folder(self) -> Identity | None:
        """What the store says of itself and its folder; RequestError if it is another one."""
        named = named_in(self._store)
        if named is not None:
            refuse_other_folder(self._store, home_of(self._folder, named.home), named)
        return named

    def _checked_identity(self) -> Identity:
        """What the store says of itself and its folder; RequestError where it must not lead here."""
        named = self._check_folder()
        if self._cold_start is ColdStart.REFUSE:
            refuse_cold_start(self._folder, self._store, named, self._engine)
        return named or Identity()

    def _last_left_alone(self, named: Identity) -> int:
        """Folders of jobs up to this number may be another store's; all, where that is not known."""
        if self._cold_start is ColdStart.START_FRESH:
            return self._largest_number()
        known = left_alone(self._folder, named)
        if known is None:
            return 0 if self._is_adopting else self._largest_number()
        return known

    def _largest_number(self) -> int:
        return largest_number(self._folder / "runs", self._folder / "jobs")

    def _mark_folder(self, driver: Driver) -> None:
        """Note in the folder which store it belongs to, and how far that is; not before an adoption."""
        if self._is_adopting:
            return
        identity, seq = driver.identity, driver.writer.seq
        mark = StoreMark(identity.store, self._store.url, seq, identity.left_alone or 0)
        try:
            write_mark(self._folder, mark)
        except OSError as error:
            log.warning("the data folder could not be marked", why=str(error))

    async def _snapshots(self, driver: Driver) -> None:
        """Store a snapshot now and then, so that a restart is quick and old steps can be removed."""
        while True:
            await asyncio.sleep(1.0)
            now = driver.clock.now()
            is_due = now - self._kept_ms >= self._settings.snapshot_ms
            if driver.writer.seq - self._kept_seq >= self._settings.snapshot_steps or (
                is_due and driver.writer.seq > self._kept_seq
            ):
                try:
                    await self._keep_snapshot(driver)
                    await asyncio.to_thread(self._store.compact, now - self.limits.keep_events)
                except LeadershipLost:
                    raise
                except StoreError as error:
                    log.error("no snapshot could be kept", why=str(error))
                    self._kept_ms = now

    async def _check_store(self) -> None:
        """Look for damage, and copy what is whole: at the start and every hour, beside everything else."""
        while True:
            self._damage = await self._changed_trouble(self._damage, self._store.check)
            if not self._damage:
                copies = self._folder / COPIES
                copy = partial(keep_copy, self._store, copies)
                self._not_copied = await self._changed_trouble(self._not_copied, copy)
            await asyncio.sleep(self._settings.check_ms / SECOND)

    async def _stamp_of(self, block: InputBlock) -> str | None:
        """What a path is like now for the user whose job failed on it last; None where that is not known."""
        if self._parts is None:
            return None
        account = None
        if self.runs_as_user:
            rows = [await asyncio.to_thread(self._store.job, each.job) for each in block.failures]
            known = [stored_submission(row).recipe.account for row in rows if row is not None]
            if not known:
                return None
            account = known[-1]
        return await self._parts.files.stamp(block.path, account)

    async def _watch_file(self) -> None:
        """Say soon that the database was removed or exchanged."""
        while True:
            self._removed = await self._changed_trouble(self._removed, self._store.check_file)
            await asyncio.sleep(1.0)

    async def _changed_trouble(self, before: str, act: Callable[[], object]) -> str:
        """What the store says to it now, empty if it works; told when it changes."""
        try:
            await asyncio.to_thread(act)
        except StoreError as error:
            if str(error) != before:
                self._tell(str(error))
            return str(error)
        return ""

    async def _tidy(self, driver: Driver) -> None:
        """Remove logs and code that are no longer needed."""
        while True:
            await asyncio.sleep(tidy_pause_ms(self._settings, self.limits) / SECOND)
            now = driver.clock.now()
            before = now - self.limits.keep_logs
            place, store, is_live = self._folder, self._store, driver.jobs.__contains__
            try:
                for run in await asyncio.to_thread(outdated_runs, place, store, is_live, before):
                    await self._engine.forget(run)
                await asyncio.to_thread(drop_code, place, store, is_live, before)
                saved_before = now - self.limits.keep_checkpoints
                await asyncio.to_thread(drop_checkpoints, place, store, is_live, saved_before)
                await asyncio.to_thread(drop_gpu_use, place, store, is_live, before)
                used = {live.recipe.program_files for live in driver.jobs.values()}
                await asyncio.to_thread(drop_program_lists, place, used, before)
            except (StoreError, OSError) as error:
                log.warning("old logs could not be removed", why=str(error))

    async def _thin_progress(self, driver: Driver) -> None:
        """Thin old reports a few at a time, with pauses in which others write."""
        thinning, settings = ProgressThinning(self._store), self._settings
        while True:
            keep_ms = self.limits.keep_progress
            await asyncio.sleep(min(settings.tidy_ms, max(MINUTE, keep_ms)) / SECOND)
            try:
                while await asyncio.to_thread(thinning.step, driver.clock.now(), keep_ms):
                    await asyncio.sleep(THINNING_PAUSE_S)
            except LeadershipLost:
                raise
            except StoreError as error:
                log.warning("old progress reports could not be thinned", why=str(error))

    async def _keep_snapshot(self, driver: Driver) -> None:
        async with driver.turn:
            if driver.writer.is_torn:
                return
            snapshot = await asyncio.to_thread(snapshot_of_driver, driver)
        await asyncio.to_thread(self._store.keep_snapshot, snapshot)
        self._kept_seq, self._kept_ms = snapshot.seq, driver.clock.now()
        self._mark_folder(driver)

    # -- parts -----------------------------------------------------------------------------------------

    def _part(self) -> _Parts:
        if self._parts is None:
            raise Unavailable(self._trouble)
        return self._parts

    @property
    def driver(self) -> Driver:
        return self._part().driver

    @property
    def submissions(self) -> Submissions:
        return self._part().submissions

    @property
    def job_outputs(self) -> JobOutputs:
        return self._part().job_outputs

    @property
    def job_ports(self) -> JobPorts:
        return JobPorts(self._part().driver)

    @property
    def job_control(self) -> JobControl:
        return self._part().job_control

    @property
    def cluster_control(self) -> ClusterControl:
        return self._part().cluster_control

    @property
    def queries(self) -> Queries:
        return self._part().queries

    @property
    def overview(self) -> OverviewFacts:
        return self._part().overview

    def health(self) -> Health:
        if self._parts is None and self._trouble == STANDBY:
            return Health(STANDBY_ROLE)
        if self._parts is None:
            jobs = [run.job for run in self._engine.unwatched()]
            note = f"Jobs go on meanwhile ({', '.join(jobs)}): `trainmaster cancel ID` ends one."
            return Health(STANDBY_ROLE, self._trouble, (note,) if jobs else ())
        driver = self.driver
        signs = vital_signs(
            self._folder, driver.stepped_s, driver.step_begun_s, self._threads.wait_s
        )
        notes = [*driver.notes(), *([self._not_copied] if self._not_copied else [])]
        notes += [*self._engine.troubles(), *driver.readings.notes(), *self._self_tests.notes()]
        notes += self._node_tests.notes()
        notes += [*self._disks.notes(), *self._notifier.notes(), *signs.notes(self.limits)]
        of_users = (*driver.job_notes(), *self._notifier.notes_of_users())
        notes += self._notifier.notes_of_users()
        trouble = (
            driver.writer.trouble or self._removed or self._damage or signs.trouble(self.limits)
        )
        return Health(ACTIVE_ROLE, trouble, tuple(notes), signs, of_users)

    @property
    def folder(self) -> Path:
        return self._folder

    async def cancel_unrecorded(self, job: str, by: Asker) -> Sequence[str]:
        """End runs of this job, or array, while the database is away; the ids of those that there were.

        Their journals say that they were cancelled, and so will the store once it can be reached.
        """
        if self._parts is not None or self._was_standby:
            return ()
        named = [run for run in self._engine.unwatched() if job in (run.job, run.job.split("_")[0])]
        ours = [run for run in named if by.finds(self._owner_of(run))]
        ended = [run for run in ours if await asyncio.to_thread(self._engine.cancel_unwatched, run)]
        log.warning("cancelled while the database is away", runs=[str(run) for run in ended])
        return [run.job for run in ended]

    def _owner_of(self, run: Run) -> str:
        """The user of a run, by the record beside it; empty where that cannot be read."""
        recorded = self._engine.recorded(run)
        try:
            return "" if recorded is None else LaunchRecord.from_json(recorded.record).row.user
        except ValueError:
            return ""

    @property
    def store_name(self) -> str:
        """The name that its database was given once at random; empty while it does not lead."""
        return "" if self._parts is None else self._parts.driver.identity.store

    async def status(self) -> StatusRow:
        """What it is and does, whatever its role."""
        health, is_active = self.health(), self._parts is not None
        devices, used = self.queries.device_counts() if is_active else (None, None)
        nodes = known_nodes(self.driver.controller.state) if is_active else ()
        trouble, counts = health.trouble, None
        try:
            counts = dict(await self.queries.counts()) if is_active else None
        except StoreError as error:
            trouble = trouble or str(error)
        return StatusRow(
            role=health.role,
            trouble=trouble or None,
            notes=list(health.notes),
            version=__version__,
            pid=os.getpid(),
            folder=str(self._folder),
            database=self._store.url,
            engine=self._engine.name,
            cluster=self._engine.abilities.cluster,
            fence_s=self._engine.abilities.fence_s,
            policy=self.driver.policy.name if is_active else None,
            devices=devices,
            used=used,
            device_type=nodes[0].type.name if nodes else None,
            jobs=counts,
        )

    def live_jobs(self) -> tuple[int, int]:
        """How many jobs have devices, and how many wait or are held."""
        records = self.driver.controller.state.jobs.values()
        running = sum(record.phase in ALLOCATED for record in records)
        return running, len(records) - running

    def jobs_without_account(self) -> int:
        """How many live jobs run as the manager, because they were submitted when all did."""
        return sum(live.recipe.account is None for live in self.driver.jobs.values())

    async def record_trace(self) -> str:
        """The history as a native trace (CSV)."""
        topology = self.driver.controller.state.topology
        return await asyncio.to_thread(trace_of, self._store, topology)

    async def record_scenario(self) -> Recording:
        """The cluster, queues, switching costs and policy that belong to that trace."""
        driver = self.driver
        present = Present.of(driver.controller.state)
        return await asyncio.to_thread(recording_of, self._store, present, driver.policy)

    async def history_since_ms(self) -> int | None:
        """When the oldest job that is kept was submitted; None: there is none."""
        return await asyncio.to_thread(self._store.first_submission)

    async def address_of_state(self) -> str:
        """The database, for a process of ours that reads the present state there: it has just been stored."""
        driver = self.driver
        if driver.writer.seq != self._kept_seq:
            await self._keep_snapshot(driver)
        return self._store.address

    def record_events(self) -> AsyncIterator[str]:
        """The event log as lines of JSON: a snapshot first, then steps."""
        return events_of(self._store)


def _line_about(stray: StrayRun) -> str:
    """Nothing is ended, or left running, without a line that names it."""
    run = f"run {stray.run.job}.{stray.run.attempt} (process {stray.pid})"
    if stray.is_ended:
        return f"Ended {run}: job {stray.run.job} does not need it any more."
    return (
        f"Left alone: {run}, of a job that this database does not know. Start with --adopt to"
        f" take over what can be, or end it with `kill -9 {stray.pid}`."
    )
