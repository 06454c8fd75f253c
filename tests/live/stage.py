"""A stage for engines: real processes, what was reported of them, and the truth from /proc."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar

from trainmaster.engines.local.engine import LocalEngine
from trainmaster.engines.protocol import Engine
from trainmaster.model.actions import Launch, Order
from trainmaster.model.engine_reports import Ended, Lost, Report, Started
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.placement import Placement, Slice
from trainmaster.model.topology import parse_shorthand

PATIENCE_S = 60.0
"""Far more than anything here needs: a test waits until, it never measures."""
R = TypeVar("R")


def local_engine(folder: Path) -> LocalEngine:
    return LocalEngine(folder, parse_shorthand("2x4"))


class TestedEngine(Engine, Protocol):
    """An engine that says where a run's files are, so that tests can look at them."""

    def folder_of(self, run: Run) -> Path: ...

    def logs(self, run: Run) -> Mapping[int, tuple[Path, ...]]: ...


MakeEngine = Callable[[Path], TestedEngine]


class Processes(Protocol):
    """The processes of the machines that an engine runs jobs on."""

    def alive_with(self, *marks: str) -> list[int]:
        """A number for each that has all of these in its environment; zombies are dead."""
        ...

    def state_of(self, number: int) -> str:
        """The kernel's letter; empty: it is gone."""
        ...

    def kill_with(self, mark: str) -> None: ...


class ProcessesHere:
    """Those of this machine, by /proc."""

    def alive_with(self, *marks: str) -> list[int]:
        return alive_with(*marks)

    def state_of(self, number: int) -> str:
        return state_of(number)

    def kill_with(self, mark: str) -> None:
        kill_remains(alive_with(mark))


HERE = ProcessesHere()


class Stage:
    """One engine with what it has told."""

    def __init__(
        self, folder: Path, make: MakeEngine = local_engine, processes: Processes = HERE
    ) -> None:
        self.folder = folder
        self.make = make
        self.processes = processes
        self.workdir = folder / "work"
        self.workdir.mkdir(exist_ok=True)
        self.checkpoints = folder / "checkpoints"
        self.engine = make(folder)
        self.reports: list[tuple[Report, int]] = []

    def another(self) -> Stage:
        """The same folder with a new engine: the daemon has come back, or there are two."""
        return Stage(self.folder, self.make, self.processes)

    async def __aenter__(self) -> Stage:
        await self.engine.open(lambda report, n: self.reports.append((report, n)))
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.engine.close()

    def recipe(self, *command: str, grace_ms: int = 20_000) -> LaunchSpec:
        return LaunchSpec(
            command=command,
            workdir=str(self.workdir),
            checkpoint_dir=str(self.checkpoints),
            grace_ms=grace_ms,
        )

    def shell(self, script: str, grace_ms: int = 20_000) -> LaunchSpec:
        return self.recipe("sh", "-c", script, grace_ms=grace_ms)

    async def launch(self, run: Run, recipe: LaunchSpec, ranks: int = 1) -> None:
        await self.engine.execute(Launch(run, placed(ranks), 0), recipe)

    async def order(self, order: Order, recipe: LaunchSpec) -> None:
        await self.engine.execute(order, recipe)

    def of(self, run: Run) -> list[Report]:
        return [report for report, _ in self.reports if report.run == run]

    async def heard(self, run: Run, kind: type[R], which: int = 0) -> R:
        """Wait for a report of that kind."""

        def found() -> R | None:
            those = [report for report in self.of(run) if isinstance(report, kind)]
            return those[which] if len(those) > which else None

        try:
            return await until(found)
        except TimeoutError:
            raise AssertionError(f"no {kind.__name__} in {self.of(run)}") from None

    async def ended(self, run: Run) -> Ended:
        over = await until(lambda: next(iter(r for r in self.of(run) if is_last(r)), None))
        assert isinstance(over, Ended), over
        return over

    async def up(self, run: Run, recipe: LaunchSpec, ranks: int = 1) -> Started:
        await self.launch(run, recipe, ranks)
        return await self.heard(run, Started)

    def log(self, run: Run, rank: int = 0) -> bytes:
        return b"".join(path.read_bytes() for path in self.engine.logs(run).get(rank, ()))

    def alive(self, run: Run) -> list[int]:
        """Processes that carry the run's name, by the kernel's word."""
        own = f"TRAINMASTER_CHECKPOINT_DIR={self.checkpoints}"
        return self.processes.alive_with(own, f"TRAINMASTER_RUN={run.job}.{run.attempt}")

    def states(self, pids: Iterable[int]) -> set[str]:
        return {self.processes.state_of(pid) for pid in pids}


def is_last(report: Report) -> bool:
    return isinstance(report, Ended | Lost)


def placed(count: int, first: int = 0) -> Placement:
    """So many slots, from that one on, four on each node."""
    slots = range(first, first + count)
    return Placement(tuple(Slice(slot // 4, slot) for slot in slots), span=0)


async def until(look: Callable[[], R | None]) -> R:
    """What it is as soon as it is something."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        await asyncio.sleep(0.01)
    raise TimeoutError


def alive_with(*marks: str) -> list[int]:
    """Processes with all of these in their environment; zombies are dead."""
    wanted = {mark.encode() for mark in marks}
    found = []
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if wanted <= {*environ.split(b"\0")} and state_of(pid) not in ("Z", "X", ""):
            found.append(pid)
    return found


def alive_called(word: str) -> list[int]:
    """Processes with this word in their command line."""
    found = []
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if word.encode() in words and state_of(pid) not in ("Z", "X", ""):
            found.append(pid)
    return found


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""


Act = Callable[[Stage], Awaitable[None]]


def perform(
    folder: Path, act: Act, make: MakeEngine = local_engine, processes: Processes = HERE
) -> None:
    """One act on a fresh stage, after which nothing of it is left, however it went."""

    async def playing() -> None:
        async with Stage(folder, make, processes) as stage:
            await act(stage)

    with nothing_left(folder, processes):
        asyncio.run(playing())


@contextmanager
def nothing_left(folder: Path, processes: Processes = HERE) -> Iterator[None]:
    """End by pid whatever an act left running: supervisors first, then what they had."""
    try:
        yield
    finally:
        for lock in folder.rglob("lock"):
            kill_remains(supervisors(lock.parent))
        processes.kill_with(f"TRAINMASTER_CHECKPOINT_DIR={folder / 'checkpoints'}")


def kill_remains(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def supervisors(run_folder: Path) -> list[int]:
    """Who holds the run's lock, by the kernel's word."""
    lock = run_folder / "lock"
    if not lock.exists():
        return []
    inode = str(lock.stat().st_ino)
    return [
        int(fields[4])
        for fields in map(str.split, Path("/proc/locks").read_text().splitlines())
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].split(":")[2] == inode
    ]
