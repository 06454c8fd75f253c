"""The engine's part on one node: runs parts of gangs as the local engine does, for one manager at a time.

It imports nothing of Ray: an actor hands calls on to it. What it hands out waits in `next`, which a manager
calls again and again.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from trainmaster.durable_files import write_whole
from trainmaster.engines.local import probes, runfile, worker_environment
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.engines.protocol import EngineError, KnownJob, Probed, StrayRun
from trainmaster.engines.ray import node_files
from trainmaster.engines.ray.file_tree import Tree
from trainmaster.engines.ray.log_pieces import new_pieces
from trainmaster.engines.ray.node_files import Unseen
from trainmaster.engines.ray.node_reports import (
    Batch,
    Begun,
    LogPiece,
    LogPlace,
    PartReport,
    Seen,
    SessionOver,
    SessionUnknown,
)
from trainmaster.engines.ray.staged_jobs import StagedJobs
from trainmaster.engines.ray.staged_values import Changes, Lacking, Piece, Wanted
from trainmaster.engines.run_limits import DEFAULT_RUN_LIMITS, RunLimits
from trainmaster.gpu.devices import Machine
from trainmaster.model.actions import Launch, Order
from trainmaster.model.engine_reports import Ended, Lost, Report, Reshaped, Started, Thawed
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster_sdk.wire import Message

LOOK_S = 0.1
"""How often logs are looked at while a manager waits for news."""
STORAGE_S = 10.0
"""How long storage may take to say whether a path is there."""
MOST_BYTES = 1 << 20
"""Of logs in one batch."""
SESSION = "session"
"""A file with the number of the last session."""


class Launcher:
    """Keeps all that it knows below one folder of its node."""

    def __init__(self, folder: Path, machine: Machine) -> None:
        self._folder = folder
        self._machine = machine
        self._limits = DEFAULT_RUN_LIMITS
        """The manager's, once it has begun a session."""
        self._staged = StagedJobs(folder)
        self._engine: LocalEngine | None = None
        self._session: int | None = None
        self._is_fresh = False
        """Whether no manager has had the engine yet."""
        self._beginning = asyncio.Lock()
        self._reports: list[PartReport] = []
        self._places: dict[Run, dict[int, LogPlace]] = {}
        """How far the logs of each run of this session have been read."""
        self._live: set[Run] = set()
        """Runs whose last report has not been handed out."""
        self._last: Batch | None = None
        """Handed out, and not known to have arrived."""
        self._news = asyncio.Event()

    async def open(self) -> None:
        """Be ready for a manager; EngineError where it cannot work here."""
        nodes = self._machine.topology.nodes
        if len(nodes) != 1:
            raise EngineError(
                f"The node {nodes[0].name} has GPUs of {len(nodes)} kinds; start one raylet for each."
            )
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            await self._renew()
        except OSError as problem:
            raise EngineError(
                f"The folder {self._folder} cannot be used: {problem.strerror}."
            ) from None

    async def close(self) -> None:
        """Stop watching. Runs go on."""
        self._session = None
        self._news.set()  # for a manager that still waits
        if self._engine is not None:
            await self._engine.close()
            self._engine = None

    # -- sessions ------------------------------------------------------------------------------------------

    async def begin(self, limits: RunLimits = DEFAULT_RUN_LIMITS) -> Begun:
        """A new manager, or one that was away: it has to observe the runs that it knows."""
        async with self._beginning:
            number = 1 + self._noted_session()
            write_whole(self._folder / SESSION, str(number))
            if not self._is_fresh or limits != self._limits:
                self._limits = limits
                await self.close()
                await self._renew()
            self._is_fresh = False
            self._reports, self._places, self._live, self._last = [], {}, set(), None
            self._session = number
            self._news.set()  # for one that still waits
            return Begun(number, self._local.abilities)

    async def _renew(self) -> None:
        machine = self._machine
        self._engine = LocalEngine(
            *(self._folder, machine.topology, machine.devices, machine.numbers),
            supervisor_silence_s=self._limits.supervisor_silence_s,
            fork_server_silence_s=self._limits.fork_server_silence_s,
            hang_limits=self._limits.hang,
            serves_users=os.geteuid() == 0,
            most_pids=self._limits.most_pids,
            minors=machine.minors,
        )
        await self._engine.open(self._tell)
        self._is_fresh = True

    def _noted_session(self) -> int:
        try:
            return int((self._folder / SESSION).read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def _confirm(self, session: int) -> None:
        if session == self._session:
            return
        if session == self._noted_session():
            raise SessionUnknown
        raise SessionOver("Another manager gives orders to this node now.")

    @property
    def _local(self) -> LocalEngine:
        if self._engine is None:
            raise SessionUnknown
        return self._engine

    # -- files ---------------------------------------------------------------------------------------------

    async def stage(
        self, session: int, run: Run, spec: LaunchSpec, trees: Sequence[Tree]
    ) -> tuple[Lacking, ...]:
        """Put the files of a run in their places here; those that are not here, if there are any."""
        self._confirm(session)
        return await asyncio.to_thread(self._staged.stage, run, spec, trees)

    async def put(self, session: int, run: Run, pieces: Sequence[Piece]) -> None:
        self._confirm(session)
        await asyncio.to_thread(self._staged.put, run, pieces)

    async def changes(
        self, session: int, run: Run, trees: Sequence[str]
    ) -> tuple[Changes, ...] | None:
        """What a run has changed in the files that were sent here; None where none were."""
        self._confirm(session)
        return await asyncio.to_thread(self._staged.changes, run, trees)

    async def read(
        self, session: int, run: Run, tree: str, wanted: Sequence[Wanted]
    ) -> tuple[bytes | None, ...]:
        self._confirm(session)
        return await asyncio.to_thread(self._staged.read, run, tree, wanted)

    async def settle(self, session: int, run: Run, same: Mapping[str, Sequence[str]]) -> None:
        """All that it wrote was brought to the manager, and of each tree these files are the same there."""
        self._confirm(session)
        await asyncio.to_thread(self._staged.settle, run, same)

    # -- orders --------------------------------------------------------------------------------------------

    async def free_port(self, session: int, host: str) -> int:
        """A port of this address on which the ranks of a gang can meet."""
        self._confirm(session)
        return worker_environment.free_port(host)

    async def has_mark(self, session: int, runs: str, mark: str) -> bool:
        """Whether this node sees the manager's folder."""
        self._confirm(session)
        return await asyncio.to_thread(node_files.has_mark, runs, mark)

    async def unseen(self, session: int, paths: Sequence[str], read: Sequence[str]) -> Unseen:
        """What this node does not see; all where its storage does not answer."""
        self._confirm(session)
        try:
            async with asyncio.timeout(STORAGE_S):
                return await asyncio.to_thread(node_files.unseen, paths, read)
        except TimeoutError:
            return Unseen(tuple(paths))

    async def execute(self, session: int, order: Order, spec: LaunchSpec) -> None:
        """The order in this node's own numbers."""
        self._confirm(session)
        if isinstance(order, Launch):
            self._watch(order.run, Seen())
        await self._local.execute(order, self._staged.here(order.run, spec))

    async def steer(self, session: int, run: Run, said: Message) -> None:
        """An order for the supervisor of its part, that is about the gang as a whole."""
        self._confirm(session)
        self._local.steer(run, said)

    async def hold(self, session: int, run: Run, seconds: int) -> None:
        self._confirm(session)
        self._local.hold(run, seconds)

    async def observe(
        self, session: int, runs: Mapping[Run, Seen], known: Mapping[str, KnownJob]
    ) -> tuple[StrayRun, ...]:
        """Go on with these parts, from what the manager has of them. Of the others, end earlier runs of known
        jobs."""
        self._confirm(session)
        earlier = {run for run, seen in runs.items() if self._is_earlier(run, seen.generation)}
        for run in runs.keys() - earlier:
            self._watch(run, runs[run])
        numbers = {run: runs[run].number for run in runs.keys() - earlier}
        left_alone = {run.job for run in earlier}
        jobs = {job: each for job, each in known.items() if job not in left_alone}
        return tuple(await self._local.observe(numbers, jobs.get))

    async def live(self, session: int) -> tuple[Run, ...]:
        """Runs that may go on here."""
        self._confirm(session)
        return tuple(self._local.live_runs())

    async def save(self, session: int, run: Run) -> None:
        self._confirm(session)
        await self._local.save(run)

    async def tell_gpu_use(self, session: int, run: Run, util_ppm: int) -> None:
        self._confirm(session)
        self._local.tell_gpu_use(run, util_ppm)

    async def catches_save(self, session: int, run: Run) -> bool:
        self._confirm(session)
        recorded = self._local.recorded(run)
        reports = () if recorded is None else recorded.reports
        pids = [each.pids for each, _ in reports if isinstance(each, Started | Reshaped)]
        if not pids:
            return False
        return await asyncio.to_thread(self._local.catches_save, run, pids[-1])

    async def write_row(self, session: int, run: Run, spec: LaunchSpec) -> None:
        self._confirm(session)
        await self._local.write_row(run, spec)

    async def probe(self, session: int, words: Sequence[str], limit_s: float) -> Probed:
        """What a short program of ours says here."""
        self._confirm(session)
        return await probes.probe(words, limit_s)

    async def forget(self, session: int, run: Run, generation: int | None = None) -> None:
        """Remove what is left of a run that is over, or of its part in generations before this one."""
        self._confirm(session)
        is_over = generation is None or self._is_earlier(run, generation)
        if is_over and run not in self._live:
            await self._local.forget(run)
            self._places.pop(run, None)
            if generation is None:
                await asyncio.to_thread(self._staged.forget, run)

    def _is_earlier(self, run: Run, generation: int) -> bool:
        """Whether what is here of a run is its part in an earlier generation of the gang."""
        try:
            file = runfile.newest(str(self._local.folder_of(run)))
        except (OSError, ValueError):
            return False
        return file is not None and file.gang_generation < generation

    # -- news ----------------------------------------------------------------------------------------------

    async def next(self, session: int, after: int, wait_s: float) -> Batch:
        """What is new after that batch; an empty one of the same number where nothing is, after some time."""
        until = time.monotonic() + wait_s
        while True:
            self._confirm(session)
            if self._last is not None and self._last.number > after:
                return self._last
            found = self._new_batch(after + 1)
            if found.reports or found.logs:
                self._last = found
                return found
            left_s = until - time.monotonic()
            if left_s <= 0:
                return Batch(after)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, LOOK_S)):
                    await self._news.wait()

    def _new_batch(self, number: int) -> Batch:
        """A run's last report waits until its logs are read to the end."""
        self._news.clear()
        pieces, unread = self._new_pieces()
        told, self._reports = self._reports, []
        ready: list[PartReport] = []
        for each in told:
            (self._reports if _is_last(each) and _run(each) in unread else ready).append(each)
        self._live -= {_run(each) for each in ready if _is_last(each)}
        return Batch(number, tuple(ready), tuple(pieces))

    def _new_pieces(self) -> tuple[list[LogPiece], set[Run]]:
        """Of all logs together so much as one batch takes; the runs that have more."""
        pieces: list[LogPiece] = []
        unread: set[Run] = set()
        left = MOST_BYTES
        for run in self._live:
            if left <= 0:
                unread.add(run)
                continue
            for piece in new_pieces(self._local.folder_of(run), run, self._places[run]):
                pieces.append(piece)
                left -= len(piece.data)
                if left <= 0:
                    unread.add(run)
                    break
        return pieces, unread

    def _watch(self, run: Run, seen: Seen) -> None:
        self._live.add(run)
        self._places.setdefault(run, dict(seen.logs))

    def _tell(self, report: Report, number: int) -> None:
        file = None
        if isinstance(report, Started | Reshaped | Thawed):
            with suppress(OSError, ValueError):
                file = runfile.newest(str(self._local.folder_of(report.run)))
        self._reports.append(PartReport(number, report, file))
        self._news.set()


def _run(said: PartReport) -> Run:
    return said.report.run


def _is_last(said: PartReport) -> bool:
    return isinstance(said.report, Ended | Lost)
