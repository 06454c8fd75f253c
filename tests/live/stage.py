"""A stage for engines: real processes, what was reported of them, and the truth from /proc."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from trainmaster.engines.local.engine import LocalEngine
from trainmaster.engines.local.launch import socket_path
from trainmaster.model.actions import Launch, Order
from trainmaster.model.job import Run
from trainmaster.model.placement import Placement, Slice
from trainmaster.model.recipe import Recipe
from trainmaster.model.reports import Ended, Lost, Report, Started
from trainmaster.model.topology import parse_shorthand

PATIENCE_S = 60.0
"""Far more than anything here needs: a test waits until, it never measures."""
R = TypeVar("R")


class Stage:
    """One engine with what it has told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workdir = folder / "work"
        self.workdir.mkdir(exist_ok=True)
        self.engine = LocalEngine(folder, parse_shorthand("2x4"))
        self.told: list[tuple[Report, int]] = []

    async def __aenter__(self) -> Stage:
        await self.engine.open(lambda report, n: self.told.append((report, n)))
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.engine.close()

    def recipe(self, *command: str, grace_ms: int = 20_000) -> Recipe:
        return Recipe(
            command=command,
            workdir=str(self.workdir),
            checkpoint_dir=str(self.workdir / "checkpoints"),
            grace_ms=grace_ms,
        )

    def shell(self, script: str, grace_ms: int = 20_000) -> Recipe:
        return self.recipe("sh", "-c", script, grace_ms=grace_ms)

    async def launch(self, run: Run, recipe: Recipe, ranks: int = 1) -> None:
        await self.engine.execute(Launch(run, placed(ranks), 0), recipe)

    async def order(self, order: Order, recipe: Recipe) -> None:
        await self.engine.execute(order, recipe)

    def of(self, run: Run) -> list[Report]:
        return [report for report, _ in self.told if report.run == run]

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

    async def up(self, run: Run, recipe: Recipe, ranks: int = 1) -> Started:
        await self.launch(run, recipe, ranks)
        return await self.heard(run, Started)

    def log(self, run: Run, rank: int = 0) -> bytes:
        return b"".join(path.read_bytes() for path in self.engine.logs(run).get(rank, ()))

    def alive(self, run: Run) -> list[int]:
        """Processes that carry the run's name, by the kernel's word."""
        return alive_with(f"TRAINMASTER_SOCKET={socket_path(self.engine.folder_of(run))}")


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


def alive_with(mark: str) -> list[int]:
    """Processes with this in their environment; zombies are dead."""
    found = []
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if mark.encode() in environ.split(b"\0") and state_of(pid) not in ("Z", "X", ""):
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


def play(folder: Path, act: Callable[[Stage], Awaitable[None]]) -> None:
    """One act on a fresh stage, after which nothing of it is left, however it went."""

    async def playing() -> None:
        async with Stage(folder) as stage:
            await act(stage)

    with nothing_left(folder):
        asyncio.run(playing())


@contextmanager
def nothing_left(folder: Path) -> Iterator[None]:
    """End by pid whatever an act left running: its supervisors first, then what they had."""
    try:
        yield
    finally:
        for live in (folder / "runs" / ".live").glob("*"):
            job, _, attempt = live.name.rpartition(".")
            run = folder / "runs" / job / attempt
            mark = f"TRAINMASTER_SOCKET={socket_path(run)}"
            for pid in [*supervisors(run), *alive_with(mark)]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


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


def with_(recipe: Recipe, **changes: object) -> Recipe:
    return replace(recipe, **changes)  # type: ignore[arg-type]
