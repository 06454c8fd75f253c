"""The engine of this machine: every run is a folder with a supervisor that outlives the daemon."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainmaster.engines.freezer import Freezer, StopFreezer, can_freeze_on
from trainmaster.engines.local import cgroup_probe as limits
from trainmaster.engines.local import journal, logs, runfile
from trainmaster.engines.local import run_spec as launch
from trainmaster.engines.local import socket_paths as sockets
from trainmaster.engines.local.fork_server_client import Spawning
from trainmaster.engines.local.orphan_cleanup import Trace
from trainmaster.engines.local.run_follower import Beginning, Watch
from trainmaster.engines.protocol import Abilities, Tell
from trainmaster.model.actions import Freeze, Halt, Kill, Launch, Order, Reshape, Thaw
from trainmaster.model.engine_reports import Report
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import Recipe
from trainmaster.model.topology import Topology
from trainmaster.sdk.wire import Line

LIVE = ".live"
"""A folder with an empty file for each run that was begun and is not known to have ended."""

LET_GO_LOOKS = 500


class LocalEngine:
    """Runs gangs as processes here, each in a folder `runs/<job>/<attempt>` of the state folder.

    `devices` are the UUIDs of the topology's GPUs; none: CPU slots stand in for them.
    """

    name = "local"

    def __init__(
        self,
        folder: Path,
        topology: Topology,
        devices: Sequence[str] = (),
        freezer: Freezer | None = None,
    ) -> None:
        self._folder = Path(os.path.abspath(folder)) / "runs"
        self._freezer: Freezer = freezer or StopFreezer()
        self._probed = limits.probe()
        self._machine = launch.Machine(
            topology=topology,
            uuids=tuple(devices),
            cgroups=self._probed.plan,
            freezer=self._freezer.name,
        )
        self._sockets = ""
        """Where supervisors listen; known when the engine is open."""
        self._spawning = Spawning()
        self._watches: dict[Run, Watch] = {}
        self._tell: Tell | None = None
        self._doing: dict[type, Callable[[Any, Recipe], None]] = {
            Launch: self._launch,
            Halt: lambda order, recipe: self._send(order.run, "halt"),
            Kill: lambda order, recipe: self._send(order.run, "kill"),
            Freeze: lambda order, recipe: self._send(
                order.run, "freeze" if recipe.may_stay_in_memory else "halt"
            ),
            Thaw: lambda order, recipe: self._send(order.run, "thaw"),
            Reshape: self._reshape,
        }

    @property
    def topology(self) -> Topology:
        return self._machine.topology

    @property
    def abilities(self) -> Abilities:
        plan, can_freeze = self._probed.plan, self._can_freeze
        remarks = [*self._probed.remarks]
        if not can_freeze:
            remarks.append(
                "Jobs are not suspended in memory: stopping a process does not free its GPU's memory."
            )
        return Abilities(can_freeze, bool(plan.memory_in), bool(plan.cpus_in), tuple(remarks))

    @property
    def _can_freeze(self) -> bool:
        return can_freeze_on(self._freezer.abilities, has_gpus=bool(self._machine.uuids))

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

    # -- the contract --------------------------------------------------------------------------------

    async def open(self, tell: Tell) -> None:
        self._tell = tell
        self._sockets = sockets.folder_for(self._folder.parent)
        (self._folder / LIVE).mkdir(mode=0o700, parents=True, exist_ok=True)
        await self._spawning.start()

    async def execute(self, order: Order, recipe: Recipe) -> None:
        self._doing[type(order)](order, recipe)
        await asyncio.sleep(0)

    async def save(self, run: Run) -> None:
        """Ask it to write a checkpoint and go on."""
        if run in self._watches or self._has_trace(run):
            self._send(run, "save")

    async def observe(self, runs: Mapping[Run, int]) -> None:
        for run, seen in runs.items():
            if run not in self._watches and (seen > 0 or self._has_trace(run)):
                self._watch(run, seen, self._tell)
        for run in self._live_runs():
            if run not in runs and run not in self._watches:
                self._disown(run)

    async def forget(self, run: Run) -> None:
        watch = self._watches.pop(run, None)
        if watch is not None:
            await watch.stop()
        folder = self.folder_of(run)
        if not await self._is_let_go(folder):
            return
        await asyncio.to_thread(shutil.rmtree, folder, True)
        with suppress(OSError):  # other attempts of the job are still there
            folder.parent.rmdir()
        self._marker(run).unlink(missing_ok=True)

    async def close(self) -> None:
        for watch in [*self._watches.values()]:
            await watch.stop()
        self._watches.clear()
        await self._spawning.close()

    async def _is_let_go(self, folder: Path) -> bool:
        """Whether its supervisor is gone; one that has written down the end is about to be."""
        if journal.is_locked(str(folder)) and not journal.has_ended(str(folder)):
            return False
        for _ in range(LET_GO_LOOKS):
            if not journal.is_locked(str(folder)):
                return True
            await asyncio.sleep(0.02)
        return False

    # -- orders --------------------------------------------------------------------------------------

    def _launch(self, order: Launch, recipe: Recipe) -> None:
        """See to it that somebody runs it: once, whoever asks."""
        run = order.run
        folder, at = self.folder_of(run), self._trace(run).socket

        def prepare() -> None:
            """Write what is to be run; the marker first, so that no run is without."""
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._marker(run).touch()
            if not journal.is_locked(str(folder)):
                file = launch.run_file(run, order.placement, recipe, self._machine, at, 0)
                runfile.write(str(folder), file)

        beginning = Beginning(self._spawning, prepare, lambda: self._end_earlier(run))
        watch = self._watches.get(run)
        if watch is not None:
            watch.launch(self._tell, beginning)
        elif journal.has_begun(str(folder)):
            self._watch(run, 0, self._tell)
        else:
            self._watch(run, 0, self._tell, beginning)

    def _end_earlier(self, run: Run) -> tuple[Path, ...]:
        """Markers of earlier attempts that are not over: they are ended, and waited for."""
        attempts = (Run(run.job, attempt) for attempt in range(1, run.attempt))
        unsettled = [each for each in attempts if self._marker(each).exists()]
        for each in unsettled:
            self._disown(each)
        return tuple(map(self._marker, unsettled))

    def _reshape(self, order: Reshape, recipe: Recipe) -> None:
        """The new ranks go into a file of their own; the supervisor is told its number."""
        run = order.run
        folder, at = str(self.folder_of(run)), self._trace(run).socket

        def make() -> Line:
            last = runfile.newest(folder)
            if last is not None and last.placement == repr(order.placement.slices):
                return {"order": "reshape", "generation": last.generation}
            generation = 1 + max(_generations(folder), 0 if last is None else last.generation)
            socket = at if last is None else last.socket
            file = launch.run_file(run, order.placement, recipe, self._machine, socket, generation)
            runfile.write(folder, file)
            return {"order": "reshape", "generation": generation}

        self._watched(run).send_made(make)

    def _send(self, run: Run, order: str) -> None:
        self._watched(run).send({"order": order})

    # -- watching ------------------------------------------------------------------------------------

    def _watched(self, run: Run) -> Watch:
        """Who follows it; if nobody does, somebody who finds out what became of it."""
        return self._watches.get(run) or self._watch(run, 0, self._tell)

    def _trace(self, run: Run) -> Trace:
        folder = self.folder_of(run)
        return Trace(folder, sockets.path_in(self._sockets, folder), self._machine.cgroups)

    def _watch(
        self,
        run: Run,
        after: int,
        tell: Callable[[Report, int], None] | None,
        beginning: Beginning | None = None,
    ) -> Watch:
        watch = Watch(run, self._trace(run), after, tell, self._unwatch)
        self._watches[run] = watch
        watch.begin(beginning)
        return watch

    def _unwatch(self, watch: Watch) -> None:
        run = watch.run
        if self._watches.get(run) is watch:
            del self._watches[run]
        if watch.has_ended or watch.never_began:
            with suppress(OSError):  # one that stays is looked into by the next daemon
                self._marker(run).unlink(missing_ok=True)

    def _has_trace(self, run: Run) -> bool:
        """Whether anything of it was written, or somebody holds it."""
        folder = str(self.folder_of(run))
        return journal.has_begun(folder) or journal.is_locked(folder)

    def _live_runs(self) -> list[Run]:
        found = []
        for marker in (self._folder / LIVE).iterdir():
            job, _, attempt = marker.name.rpartition(".")
            if attempt.isdecimal():
                found.append(Run(job, int(attempt)))
        return found

    def _disown(self, run: Run) -> None:
        """Nobody owns it: end it, and tell nobody."""
        if run in self._watches:
            self._watches[run].send({"order": "kill"})
        elif self._has_trace(run):
            self._watch(run, 0, None).send({"order": "kill"})
        else:
            self._marker(run).unlink(missing_ok=True)

    def _marker(self, run: Run) -> Path:
        return self._folder / LIVE / f"{run.job}.{run.attempt}"


def _generations(folder: str) -> int:
    """The last generation that was started, by the run's journal."""
    return max((entry.get("generation", 0) for entry in journal.read(folder)), default=0)
