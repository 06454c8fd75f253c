"""The engine of this machine: every run is a folder with a supervisor that outlives the manager."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from trainmaster.engines.local import (
    cgroup_probe,
    containers,
    journal,
    listening_ports,
    logs,
    ownership,
    prerun,
    privileges,
    probes,
    processes,
    runfile,
    socket_paths,
    worker_environment,
)
from trainmaster.engines.local.fork_server_client import ForkServerClient
from trainmaster.engines.local.mps_clients import MpsClients
from trainmaster.engines.local.orphan_cleanup import RunRemains, last_sign
from trainmaster.engines.local.path_entry import PATH_ENTRY
from trainmaster.engines.local.run_follower import LaunchSteps, RunFollower, report_of
from trainmaster.engines.local.runfile import RunFile
from trainmaster.engines.local.supervisor_watch import SupervisorWatch
from trainmaster.engines.protocol import (
    Abilities,
    Known,
    Probed,
    RecordedRun,
    Request,
    StrayRun,
    Tell,
    TellNode,
    any_job,
    ignore,
)
from trainmaster.failures.hang_rule import DEFAULT_LIMITS, HangLimits
from trainmaster.gpu.freezing_ability import FreezingAbility, freezing_ability
from trainmaster.gpu.mps import MpsPlace
from trainmaster.model.actions import Freeze, Halt, Kill, Launch, Order, Rebind, Reshape, Thaw
from trainmaster.model.engine_reports import Lost, Report
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.placement import Placement
from trainmaster.model.topology import Topology
from trainmaster_sdk import wire
from trainmaster_sdk.process_tree import all_pids
from trainmaster_sdk.wire import Message, encode_message

log = structlog.get_logger(__name__)

LIVE = ".live"
"""A folder with an empty file for each run that was begun and is not known to have ended."""
GPUS = ".gpus"
"""A folder for each GPU, in which runs tell each other how fast they are."""

NAMED = re.compile(r"([0-9]{1,15}(?:_[0-9]{1,10})?)\.([0-9]{1,9})")
"""A run as its processes name it. Anybody can start a process that names something else."""
EXIT_POLLS = 500
LOOK_S = 30.0
"""How long a start waits to learn what happened to runs before: a disk may be slow."""
CANCEL_S = 5.0
CONNECT_S = 10.0
"""How long a program may take to accept a connection."""
FOREIGN = "The folder of this run holds a run of another job, which was left alone."


class LocalEngine:
    """Runs gangs as processes here, each in a folder `runs/<job>/<attempt>` of the state folder.

    `devices` are the UUIDs of the topology's GPUs; none: CPU slots stand in for them. `numbers` are those
    of the driver, `minors` those of their device files; None: there are no GPUs, or nobody knows.
    """

    name = "local"

    def __init__(
        self,
        folder: Path,
        topology: Topology,
        devices: Sequence[str] = (),
        numbers: Sequence[int] = (),
        *,
        supervisor_silence_s: float = 60.0,
        fork_server_silence_s: float = 30.0,
        hang_limits: HangLimits = DEFAULT_LIMITS,
        serves_users: bool = False,
        most_pids: int | None = None,
        minors: Sequence[int] | None = None,
    ) -> None:
        self._folder = Path(os.path.abspath(folder)) / "runs"
        self.probed = cgroup_probe.probe()
        plan = self.probed.plan
        self.host = worker_environment.Host(
            *(topology, tuple(devices), plan, tuple(numbers), str(self._folder / GPUS)),
            *(hang_limits, most_pids),
            minors=None if minors is None or not plan.devices_in else tuple(minors),
        )
        self._has_gpus = bool(devices) or minors is not None
        # CPU slots are free as soon as processes are stopped.
        self._gpu_freezing = freezing_ability(devices) if devices else FreezingAbility()
        self._serves_users = serves_users
        """Whether jobs may run as other users than the manager's."""
        self._sockets = ""
        """Where supervisors listen; known when the engine is open."""
        self.fork_server = ForkServerClient(fork_server_silence_s)
        self._followers: dict[Run, RunFollower] = {}
        self._told_over: dict[Run, int] = {}
        """Runs that were found to be over, with the last report of each, which answers orders too."""
        self._watch = SupervisorWatch(self._followers, supervisor_silence_s)
        self._watching: asyncio.Task[None] | None = None
        self._mps = MpsClients(
            self._folder.parent / "mps", self._live_folders, has_gpus=bool(devices)
        )
        self._tell: Tell | None = None

    @property
    def topology(self) -> Topology:
        return self.host.topology

    @property
    def abilities(self) -> Abilities:
        plan = self.probed.plan
        remarks = [*self.probed.remarks, *self._mps.remarks]
        if self._has_gpus and self.host.minors is None:
            remarks.append(cgroup_probe.UNFILTERED)
        of_users = []
        if self._serves_users and (closed := privileges.interpreter_remark()):
            of_users.append(f"{closed} Install Trainmaster with a Python that everybody can run.")
        if self._serves_users and privileges.closed_place(PATH_ENTRY):
            of_users.append(
                f"Other users cannot read {PATH_ENTRY}: optimizer steps of their programs are not counted."
                " Install Trainmaster where everybody can read it."
            )
        if self._gpu_freezing.missing:
            remarks.append(f"Jobs are not suspended in memory. {self._gpu_freezing.missing}")
        return Abilities(
            can_freeze=not self._gpu_freezing.missing,
            limits_memory=bool(plan.memory_in),
            limits_cpus=bool(plan.cpus_in),
            can_move_frozen=self._gpu_freezing.can_move,
            remarks=tuple(remarks),
            user_remarks=tuple(of_users),
        )

    def troubles(self) -> Sequence[str]:
        is_open = self._watching is not None
        if is_open and self.fork_server.pid is None:
            lost = "The fork server is not running; the next job that starts brings it back."
            return (lost, *self._mps.troubles)
        return self._mps.troubles

    def folder_of(self, run: Run) -> Path:
        return self._folder / run.job / str(run.attempt)

    def logs(self, run: Run) -> Mapping[int, tuple[Path, ...]]:
        """Each rank's output, oldest file first."""
        return logs.rank_logs(self.folder_of(run))

    def environment(self, run: Run) -> tuple[Path, Mapping[str, str]]:
        try:
            file = runfile.newest(str(self.folder_of(run)))
        except ValueError:
            file = None
        if file is None:
            raise FileNotFoundError(f"nothing is known of run {run.job}.{run.attempt}")
        return Path(file.workdir), file.env | file.ranks[0].env

    def run_of(self, pid: int) -> Run | None:
        said = processes.variables_of(pid, (worker_environment.RUN, wire.SOCKET))
        named = None if said is None else NAMED.fullmatch(said[0])
        if said is None or named is None or not self._sockets:
            return None
        run = Run(named[1], int(named[2]))
        if not self._marker(run).exists():  # it was never begun, or is over
            return None
        own = socket_paths.path_in(self._sockets, self.folder_of(run))
        is_named = os.path.basename(own) == os.path.basename(said[1])
        return run if is_named and self._is_of_its_user(pid, run) else None

    def _is_of_its_user(self, pid: int, run: Run) -> bool:
        """Whether a process that says it is of this run is its user's: others' are not believed."""
        try:
            file = runfile.newest(str(self.folder_of(run)))
        except (OSError, ValueError):
            return False
        if file is None:
            return False
        if file.account is None:
            return not self._serves_users or processes.uid_of(pid) == os.geteuid()
        return processes.uid_of(pid) == file.account.uid

    def connect(self, job: str, port: int) -> socket.socket | None:
        """The listening sockets have to be the same before and after: the port may change hands meanwhile."""
        pids = [
            pid for pid in all_pids() if (run := self.run_of(pid)) is not None and run.job == job
        ]
        found = listening_ports.own_port(port, pids)
        if found is None:
            return None
        try:
            made = socket.create_connection((found.host, port), CONNECT_S)
        except OSError:
            return None
        if not listening_ports.same_listeners(port, found.inodes, found.host):
            made.close()
            return None
        return made

    def recorded(self, run: Run) -> RecordedRun | None:
        folder = str(self.folder_of(run))
        has_begun = self._has_remains(run)
        try:
            file = runfile.newest(folder)
        except ValueError:
            file = None
        if file is None and not has_begun:
            return None
        found = ((report_of(run, entry), entry["n"]) for entry in journal.read(folder))
        reports = tuple((report, number) for report, number in found if report is not None)
        is_prerun = file is not None and file.prerun_ms > 0
        alive_ms = None if journal.is_locked(folder) else last_sign(Path(folder))
        row = "" if file is None else file.row
        return RecordedRun(row, reports, has_begun, is_prerun, alive_ms)

    async def write_row(self, run: Run, spec: LaunchSpec) -> None:
        try:
            await asyncio.to_thread(
                runfile.write_row, str(self.folder_of(run)), spec.uuid, spec.row
            )
        except (OSError, ValueError) as problem:
            log.warning("a job's record could not be written", run=run, why=str(problem))

    # -- the contract --------------------------------------------------------------------------------

    def number_nodes(self, topology: Topology) -> None:
        """Nothing: this machine has one numbering."""

    async def open(self, tell: Tell, tell_node: TellNode = ignore) -> None:
        def tell_judged(report: Report, number: int) -> None:
            tell(self._mps.judged(report, str(self.folder_of(report.run))), number)

        self._tell = tell_judged
        self._sockets = self._socket_folder()
        (self._folder / LIVE).mkdir(mode=0o700, parents=True, exist_ok=True)
        await self._mps.open(self._sockets)
        await self.fork_server.start()
        self._watching = asyncio.create_task(self._watch.watch())

    async def execute(self, order: Order, spec: LaunchSpec) -> None:
        if isinstance(order, Launch):
            self._launch(order, spec)
        elif isinstance(order, Reshape):
            self._reshape(order, spec)
        elif isinstance(order, Rebind):
            await asyncio.to_thread(self._rebind, order.run, order.placement, spec)
        else:
            if isinstance(order, Thaw) and order.placement is not None:
                await asyncio.to_thread(self._rebind, order.run, order.placement, spec)
            follower = self._follower_of(order.run, spec.uuid)
            if follower is not None:
                follower.send(self._message(order, spec))
        await asyncio.sleep(0)

    def requests(self, order: Order, spec: LaunchSpec) -> Sequence[Request]:
        """For a run that is placed, the file that its supervisor would read; else what it would be told."""
        run, folder = order.run, self.folder_of(order.run)
        to = f"supervisor of {run.job}.{run.attempt}"
        if isinstance(order, Rebind):
            last = runfile.newest(str(folder))
            bound = last and worker_environment.rebound(last, order.placement, spec, self.host)
            return () if bound is None else (Request(to, "rebind", bound),)
        if not isinstance(order, Launch | Reshape):
            return (Request(to, "order", self._message(order, spec)),)
        is_prerun = isinstance(order, Launch) and order.is_prerun
        own = prerun.prerun_spec(spec, folder) if is_prerun else spec
        generation = 1 + _generations(str(folder)) if isinstance(order, Reshape) else 0
        at = socket_paths.path_in(self._sockets or self._socket_folder(), folder)
        file = worker_environment.run_file(
            *(run, order.placement, own, self.host, at, generation), is_prerun=is_prerun
        )
        return (Request(to, type(order).__name__.lower(), file),)

    async def save(self, run: Run) -> None:
        """Ask it to write a checkpoint and go on."""
        if run in self._followers:
            self._followers[run].send({"order": "save"})

    async def bring(self, run: Run) -> None:
        """Nothing: it is here."""

    def steer(self, run: Run, said: Message) -> None:
        """Tell a part of a gang what all parts of it do together: an order for its supervisor."""
        if run in self._followers:
            self._followers[run].send(said)

    def hold(self, run: Run, seconds: int) -> None:
        """Its ranks wait so long where an exchange has failed, and may have been lost on another machine."""
        if run in self._followers:
            self._followers[run].say({"order": "wait", "s": seconds})

    def tell_gpu_use(self, run: Run, util_ppm: int) -> None:
        if run in self._followers:
            self._followers[run].say({"say": "gpu use", "util_ppm": util_ppm})

    def catches_save(self, run: Run, pids: Sequence[int]) -> bool:
        """Whether a program of these ranks of the run has a handler for the signal to save."""
        try:
            file = runfile.newest(str(self.folder_of(run)))
        except ValueError:  # of another version
            file = None
        engine = "" if file is None else file.container_engine
        return bool(containers.told_to_save(pids, engine))

    async def observe(self, runs: Mapping[Run, int], known: Known = any_job) -> Sequence[StrayRun]:
        found: list[RunFollower] = []
        for run, seen in runs.items():
            job = known(run.job)
            uuid = "" if job is None else job.uuid
            if run in self._followers:
                continue
            if self._is_foreign(run, uuid):
                if seen > 0:  # else its launch never came
                    self._tell_lost(run, seen)
            elif seen > 0 or self._has_remains(run):
                found.append(self._follow(run, uuid, seen, self._tell))
        if found:
            looks = [asyncio.create_task(each.has_looked.wait()) for each in found]
            _, slow = await asyncio.wait(looks, timeout=LOOK_S)
            for look in slow:
                look.cancel()
            self._told_over.update((each.run, each.told) for each in found if each.has_ended)
        live = (run for run in self.live_runs() if run not in runs and run not in self._followers)
        return [stray for run in live if (stray := self._settle_stray(run, known)) is not None]

    def _settle_stray(self, run: Run, known: Known) -> StrayRun | None:
        """End a run that its own job does not need any more; leave others alone."""
        job, folder = known(run.job), str(self.folder_of(run))
        is_over = (
            job is not None and run.attempt <= job.attempts and not self._is_foreign(run, job.uuid)
        )
        holders = processes.lock_holders(os.path.join(folder, journal.LOCK))
        if job is not None and is_over:
            self._kill_orphan(run, job.uuid)
        return StrayRun(run, holders[0], is_over) if holders else None

    async def probe(self, node: str, words: Sequence[str], limit_s: float) -> Probed:
        return await probes.probe(words, limit_s)

    def host_of(self, node: str) -> str:
        return "127.0.0.1"

    def unwatched(self) -> Sequence[Run]:
        live = sorted(self.live_runs()) if (self._folder / LIVE).is_dir() else []
        return [run for run in live if journal.is_locked(str(self.folder_of(run)))]

    def cancel_unwatched(self, run: Run) -> bool:
        folder = self.folder_of(run)
        usual = socket_paths.path_in(self._socket_folder(), folder)
        try:
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(CANCEL_S)
                line.connect(socket_paths.takes_orders(runfile.socket_of(str(folder)) or usual))
                line.sendall(encode_message({"order": "kill", "cancels": True}))
        except OSError as error:
            log.warning("a run could not be told to end", run=run, why=str(error))
            return False
        return True

    async def forget(self, run: Run) -> None:
        follower = self._followers.pop(run, None)
        if follower is not None:
            await follower.stop()
        folder = self.folder_of(run)
        if not await self._supervisor_has_exited(folder):
            return
        await asyncio.to_thread(shutil.rmtree, folder, True)
        with suppress(OSError):  # other attempts of the job are still there
            folder.parent.rmdir()
        self._marker(run).unlink(missing_ok=True)

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        for follower in [*self._followers.values()]:
            await follower.stop()
        self._followers.clear()
        await self._mps.close()
        await self.fork_server.close()

    async def _supervisor_has_exited(self, folder: Path) -> bool:
        """Whether its supervisor is gone; one that has written down the end is about to be."""
        if journal.is_locked(str(folder)) and not journal.has_ended(str(folder)):
            return False
        for _ in range(EXIT_POLLS):
            if not journal.is_locked(str(folder)):
                return True
            await asyncio.sleep(0.02)
        return False

    # -- orders --------------------------------------------------------------------------------------

    def _launch(self, order: Launch, spec: LaunchSpec) -> None:
        """Launch it once, however often it is ordered."""
        run = order.run
        folder, at = self.folder_of(run), self._remains(run, spec.uuid).socket
        is_foreign = run not in self._followers and self._is_foreign(run, spec.uuid)
        if is_foreign and not ownership.set_aside(folder):
            self._tell_lost(run, 0)
            return

        def prepare() -> None:
            """Write what is to be run; the marker first, so that no run is without."""
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._marker(run).touch()
            ownership.prepare_job_folder(self._job_folder(run), spec)
            if not journal.is_locked(str(folder)):
                if order.is_prerun:
                    prerun.make_folder(spec, folder)
                own = prerun.prerun_spec(spec, folder) if order.is_prerun else spec
                self._write_run_file(run, order.placement, own, at, 0, is_prerun=order.is_prerun)

        beginning = LaunchSteps(
            self.fork_server, prepare, lambda: self._end_earlier(run, spec.uuid)
        )
        follower = self._followers.get(run)
        if follower is not None:
            follower.launch(self._tell, beginning)
        elif journal.has_begun(str(folder)):
            self._follow(run, spec.uuid, 0, self._tell)
        else:
            self._follow(run, spec.uuid, 0, self._tell, beginning)

    def _end_earlier(self, run: Run, uuid: str) -> tuple[Path, ...]:
        """Kill earlier attempts that are not over; their markers, to wait for."""
        attempts = (Run(run.job, attempt) for attempt in range(1, run.attempt))
        marked = (each for each in attempts if self._marker(each).exists())
        unsettled = [each for each in marked if not self._is_foreign(each, uuid)]
        for each in unsettled:
            self._kill_orphan(each, uuid)
        return tuple(map(self._marker, unsettled))

    def _reshape(self, order: Reshape, spec: LaunchSpec) -> None:
        """The new ranks go into a file of their own; the supervisor is told its number."""
        run = order.run
        folder, at = str(self.folder_of(run)), self._remains(run, spec.uuid).socket

        ordered_ms = time.time_ns() // 1_000_000
        grace: Message = {"grace_ms": spec.grace_ms, "ordered_ms": ordered_ms}

        def make() -> Message:
            last = runfile.newest(folder)
            if last is not None and _is_shape_of(last, order.placement, spec):
                return {"order": "reshape", "generation": last.generation} | grace
            generation = 1 + max(_generations(folder), 0 if last is None else last.generation)
            socket = at if last is None else last.socket
            self._write_run_file(run, order.placement, spec, socket, generation)
            return {"order": "reshape", "generation": generation} | grace

        follower = self._follower_of(run, spec.uuid)
        if follower is not None:
            follower.send_when_ready(make)

    def _write_run_file(
        self,
        run: Run,
        placement: Placement,
        spec: LaunchSpec,
        at: str,
        generation: int,
        *,
        is_prerun: bool = False,
    ) -> None:
        def file(daemon: MpsPlace | None) -> RunFile:
            return worker_environment.run_file(
                run, placement, spec, self.host, at, generation, daemon, is_prerun=is_prerun
            )

        gpu = worker_environment.mps_gpu(placement, spec, self.host)
        self._mps.write(str(self.folder_of(run)), gpu, file)

    def _rebind(self, run: Run, placement: Placement, spec: LaunchSpec) -> None:
        """Write down which devices it has now, for programs that are started beside it. What it was started
        with stays in its own environment."""
        folder = str(self.folder_of(run))
        try:
            last = runfile.newest(folder)
            if last is not None and last.uuid in ("", spec.uuid):
                rebound = worker_environment.rebound(last, placement, spec, self.host)
                runfile.write(folder, rebound)
        except (OSError, ValueError) as problem:
            log.warning("the new slots could not be written down", run=run, why=str(problem))

    def _message(self, order: Freeze | Thaw | Halt | Kill, spec: LaunchSpec) -> Message:
        """What a supervisor is told."""
        said: Message = {"order": "halt"}
        if isinstance(order, Freeze) and spec.may_stay_in_memory:
            said = {"order": "freeze", "may_keep": order.may_keep}
        elif isinstance(order, Thaw):
            said = {"order": "thaw"} | self._devices_of(order.placement, spec)
        elif isinstance(order, Kill):
            end = None if order.end is None else order.end.to_json()
            said = {"order": "kill", "cancels": True, "end": end}
        return said | {"grace_ms": spec.grace_ms}

    def _devices_of(self, placement: Placement | None, spec: LaunchSpec) -> Message:
        """The GPUs that a frozen run is to go on on, rank by rank; nothing: those that it had."""
        if placement is None or not self.host.uuids:
            return {}
        return {
            "devices": worker_environment.uuids_of(placement, spec, self.host),
            "minors": worker_environment.minors_of(placement, self.host),
        }

    # -- watching ------------------------------------------------------------------------------------

    def _follower_of(self, run: Run, uuid: str) -> RunFollower | None:
        """The run's follower; if it has none, a new one that finds out what happened to it.

        None for a run of another job, which takes no orders of ours: ours is lost.
        """
        if run in self._followers:
            return self._followers[run]
        if self._is_foreign(run, uuid):
            self._tell_lost(run, 0)
            return None
        return self._follow(run, uuid, self._told_over.get(run, 0), self._tell)

    def _is_foreign(self, run: Run, uuid: str) -> bool:
        """Whether its folder holds a run of another job of the same number."""
        found = ownership.uuid_of(str(self.folder_of(run)))
        return found is not None and found != uuid

    def _tell_lost(self, run: Run, seen: int) -> None:
        log.error("a run of another job is in the way", run=run, folder=str(self.folder_of(run)))
        if self._tell is not None:
            self._tell(Lost(run, time.time_ns() // 1_000_000, FOREIGN, alive_ms=0), seen + 1)

    def _socket_folder(self) -> str:
        return socket_paths.folder_for(self._folder.parent, serves_users=self._serves_users)

    def _job_folder(self, run: Run) -> Path:
        return self._folder.parent / "jobs" / run.job

    def _remains(self, run: Run, uuid: str) -> RunRemains:
        folder = self.folder_of(run)
        socket = socket_paths.path_in(self._sockets, folder)
        return RunRemains(folder, socket, self.host.cgroups, uuid)

    def _follow(
        self,
        run: Run,
        uuid: str,
        after: int,
        tell: Callable[[Report, int], None] | None,
        beginning: LaunchSteps | None = None,
    ) -> RunFollower:
        remains = self._remains(run, uuid)
        follower = RunFollower(
            run, remains, after, tell, self._stop_following, has_gpus=bool(self.host.uuids)
        )
        self._followers[run] = follower
        follower.begin(beginning)
        return follower

    def _stop_following(self, follower: RunFollower) -> None:
        run = follower.run
        if self._followers.get(run) is follower:
            del self._followers[run]
        if follower.has_ended or follower.never_began:
            with suppress(OSError):  # the next manager removes one that stays
                self._marker(run).unlink(missing_ok=True)
            self._mps.look()

    def _has_remains(self, run: Run) -> bool:
        """Whether anything of it was written, or a supervisor holds it."""
        folder = str(self.folder_of(run))
        return journal.has_begun(folder) or journal.is_locked(folder)

    def live_runs(self) -> list[Run]:
        """Runs that were begun and are not known to have ended, whether anything of them is left or not."""
        found = []
        for marker in (self._folder / LIVE).iterdir():
            job, _, attempt = marker.name.rpartition(".")
            if attempt.isdecimal():
                found.append(Run(job, int(attempt)))
        return found

    def _live_folders(self) -> list[str]:
        return [str(self.folder_of(run)) for run in self.live_runs()]

    def _kill_orphan(self, run: Run, uuid: str) -> None:
        """Kill a run that its job does not need any more, without reports."""
        if run in self._followers or self._has_remains(run):
            log.warning("a run that its job does not need any more is ended", run=run)
        if run in self._followers:
            self._followers[run].send({"order": "kill"})
        elif self._has_remains(run):
            self._follow(run, uuid, 0, None).send({"order": "kill"})
        else:
            self._marker(run).unlink(missing_ok=True)

    def _marker(self, run: Run) -> Path:
        return self._folder / LIVE / f"{run.job}.{run.attempt}"


def _is_shape_of(file: RunFile, placement: Placement, spec: LaunchSpec) -> bool:
    """Whether it is the file of that resize already."""
    generation = 0 if spec.part is None else spec.part.generation
    return file.placement == repr(placement.slices) and file.gang_generation == generation


def _generations(folder: str) -> int:
    """The last generation that was started, by the run's journal."""
    return max((entry.get("generation", 0) for entry in journal.read(folder)), default=0)
