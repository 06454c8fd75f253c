"""The engine of this machine: every run is a folder with a supervisor that outlives the daemon."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainmaster.engines.contract import Abilities, Tell
from trainmaster.engines.freezer import Freezer, StopFreezer, can_freeze_on
from trainmaster.engines.local import journal, launch, leftovers, limits, logs, runfile
from trainmaster.engines.local.spawning import Spawning
from trainmaster.engines.local.watch import Beginning, Watch
from trainmaster.model.actions import Freeze, Halt, Kill, Launch, Order, Reshape, Thaw
from trainmaster.model.job import Run
from trainmaster.model.recipe import Recipe
from trainmaster.model.reports import Report
from trainmaster.model.topology import Topology

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
        self._spawning = Spawning()
        self._watches: dict[Run, Watch] = {}
        self._tell: Tell | None = None
        self._doing: dict[type, Callable[[Any, Recipe], None]] = {
            Launch: self._launch,
            Halt: lambda order, recipe: self._end(order.run, "halt"),
            Kill: lambda order, recipe: self._end(order.run, "kill"),
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
        file = runfile.newest(str(self.folder_of(run)))
        if file is None:
            raise FileNotFoundError(f"nothing is known of run {run.job}.{run.attempt}")
        return Path(file.workdir), file.env | file.ranks[0].env

    # -- the contract --------------------------------------------------------------------------------

    async def open(self, tell: Tell) -> None:
        self._tell = tell
        (self._folder / LIVE).mkdir(mode=0o700, parents=True, exist_ok=True)
        await self._spawning.start()

    async def execute(self, order: Order, recipe: Recipe) -> None:
        self._doing[type(order)](order, recipe)
        await asyncio.sleep(0)

    async def save(self, run: Run) -> None:
        """Ask it to write a checkpoint and go on."""
        self._send(run, "save")

    async def observe(self, runs: Mapping[Run, int]) -> None:
        for run, seen in runs.items():
            if run not in self._watches and self._has_trace(run):
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
        if run in self._watches:
            return
        if journal.has_begun(str(self.folder_of(run))):
            self._watch(run, 0, self._tell)
            return

        def prepare() -> None:
            """Write what is to be run; the marker first, so that no run is without."""
            folder = self.folder_of(run)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._marker(run).touch()
            if not journal.is_locked(str(folder)):
                file = launch.run_file(run, order.placement, recipe, self._machine, folder, 0)
                runfile.write(str(folder), file)

        beginning = Beginning(self._spawning, prepare, self._earlier(run))
        self._watch(run, 0, self._tell, beginning)

    def _earlier(self, run: Run) -> tuple[Path, ...]:
        """Markers of earlier attempts that are not over: they are ended, and waited for."""
        attempts = (Run(run.job, attempt) for attempt in range(1, run.attempt))
        unsettled = [each for each in attempts if self._marker(each).exists()]
        for each in unsettled:
            self._disown(each)
        return tuple(map(self._marker, unsettled))

    def _end(self, run: Run, order: str) -> None:
        if run not in self._watches and not self._has_trace(run):
            leftovers.settle_unbegun(self.folder_of(run), leftovers.never_started(order))
        self._send(run, order)

    def _reshape(self, order: Reshape, recipe: Recipe) -> None:
        """The new ranks go into a file of their own; the supervisor is told its number."""
        folder = self.folder_of(order.run)
        last = runfile.newest(str(folder))
        if last is None:
            return
        generation = last.generation
        if last.placement != repr(order.placement.slices):
            generation += 1
            file = launch.run_file(
                order.run, order.placement, recipe, self._machine, folder, generation
            )
            runfile.write(str(folder), file)
        self._send(order.run, "reshape", generation)

    def _send(self, run: Run, order: str, generation: int | None = None) -> None:
        watch = self._watches.get(run)
        if watch is None:
            if not self._has_trace(run):
                return
            watch = self._watch(run, 0, self._tell)
        said: dict[str, object] = {"order": order}
        watch.send(said if generation is None else said | {"generation": generation})

    # -- watching ------------------------------------------------------------------------------------

    def _watch(
        self,
        run: Run,
        after: int,
        tell: Callable[[Report, int], None] | None,
        beginning: Beginning | None = None,
    ) -> Watch:
        watch = Watch(run, self.folder_of(run), after, tell, self._unwatch)
        self._watches[run] = watch
        watch.begin(beginning)
        return watch

    def _unwatch(self, watch: Watch) -> None:
        self._watches.pop(watch.run, None)
        if watch.has_ended:
            self._marker(watch.run).unlink(missing_ok=True)

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
