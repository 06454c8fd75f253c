"""Simulations that people ask a manager for: each in a process of its own, few at a time, bounded in number,
time and memory, with progress and an end on request.

The program of such a process is a module: `python -m MODULE FOLDER`. It reads `request.json` in its folder,
calls `child_process.bounded()` first and `Teller.tell(...)` as it goes on, and leaves `result.json` there,
with whatever else is to be fetched. What cannot be done it says by `child_process.refuse(sentence)`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import structlog

from trainmaster.daemon.clock import Clock
from trainmaster.daemon.service_api import NotFound, TooMany
from trainmaster.model.units import GIB, MINUTE, SECOND
from trainmaster.text.formatting import length, plural, size

log = structlog.get_logger("trainmaster.whatif")

REQUEST, RESULT = "request.json", "result.json"
MOST_LINE = 1 << 16
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Each thread of these libraries takes memory, and simulations use none of them."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What all simulations together, and each, may take of the manager's machine."""

    running: int = 2
    running_per_user: int = 1
    waiting_per_user: int = 3
    waiting: int = 20
    kept_per_user: int = 10
    """Finished ones, the newest."""
    kept_bytes: int = GIB
    """Of all users' finished ones together."""
    time_ms: int = 15 * MINUTE
    memory: int = 4 * GIB


class RunState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def has_ended(self) -> bool:
        return self in (RunState.DONE, RunState.FAILED, RunState.CANCELLED)


@dataclass(slots=True, eq=False)
class SimulationRun:
    """One that somebody asked for."""

    id: str
    user: str
    program: str
    """The module that its process runs."""
    title: str
    folder: Path
    asked_ms: int
    state: RunState = RunState.WAITING
    progress: float = 0.0
    """From 0 to 1."""
    says: str = ""
    """What it does now, or why it failed: a sentence."""
    ended_ms: int | None = None
    bytes: int = 0
    """What its result takes on disk."""
    process: asyncio.subprocess.Process | None = None

    @property
    def result(self) -> Path:
        return self.folder / RESULT


class SimulationProcesses:
    """Those of one manager; nothing of them outlives it."""

    def __init__(self, folder: Path, bounds: Bounds | None = None) -> None:
        self._folder = folder
        self._bounds = bounds or Bounds()
        self._clock = Clock()
        self._runs: dict[str, SimulationRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._coming: list[str] = []
        """Users whose requests are being written."""
        self._cleaning: asyncio.Task[None] | None = None

    async def ask(self, user: str, program: str, title: str, request: Any) -> SimulationRun:
        """Begin one now, or as soon as others have ended."""
        self.refuse_too_many(user)
        id = secrets.token_hex(6)
        run = SimulationRun(id, user, program, title, self._folder / id, self._clock.now())
        self._coming.append(user)
        try:
            await self._clean()
            await asyncio.to_thread(_write_request, run, request)
        finally:
            self._coming.remove(user)
        self._runs[id] = run
        self._begin_next()
        return run

    def refuse_too_many(self, user: str) -> None:
        """Where there is no room for one more of this user."""
        waiting = [each.user for each in self._runs.values() if each.state is RunState.WAITING]
        waiting += self._coming
        own = waiting.count(user)
        if own >= self._bounds.waiting_per_user:
            raise TooMany(f"You have {plural(own, 'simulation')} that wait: wait, or cancel one.")
        if len(waiting) >= self._bounds.waiting:
            raise TooMany(f"{plural(len(waiting), 'simulation')} wait already: try again later.")

    def of(self, user: str | None, program: str) -> list[SimulationRun]:
        """Those of a user, or of everybody, the newest first."""
        found = [each for each in self._runs.values() if each.program == program]
        return [each for each in reversed(found) if user in (None, each.user)]

    def get(self, id: str, user: str | None, program: str) -> SimulationRun:
        """One of a user, or of anybody."""
        run = self._runs.get(id)
        if run is None or run.program != program or user not in (None, run.user):
            raise NotFound(
                f"There is no simulation {id}: it was removed, or the manager restarted."
            )
        return run

    async def cancel(self, run: SimulationRun) -> None:
        if run.state.has_ended:
            return
        was_waiting = run.state is RunState.WAITING
        self._end(run, RunState.CANCELLED, "It was cancelled.")
        await self._kill(run)
        self._begin_next()
        if was_waiting:  # nothing follows it
            await self._tidy(run)

    async def close(self) -> None:
        """End all that run, and remove what they left."""
        runs = list(self._runs.values())
        for run in runs:
            self._end(run, RunState.CANCELLED, "The manager stopped.")
        for run in runs:
            await self._kill(run)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for run in runs:
            await asyncio.to_thread(_remove, run.folder)

    # -- one after the other ---------------------------------------------------------------------------

    async def _clean(self) -> None:
        """Remove what an earlier manager left; all that ask at first wait for it."""
        if self._cleaning is None:
            self._cleaning = asyncio.create_task(asyncio.to_thread(_remove, self._folder))
        await asyncio.shield(self._cleaning)

    def _begin_next(self) -> None:
        for run in list(self._runs.values()):
            running = [each for each in self._runs.values() if each.state is RunState.RUNNING]
            own = sum(each.user == run.user for each in running)
            is_next = run.state is RunState.WAITING and own < self._bounds.running_per_user
            if is_next and len(running) < self._bounds.running:
                run.state = RunState.RUNNING
                task = asyncio.create_task(self._follow(run))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _follow(self, run: SimulationRun) -> None:
        try:
            async with asyncio.timeout(self._bounds.time_ms / SECOND):
                await self._start(run)
                await self._listen(run)
        except TimeoutError:
            most = length(self._bounds.time_ms)
            self._end(run, RunState.FAILED, f"It took more than {most}: simulate fewer jobs.")
        except (OSError, ValueError) as problem:
            self._end(run, RunState.FAILED, f"Its process could not be followed: {problem}.")
        finally:
            await self._kill(run)
            self._begin_next()
            await self._tidy(run)

    async def _start(self, run: SimulationRun) -> None:
        if run.state.has_ended:  # cancelled before it began
            return
        run.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", run.program, str(run.folder)),
            stdin=asyncio.subprocess.PIPE,  # it ends with the manager
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | ONE_THREAD | {"TRAINMASTER_MEMORY": str(self._bounds.memory)},
            start_new_session=True,
            limit=MOST_LINE,
        )

    async def _listen(self, run: SimulationRun) -> None:
        process = run.process
        if process is None or run.state.has_ended:  # cancelled while it began
            return
        output, errors = process.stdout, process.stderr
        assert output is not None
        assert errors is not None
        complaints = asyncio.create_task(_tail(errors))
        while line := await output.readline():
            said = json.loads(line)
            if "refused" in said:
                self._end(run, RunState.FAILED, str(said["refused"]))
            else:
                run.progress, run.says = float(said["progress"]), str(said["says"])
        code, tail = await process.wait(), await complaints
        if run.ended_ms is not None:  # it refused, or was cancelled
            return
        if code == 0 and await asyncio.to_thread(run.result.exists):
            self._end(run, RunState.DONE, "")
            run.progress = 1.0
        elif code == -signal.SIGKILL or "MemoryError" in tail:
            most = size(self._bounds.memory)
            said_why = f"It was ended, or needed more than {most} of memory: simulate fewer jobs."
            self._end(run, RunState.FAILED, said_why)
        else:
            log.error("a simulation failed", id=run.id, code=code, output=tail)
            self._end(run, RunState.FAILED, "It failed: the manager's log says why.")

    def _end(self, run: SimulationRun, state: RunState, says: str) -> None:
        if not run.state.has_ended:
            run.state, run.says, run.ended_ms = state, says, self._clock.now()

    async def _kill(self, run: SimulationRun) -> None:
        process = run.process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def _tidy(self, run: SimulationRun) -> None:
        """Keep only the result of one that has ended, and finished ones only within the bounds."""
        if run.state is RunState.DONE:
            run.bytes = await asyncio.to_thread(_keep_result, run)
        else:
            await asyncio.to_thread(_remove, run.folder)
        ended = [each for each in self._runs.values() if each.state.has_ended]
        own = [each for each in ended if each.user == run.user]
        old = own[: -self._bounds.kept_per_user]
        left = sum(each.bytes for each in ended if each not in old)
        for each in ended:
            if left > self._bounds.kept_bytes and each.bytes and each not in old:
                old.append(each)
                left -= each.bytes
        for each in old:
            del self._runs[each.id]
        for each in old:
            await asyncio.to_thread(_remove, each.folder)


async def _tail(stream: asyncio.StreamReader, most: int = 4000) -> str:
    """The last that it wrote."""
    kept = b""
    while piece := await stream.read(4096):
        kept = (kept + piece)[-most:]
    return kept.decode("utf-8", "replace")


def request_in(folder: Path) -> Any:
    """What was asked, for the process that simulates it."""
    return json.loads((folder / REQUEST).read_text("utf-8", "surrogatepass"))


def _write_request(run: SimulationRun, request: Any) -> None:
    try:
        run.folder.mkdir(parents=True, mode=0o700)
        text = json.dumps(request, ensure_ascii=False)
        (run.folder / REQUEST).write_text(text, "utf-8", "surrogatepass")
    except OSError:
        _remove(run.folder)
        raise


def _keep_result(run: SimulationRun) -> int:
    """Bytes that stay there."""
    (run.folder / REQUEST).unlink(missing_ok=True)
    return sum(each.stat().st_size for each in run.folder.rglob("*"))


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
