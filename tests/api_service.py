"""A small daemon in memory, for tests of the API: first come, first served, on devices that do nothing.

It has every method of `Commands` and `Queries` that the API calls (a test holds their signatures together):
jobs wait with a reason when devices are short, start when others
leave, are held, suspended and ended; their stories, changes and logs (in real files) are there to look at.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

from starlette.types import ASGIApp

from tests.usage_sums import usage_report
from trainmaster.api.peer import FromPeer, Peer
from trainmaster.catalog import CatalogError, policy_class
from trainmaster.config.limits import Limits
from trainmaster.config.options import OptionError, read_options
from trainmaster.config.quotas import prices_as_stated
from trainmaster.core.state import State
from trainmaster.daemon import response_models
from trainmaster.daemon.accounts import Accounts
from trainmaster.daemon.cluster_control import WantedReservation
from trainmaster.daemon.gpu_use_history import UseCurve
from trainmaster.daemon.job_history import JobHistory, LastHang, Progress
from trainmaster.daemon.job_ports import PortConnection
from trainmaster.daemon.live_job import LiveJob
from trainmaster.daemon.quota_rows import user_limits_rows
from trainmaster.daemon.recording import Recording
from trainmaster.daemon.response_models import (
    ChangeRow,
    DeviceRow,
    GpuCurve,
    GpuRow,
    InputRow,
    JobPlacement,
    LeftOutNode,
    NodeCurves,
    NodeRow,
    PlacedDevice,
    PlacedNode,
    PolicyRow,
    PricesRow,
    QueueRow,
    ReservationRow,
    StatusRow,
    UsageReport,
    UserLimitsRow,
)
from trainmaster.daemon.run_gpu_use import RunUse
from trainmaster.daemon.self_tests import TestedDevice
from trainmaster.daemon.service_api import (
    Accepted,
    Asker,
    Conflict,
    Forecast,
    Health,
    JobChanges,
    JobStatus,
    LogFile,
    NotFound,
    RequestError,
    Submission,
    Unavailable,
)
from trainmaster.failures.failure_report import failure_report
from trainmaster.failures.self_test_rule import Verdict
from trainmaster.model.events import JobSubmitted
from trainmaster.model.failure_report import FailureReport, JobEnd
from trainmaster.model.job import Run, Source
from trainmaster.model.job_state import ENDED_STATES
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.memory_estimate import MemoryCalibration, MemorySource
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.queue import Queue
from trainmaster.model.quota import Prices, UserLimits
from trainmaster.model.reasons import Reason, Why
from trainmaster.model.run_time import Calibration
from trainmaster.model.topology import parse_shorthand
from trainmaster.model.units import GIB, HOUR, WHOLE
from trainmaster.store.rows import (
    ChargeRow,
    JobFilter,
    StoredJob,
    StoredProgress,
    StoryRow,
    TokenRow,
    UserRow,
)

ENDS = ("succeeded", "failed", "timed_out", "cancelled")
ALLOCATED = ("running",)


@dataclass
class Known:
    """One job, as it changes."""

    asked: Submission
    row: StoredJob
    number: int
    devices: tuple[int, ...] = ()
    attempt: int = 0
    preemptions: int = 0
    is_held: bool = False
    progress: list[StoredProgress] = field(default_factory=list)
    total_steps: int | None = None
    story: list[StoryRow] = field(default_factory=list)


def by_us(app: ASGIApp, uid: int | None = None) -> ASGIApp:
    """The application as the manager's own user asks it over the Unix socket, or another Unix user."""
    return FromPeer(app, Peer(os.getpid(), os.geteuid() if uid is None else uid, 0))


class MemoryAccounts:
    """What the store keeps of tokens and users."""

    def __init__(self) -> None:
        self.by_digest: dict[str, TokenRow] = {}
        self.by_name: dict[str, UserRow] = {}

    def token(self, digest: str) -> TokenRow | None:
        return self.by_digest.get(digest)

    def token_by_id(self, id: str) -> TokenRow | None:
        return next((row for row in self.tokens() if row.id == id), None)

    def tokens(self) -> Sequence[TokenRow]:
        return list(self.by_digest.values())

    def user(self, name: str) -> UserRow | None:
        return self.by_name.get(name)

    def users(self) -> Sequence[UserRow]:
        return list(self.by_name.values())

    def keep_account(self, row: TokenRow | UserRow) -> None:
        if isinstance(row, TokenRow):
            self.by_digest[row.digest] = row
        else:
            self.by_name[row.id] = row

    def forget_user(self, name: str) -> None:
        self.by_name.pop(name, None)


class MemoryService:
    """The service; `advance` moves its clock."""

    def __init__(self, folder: Path, devices: int = 4, *, ends_at_once: bool = False) -> None:
        self.folder = folder
        self.kept = MemoryAccounts()
        self.accounts = Accounts(self.kept)
        self.store_name = "0f" * 16
        self.limits = Limits()
        self.runs_as_user = False
        self.now = 1_800_000_000_000
        self.known: dict[str, Known] = {}
        self.arrays: dict[str, tuple[str, ...]] = {}
        self.curves: dict[str, UseCurve] = {}
        self.keys: dict[str, tuple[str, list[Accepted]]] = {}
        self.stated: dict[str, Queue] = {}
        self.state = State(parse_shorthand("1x4"))
        """Limits of users and prices."""
        self.devices = devices
        self.device_type = "gpu"
        self.left_out_nodes: list[LeftOutNode] = []
        self.role, self.trouble = "active", ""
        self.node_state = "up"
        self.kept_free: dict[int, ReservationRow] = {
            3: ReservationRow(
                3, True, False, 1.5, 2.5, ["n0"], ["n0:0"], "", "", "", "ada", False, []
            )
        }
        self.no_output: dict[str, str] = {}
        """Why there is none of a job."""
        self.blocked: list[str] = []
        """Inputs that are set aside."""
        self.ends_at_once = ends_at_once
        """Jobs succeed as soon as they start, and streams end when they have said all."""
        self.seen: list[ChangeRow] = []
        self.news = asyncio.Condition()
        self.chosen = PolicyRow("fifo", {"backfill": "none"}, self.now / 1000, None)
        self._number = 0
        self.ports: set[tuple[str, int]] = set()
        """Jobs and the ports that they listen on."""

    @property
    def queries(self) -> MemoryService:
        return self

    submissions = job_outputs = job_ports = job_control = cluster_control = queries

    # -- ports of jobs ---------------------------------------------------------------------------------

    async def connect(self, job: JobStatus, port: int) -> PortConnection:
        if (job.row.id, port) not in self.ports:
            raise Conflict(f"no process of job {job.row.id} listens on port {port}.")
        return PortConnection(*await asyncio.open_connection("127.0.0.1", port))

    # -- commands ------------------------------------------------------------------------------------

    async def submit(
        self,
        asked: Sequence[Submission],
        key: str | None = None,
        request_hash: str = "",
        by: Asker | None = None,
    ) -> Sequence[Accepted]:
        self._needs_store()
        if key is not None and key in self.keys:
            known_hash, answer = self.keys[key]
            if known_hash != request_hash:
                raise Conflict(f"The key {key} was used for another submission: take a new one.")
            return [replace(each, was_known=True) for each in answer]
        for each in asked:
            for dependency in each.depends_on:
                if dependency.job not in self.known:
                    raise NotFound(f"There is no job {dependency.job} to wait for.")
        accepted = [self._take_in(each) for each in asked]
        if key is not None:
            self.keys[key] = (request_hash, accepted)
        await self._settle()
        return accepted

    async def check(self, asked: Submission, by: Asker | None = None) -> tuple[JobStatus, Forecast]:
        self._needs_store()
        known = Known(asked, self._row("0", asked, None, None), 0)
        return self._status(known), Forecast(self.now, "as if submitted now")

    async def cancel(self, job: str, user: str = "", *, now: bool = False) -> None:
        for known in self._live(job):
            self._end(known, "cancelled", None)
        await self._settle()

    async def suspend(self, job: str, user: str = "", *, force: bool = False) -> None:
        for known in self._live(job):
            known.is_held = True
            if known.row.state == "running":
                known.preemptions += 1
                known.devices = ()
                self._becomes(known, "suspended")
        await self._settle()

    async def idle(self, job: str, user: str = "") -> None:
        await self.suspend(job)

    async def resume(self, job: str, user: str = "") -> None:
        for known in self._live(job):
            if not known.is_held:
                raise Conflict(f"Job {job} is {known.row.state}: there is nothing to resume.")
            known.is_held = False
            self._tell(known, "released")
        await self._settle()

    async def save(self, job: str, user: str = "") -> None:
        for known in self._live(job):
            if known.row.state != "running":
                raise Conflict(f"Job {job} does not run.")
            self._tell(known, "saved")
        await self._settle()

    async def move(self, job: str, node: str, *, force: bool = False) -> None:
        if node not in ("n0", "n1"):
            raise NotFound(f"There is no node {node}: there is n0.")
        for known in self._live(job):
            self._tell(known, "moved", {"on": [node]})
        await self._settle()

    async def change(self, job: str, changes: JobChanges) -> None:
        for known in self._live(job):
            stated = changes.model_dump(exclude_unset=True)
            own = {name: stated[name] for name in ("priority", "retries") if name in stated}
            known.asked = replace(known.asked, job=replace(known.asked.job, **own))
            shown = {name: stated[name] for name in ("queue", "name") if name in stated}
            known.row = replace(known.row, **shown)
            self._tell(known, "changed")
        await self._settle()

    async def define_queue(self, queue: Queue) -> None:
        self._needs_store()
        self.stated[queue.name] = queue

    async def limit_user(self, limits: UserLimits) -> None:
        self._needs_store()
        self.state.user_limits[limits.user] = limits

    async def set_prices(self, prices: Prices) -> None:
        self._needs_store()
        self.state.prices = prices

    async def remove_queue(self, name: str) -> None:
        self._needs_store()
        if self.stated.pop(name, None) is None:
            raise NotFound(f"There is no queue {name}.")

    async def drain(self, node: str) -> None:
        self._needs_store()
        if node != "n0":
            raise NotFound(f"There is no node {node}.")
        self.node_state = "draining"

    async def forget(self, node: str) -> None:
        """As if it were away."""
        self._needs_store()
        if node != "n0":
            raise NotFound(f"There is no node {node}.")

    async def undrain(self, node: str) -> None:
        await self.drain(node)
        self.node_state = "up"

    async def block(self, name: str) -> None:
        await self.drain(name.partition(":")[0])
        self.node_state = "set aside"

    async def unblock(self, name: str) -> None:
        await self.undrain(name.partition(":")[0])

    async def reserve(self, wanted: WantedReservation, by: str) -> int:
        self._needs_store()
        number, begin_s = 4, (wanted.begin_ms or 0) / 1000
        whom = (wanted.user, wanted.queue, wanted.reason, by, wanted.force)
        is_maintenance, end_s = not (wanted.user or wanted.queue), begin_s + wanted.length_ms / 1000
        self.kept_free[number] = ReservationRow(
            number, is_maintenance, False, begin_s, end_s, ["n0"], ["n0:0"], *whom, []
        )
        return number

    async def cancel_reservation(self, number: int) -> None:
        self._needs_store()
        if number not in self.kept_free:
            raise NotFound(f"There is no reservation {number}.")

    async def unblock_input(self, path: str) -> str:
        self._needs_store()
        if path not in self.blocked:
            raise NotFound(f"The input {path} is not set aside.")
        self.blocked.remove(path)
        return path

    async def test(self, name: str) -> Sequence[TestedDevice]:
        if not name.startswith("n0"):
            raise NotFound(f"There is no node {name}.")
        return [TestedDevice("n0:0", Verdict.GOOD, "Its self-test passed.")]

    async def set_policy(self, spec: PolicySpec) -> None:
        self._needs_store()
        name, options = spec.name, dict(spec.options)
        try:
            kind = policy_class(name)
            read_options(name, kind.options_type, options)
        except (CatalogError, OptionError) as error:
            raise RequestError(str(error)) from None
        if kind.needs_oracle:
            raise RequestError(f"{name} knows the future: it is for the simulator only.")
        self.chosen = PolicyRow(name, options, self.now / 1000, None)

    # -- queries -------------------------------------------------------------------------------------

    def health(self) -> Health:
        return Health(self.role, self.trouble)

    @property
    def shares_files(self) -> bool:
        return True

    async def cancel_unrecorded(self, job: str, by: Asker) -> Sequence[str]:
        return ()

    async def status(self) -> StatusRow:
        return StatusRow(
            role=self.role,
            trouble=self.trouble or None,
            notes=[],
            version="0",
            pid=1,
            folder=str(self.folder),
            database="memory",
            engine="local",
            cluster=None,
            fence_s=None,
            policy=self.chosen.name,
            devices=self.devices,
            used=0,
            device_type=self.device_type,
            jobs={},
        )

    def now_ms(self) -> int:
        return self.now

    async def jobs(self, wanted: JobFilter) -> Sequence[JobStatus]:
        self._needs_lead()
        found = []
        below = None if wanted.before is None else _order(wanted.before)
        holders = self._holders()
        for known in sorted(self.known.values(), key=lambda k: _order(k.row.id), reverse=True):
            row = known.row
            fits = (
                (not wanted.states or row.state in wanted.states)
                and wanted.user in (None, row.user)
                and wanted.queue in (None, row.queue)
                and wanted.array in (None, row.array)
                and (wanted.text is None or wanted.text in row.name or wanted.text in row.id)
                and (wanted.since_ms is None or row.submit_ms >= wanted.since_ms)
                and (below is None or _order(row.id) < below)
            )
            if fits:
                found.append(self._status(known, holders))
            if len(found) == wanted.limit:
                break
        return found

    async def failures(self, wanted: JobFilter) -> FailureReport:
        self._needs_lead()
        ended = [k.row for k in self.known.values() if k.row.state in ENDED_STATES]
        return failure_report([], [JobEnd(row.state, row.gpus) for row in ended])

    async def calibration(self) -> Sequence[Calibration]:
        return [Calibration(Source.STEPS, forecasts=40, within=33, median_error=0.0612)]

    async def memory_calibration(self) -> Sequence[MemoryCalibration]:
        return [MemoryCalibration(MemorySource.LEARNED, True, 20, 18, 19, median_error=0.0123)]

    async def array_states(self, arrays: Sequence[str]) -> dict[str, dict[str, int]]:
        return {
            array: dict(Counter(self.known[id].row.state for id in self.arrays.get(array, ())))
            for array in arrays
        }

    def listed(self, live: LiveJob) -> JobStatus:
        return self._status(self.known[live.id])

    async def counts(self) -> Mapping[str, int]:
        self._needs_lead()
        return Counter(known.row.state for known in self.known.values())

    def live_jobs_of(self, user: str) -> frozenset[str]:
        return frozenset(
            id
            for id, known in self.known.items()
            if known.row.user == user and known.row.state not in ENDS
        )

    async def job(self, job: str, by: Asker | None = None) -> JobStatus:
        found = self._status(self._named(job, by))
        array = job if job in self.arrays else None
        if found.row.array is not None and job == found.row.name:
            array = found.row.array
        if array is not None:
            row = replace(found.row, id=array, array=None, array_index=None)
            elements = tuple(self._status(self.known[id]) for id in self.arrays[array])
            return replace(found, row=row, elements=elements)
        return found

    async def forecast(self, what: str | JobSubmitted) -> Forecast:
        known = self._named(what if isinstance(what, str) else what.job.id)
        if known.is_held:
            return Forecast(None, "it is held")
        return Forecast(self.now + 60_000, "every job ends within a minute")

    async def story(self, job: str) -> Sequence[StoryRow]:
        return list(self._named(job).story)

    def running_progress(self) -> Sequence[tuple[str, str, Progress]]:
        statuses = [self._status(each) for each in self.known.values()]
        return [
            (each.row.id, each.row.name, each.history.progress)
            for each in statuses
            if each.row.state == "running" and each.history.progress is not None
        ]

    async def progress(self, job: str) -> Sequence[StoredProgress]:
        return list(self._named(job).progress)

    async def gpu_use(self, job: str) -> UseCurve:
        return self.curves.get(job, UseCurve())

    def why_no_gpu_use(self) -> str:
        return ""

    def placement(self, job: str) -> JobPlacement:
        own = self._named(job).devices
        devices = [PlacedDevice(f"n0:{n}", float(n in own), 0) for n in range(self.devices)]
        return JobPlacement([PlacedNode("n0", "gpu", {}, [devices])], "node", False)

    def stragglers(self) -> Sequence[tuple[LiveJob, int, str]]:
        return ()

    def running_hangs(self) -> Sequence[tuple[str, str, LastHang]]:
        statuses = [self._status(each) for each in self.known.values()]
        return [
            (each.row.id, each.row.name, each.history.hang)
            for each in statuses
            if each.row.state == "running" and each.history.hang is not None
        ]

    async def stack_files(self, job: str) -> Mapping[int, Path]:
        path = self.folder / f"{job}.stacks"
        return {1: path} if path.exists() else {}

    def hang(self, job: str, stacks: str) -> None:
        """Its first attempt hung, with these stacks."""
        (self.folder / f"{job}.stacks").write_text(stacks)

    async def why_no_output(self, row: StoredJob) -> str | None:
        return self.no_output.get(row.id)

    async def log_files(self, job: str) -> Sequence[LogFile]:
        known = self._named(job)
        found = []
        for attempt in range(1, known.attempt + 1):
            for rank in range(known.asked.job.demand.nominal.count):
                base = self.log_path(known.row.id, attempt, rank)
                older = sorted(base.parent.glob(f"{base.name}.*"), reverse=True)
                found.append(LogFile(attempt, rank, (*older, base)))
        return found

    def running_gpu_use(self) -> Sequence[tuple[str, str, RunUse]]:
        return [
            (id, known.row.name, RunUse(Run(id, 1), {"GPU-0": GIB}, {"GPU-0": 250_000}, 1))
            for id, known in self.known.items()
            if 0 in known.devices and self.device_type != "slot"
        ]

    def _gpu(self, number: int) -> GpuRow | None:
        if self.device_type == "slot":
            return None
        return GpuRow(f"GPU-{number}", 40 * GIB, 80 * GIB, 3 * GIB, 0.25, 41, 120, 700, 0)

    def device_types(self) -> Set[str]:
        self._needs_lead()
        return {self.device_type}

    def node_curves(self, name: str, since_ms: int) -> NodeCurves:
        self._needs_lead()
        if name != "n0":
            raise NotFound(f"There is no node {name}.")
        return NodeCurves([1.0], 20.0, [GpuCurve("n0:0", [0.5], [1 << 30], [40.0], [300.0])])

    def nodes(self) -> Sequence[NodeRow]:
        self._needs_lead()
        on: list[list[str]] = [[] for _ in range(self.devices)]
        for known in self.known.values():
            for device in known.devices:
                on[device].append(known.row.id)
        return [
            NodeRow(
                name="n0",
                host=None,
                domains={},
                type=self.device_type,
                speed=1.0,
                speed_source="assumed",
                state=self.node_state,
                devices=[
                    DeviceRow(f"n0:{number}", jobs, self._gpu(number))
                    for number, jobs in enumerate(on)
                ],
                frozen=[],
                leaving=[],
                cpus=8,
                memory_bytes=64 * GIB,
                remarks=["Memory is not limited here."],
            )
        ]

    def left_out(self) -> Sequence[LeftOutNode]:
        return self.left_out_nodes

    def reservations(self) -> Sequence[ReservationRow]:
        self._needs_lead()
        return list(self.kept_free.values())

    def inputs(self) -> Sequence[InputRow]:
        self._needs_lead()
        return [
            InputRow(path, 1.5, ["3", "4", "5"], ["ada", "bob"], ["missing-file"], ["6"])
            for path in self.blocked
        ]

    def queues(self) -> Sequence[QueueRow]:
        self._needs_lead()
        names = {**dict.fromkeys(self.stated, True), "default": True}
        for known in self.known.values():
            names.setdefault(known.row.queue, True)
        found = []
        for name in names:
            stated = self.stated.get(name, Queue(name))
            own = [k for k in self.known.values() if k.row.queue == name]
            found.append(
                QueueRow(
                    name=name,
                    parent=stated.parent,
                    weight=stated.weight,
                    guaranteed_gpus=stated.guaranteed / WHOLE,
                    maximum_gpus=None if stated.maximum is None else stated.maximum / WHOLE,
                    allow_unpreemptible=stated.allow_unpreemptible,
                    is_defined=name in self.stated,
                    running=sum(k.row.state == "running" for k in own),
                    pending=sum(k.row.state == "pending" for k in own),
                    suspended=sum(k.row.state == "suspended" for k in own),
                    gpus=sum(len(k.devices) for k in own),
                )
            )
        return found

    def user_limits(self, only: str | None = None) -> Sequence[UserLimitsRow]:
        self._needs_lead()
        return user_limits_rows(self.state, self.now, only)

    def prices(self) -> PricesRow:
        self._needs_lead()
        return PricesRow(dict(prices_as_stated(self.state.prices)), self.state.prices.currency)

    async def usage(
        self,
        by: str,
        since_ms: int,
        until_ms: int,
        user: str | None = None,
        queue: str | None = None,
    ) -> UsageReport:
        self._needs_lead()
        row = ChargeRow("1", "ada", "default", "gpu", 0, self.now, 5 * HOUR, 0, 3_000_000, "EUR")
        return usage_report([row], by, since_ms, until_ms, "EUR")

    def gpu_seconds(self) -> Mapping[tuple[str, str, str], float]:
        return {("default", "ada", "gpu"): 1.5}

    def policy(self) -> PolicyRow:
        self._needs_lead()
        return self.chosen

    async def outputs(self, job: JobStatus) -> tuple[LaunchSpec, Sequence[tuple[str, int, float]]]:
        known = self._named(job.row.id)
        if not known.asked.keeps_code:
            raise Conflict(f"Job {job.row.id} ran in its folder itself.")
        return known.asked.recipe, [("model.pt", 3, 1.0)]

    def outputs_archive(self, recipe: LaunchSpec) -> AsyncGenerator[bytes]:
        async def pieces() -> AsyncGenerator[bytes]:
            yield b""

        return pieces()

    async def environment(self, job: str) -> tuple[Path, Mapping[str, str]]:
        known = self._named(job)
        if known.row.state != "running":
            raise Conflict(f"Job {job} is not running.")
        return Path(known.asked.recipe.workdir), {"RANK": "0", **dict(known.asked.recipe.env)}

    async def changes(self, after: int | None = None) -> AsyncGenerator[Sequence[ChangeRow]]:
        at = len(self.seen) if after is None else sum(each.seq <= after for each in self.seen)
        while True:
            while at < len(self.seen):
                yield [self.seen[at]]
                at += 1
            if self.ends_at_once:
                return
            async with self.news:
                await self.news.wait()

    async def record_trace(self) -> str:
        lines = ["job_id,submit_s,gpus,duration_s"]
        lines += [f"{k.row.id},{k.row.submit_ms / 1000},1,1" for k in self.known.values()]
        return "\n".join(lines) + "\n"

    async def record_scenario(self) -> Recording:
        cluster = {"nodes": [{"name": "vm", "gpus": 4}]}
        return Recording(cluster, {}, {"base": "ideal"}, PolicySpec("fifo"))

    async def history_since_ms(self) -> int | None:
        return None

    async def address_of_state(self) -> str:
        return f"sqlite:///{self.folder}/nothing.db"

    async def record_events(self) -> AsyncIterator[str]:
        self._needs_lead()
        yield json.dumps({"snapshot": 0}) + "\n"
        for change in self.seen:
            yield json.dumps({"seq": change.seq, "what": change.what}) + "\n"

    # -- what a test may do ----------------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        self.now += ms

    async def finish(self, job: str, code: int = 0) -> None:
        self._end(self._named(job), "failed" if code else "succeeded", code)
        await self._settle()

    async def fail_and_retry(self, job: str) -> None:
        known = self._named(job)
        known.attempt += 1
        self._tell(known, "started", {"attempt": known.attempt})
        await self._settle()

    def report(self, job: str, step: int, loss: float, total: int | None = None) -> None:
        known = self._named(job)
        known.total_steps = total
        known.progress.append(StoredProgress(job, self.now, step, loss, 100.0))

    def log_path(self, job: str, attempt: int, rank: int) -> Path:
        return self.folder / f"{job}-{attempt}-{rank}.log"

    def write(self, job: str, content: bytes, attempt: int = 1, rank: int = 0) -> None:
        with self.log_path(job, attempt, rank).open("ab") as file:
            file.write(content)

    def rotate(self, job: str, attempt: int = 1, rank: int = 0) -> None:
        base = self.log_path(job, attempt, rank)
        older = sorted(base.parent.glob(f"{base.name}.*"), reverse=True)
        for path in older:
            path.rename(base.with_name(f"{base.name}.{int(path.suffix[1:]) + 1}"))
        base.rename(base.with_name(f"{base.name}.1"))

    # -- inside ----------------------------------------------------------------------------------------

    def _needs_lead(self) -> None:
        if self.role != "active":
            raise Unavailable("This manager is a standby: ask the active one.")

    def _needs_store(self) -> None:
        self._needs_lead()
        if self.trouble:
            raise Unavailable(self.trouble)

    def _named(self, job: str, by: Asker | None = None) -> Known:
        self._needs_lead()
        id = self.arrays[job][0] if job in self.arrays else job
        if id in self.known and (by is None or by.finds(self.known[id].row.user)):
            return self.known[id]
        named = [known for known in reversed(self.known.values()) if known.row.name == job]
        own = [known for known in named if by is not None and known.row.user == by.user]
        for known in own or (named if by is None or by.sees_all else ()):
            return known
        raise NotFound(f"There is no job {job}.")

    def _live(self, job: str) -> list[Known]:
        self._needs_store()
        found = [self.known[each] for each in self.arrays.get(job, ())] or [self._named(job)]
        live = [each for each in found if each.row.state not in ENDS]
        if not live:
            raise Conflict(f"Job {job} has ended.")
        return live

    def _row(self, id: str, asked: Submission, array: str | None, index: int | None) -> StoredJob:
        return StoredJob(
            id=id,
            name=asked.recipe.name,
            user=asked.job.user,
            queue=asked.job.queue,
            state="pending",
            submit_ms=self.now,
            start_ms=None,
            finish_ms=None,
            gpus=asked.job.demand.nominal.total_share,
            exit_code=None,
            array=array,
            array_index=index,
            spec_json=json.dumps(asked.spec),
            record_json="{}",
        )

    def _take_in(self, asked: Submission) -> Accepted:
        self._number += 1
        own = str(self._number)
        if asked.array is None:
            self._add(own, asked, None, None)
            return Accepted((own,))
        ids = tuple(f"{own}_{index}" for index in asked.array.indices)
        for id, index in zip(ids, asked.array.indices, strict=True):
            self._add(id, asked, own, index)
        self.arrays[own] = ids
        return Accepted((own, *ids))

    def _add(self, id: str, asked: Submission, array: str | None, index: int | None) -> None:
        known = Known(asked, self._row(id, asked, array, index), len(self.known))
        known.is_held = asked.is_held
        self.known[id] = known
        self._tell(known, "submitted")

    def _tell(self, known: Known, what: str, detail: Mapping[str, object] | None = None) -> None:
        seq = len(self.seen) + 1
        self.seen.append(
            ChangeRow(
                seq,
                self.now / 1000,
                what,
                known.row.id,
                response_models.plain(detail or {}),
                known.row.user,
            )
        )
        known.story.append(
            StoryRow(known.row.id, self.now, len(self.seen), what, json.dumps(detail or {}))
        )

    def _becomes(self, known: Known, state: str) -> None:
        known.row = replace(known.row, state=state)
        self._tell(known, state)

    def _end(self, known: Known, state: str, code: int | None) -> None:
        known.devices, known.is_held = (), False
        known.row = replace(known.row, state=state, finish_ms=self.now, exit_code=code)
        self._tell(known, state, {"exit_code": code})

    async def _settle(self) -> None:
        """Start the job that is first in line, while there are devices; then tell those who watch."""
        for known in self.known.values():
            if known.is_held or known.row.state not in ("pending", "suspended"):
                continue
            free = self._free()
            need = known.asked.job.demand.nominal.count
            if need > len(free):
                break
            known.devices = tuple(free[:need])
            known.attempt += 1
            known.row = replace(
                known.row,
                state="running",
                start_ms=known.row.start_ms if known.row.start_ms is not None else self.now,
            )
            on = [f"n0:{device}" for device in known.devices]
            self._tell(known, "started", {"attempt": known.attempt, "on": on})
            for rank in range(need):
                self.log_path(known.row.id, known.attempt, rank).touch()
            if self.ends_at_once:
                self._end(known, "succeeded", 0)
        async with self.news:
            self.news.notify_all()

    def _holders(self) -> list[Known]:
        return [known for known in self.known.values() if known.devices]

    def _free(self, holders: Sequence[Known] | None = None) -> list[int]:
        found = self._holders() if holders is None else holders
        taken = {device for known in found for device in known.devices}
        return [device for device in range(self.devices) if device not in taken]

    def _reason(self, known: Known, holders: Sequence[Known]) -> Reason | None:
        if known.row.state not in ("pending", "suspended"):
            return None
        free, need = len(self._free(holders)) * WHOLE, known.asked.job.demand.nominal.total_share
        if known.is_held:
            has_run = known.row.state == "suspended"
            return Reason(Why.SUSPENDED_BY_USER if has_run else Why.HELD, need)
        if known.asked.job.demand.nominal.count > self.devices:
            return Reason(Why.NEVER_FITS, need, free, self.devices * WHOLE)
        ids = tuple(each.row.id for each in holders)
        return Reason(Why.NOT_ENOUGH_FREE, need, free, free, held_by=ids)

    def _status(self, known: Known, holders: Sequence[Known] | None = None) -> JobStatus:
        row, holders = known.row, self._holders() if holders is None else holders
        end = row.finish_ms if row.finish_ms is not None else self.now
        ran = end - row.start_ms if row.start_ms is not None else 0
        last = known.progress[-1] if known.progress else None
        said = None
        if last is not None:
            said = Progress(last.at_ms, last.step, known.total_steps, last.loss, last.samples_per_s)
        history = JobHistory(
            priority=known.asked.job.priority,
            retries=known.asked.job.retries,
            preemptions=known.preemptions,
            attempts=known.attempt,
            gpu_ms=ran * row.gpus,
            progress=said,
        )
        return JobStatus(
            row=row,
            history=history,
            run_ms=ran,
            devices=tuple(f"n0:{device}" for device in known.devices),
            nodes=("n0",) if known.devices else (),
            reason=self._reason(known, holders),
        )


def _order(id: str) -> tuple[int, int]:
    number, _, index = id.partition("_")
    return int(number), int(index or 0)
