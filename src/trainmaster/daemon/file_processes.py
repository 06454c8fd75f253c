"""Processes that touch files of users for the manager: a few at a time, each request with a deadline.

A folder may hang, and a file never end: then its process is killed, and nothing else waits for it. Where the
manager is root, what is a user's is touched by a process of that user.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import structlog

import trainmaster
from trainmaster.daemon.places import Places, Turns, half_each
from trainmaster.daemon.request_errors import RequestError, Unavailable
from trainmaster.engines.local.privileges import as_argument, is_users
from trainmaster.model.launch_spec import Account

log = structlog.get_logger("trainmaster.files")

MODULE = "trainmaster.daemon.file_worker"
MOST_ANSWER = 64 << 20
IDLE = 2
"""Processes that are kept for the next request."""
CLOSE_S = 1.0
"""How long the end of killed processes is waited for; one that the kernel holds ends later."""
PIECE = 1 << 18


@dataclass(frozen=True, slots=True)
class FileLimits:
    """How many requests of a kind are worked on at once, and how long one may take."""

    at_once: int
    seconds: float
    waiting: int = 200
    """Beyond this, further ones are turned away."""


class FileProcesses:
    """A pool of processes for requests of one kind. Those about the same folder come one after another.

    One user has half of them at most: who owns a process can stop it, and so keep it until its deadline.
    """

    def __init__(self, limits: FileLimits) -> None:
        self._limits = limits
        self._turns = Turns(half_each(limits.at_once))
        self._folders: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._idle: list[tuple[Account | None, asyncio.subprocess.Process]] = []
        self._busy: set[asyncio.subprocess.Process] = set()
        self._ending: set[asyncio.Task[tuple[bytes, bytes]]] = set()
        self._waiting = Places(half_each(limits.waiting))
        self._is_closed = False

    async def ask(
        self,
        what: str,
        folder: str,
        account: Account | None = None,
        owner: str | None = None,
        **said: object,
    ) -> Any:
        """What a process answers about this folder; a RequestError where it refuses or takes too long.

        With the account of another user it is that user's process. `owner` is whose turn it takes; None: the
        manager's own.
        """
        account = account if is_users(account) else None
        if self._waiting.shortage(owner) is not None:
            raise Unavailable("the manager is busy with files of many submissions: try again.")
        self._waiting.take(owner)
        try:
            place = folder if account is None else f"{account.uid} {folder}"
            lock = self._folders.setdefault(place, asyncio.Lock())
            async with lock, self._turns.turn(owner):
                return await self._ask(folder, account, {"do": what, **said})
        finally:
            self._waiting.give_back(owner)

    async def close(self) -> None:
        """Kill them all; requests that still wait are refused."""
        self._is_closed = True
        for process in self._busy:
            _kill(process)  # whoever waits for its answer notices
        for _, process in self._idle:
            self._drop(process)
        self._idle.clear()
        if self._ending:
            await asyncio.wait(self._ending, timeout=CLOSE_S)

    async def _ask(self, folder: str, account: Account | None, said: dict[str, object]) -> Any:
        process = await self._process(account)
        try:
            async with asyncio.timeout(self._limits.seconds):
                line = await _exchange(process, json.dumps(said).encode() + b"\n")
        except BaseException as problem:
            self._drop(process)
            if isinstance(problem, TimeoutError):
                raise RequestError(
                    f"{folder} did not answer within {self._limits.seconds:g} s: see whether its file"
                    " system hangs, and whether it holds special files."
                ) from None
            raise
        if not line:
            self._drop(process)
            log.error("a process for files has ended", asked=said["do"], folder=folder)
            raise Unavailable(f"{folder} could not be read just now: try again.")
        self._busy.discard(process)
        self._keep(account, process)
        answer = json.loads(line)
        if "refused" in answer:
            raise RequestError(answer["refused"])
        return answer["done"]

    async def _process(self, account: Account | None) -> asyncio.subprocess.Process:
        if self._is_closed:
            raise Unavailable("the manager is ending: try again.")
        for each in [each for each in reversed(self._idle) if each[0] == account]:
            self._idle.remove(each)
            process = each[1]
            if process.returncode is None:
                break
            self._drop(process)
        else:
            process = await started(MODULE, account=account)
        self._busy.add(process)
        return process

    def _keep(self, account: Account | None, process: asyncio.subprocess.Process) -> None:
        if self._is_closed:
            self._drop(process)
            return
        self._idle.append((account, process))
        while len(self._idle) > IDLE:
            self._drop(self._idle.pop(0)[1])

    def _drop(self, process: asyncio.subprocess.Process) -> None:
        """Kill it, and wait beside for its end."""
        self._busy.discard(process)
        _kill(process)
        ending = asyncio.create_task(process.communicate())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)


async def archive_of(
    folder: str, account: Account | None, silence_s: float
) -> AsyncGenerator[bytes]:
    """The files that a job wrote in this copy, as a tar archive, piece by piece.

    OSError if it breaks off, TimeoutError where no piece is made for so long.
    """
    account = account if is_users(account) else None
    process = await started("trainmaster.daemon.outputs", folder, account=account, ahead=PIECE)
    assert process.stdout is not None
    try:
        while piece := await asyncio.wait_for(process.stdout.read(PIECE), silence_s):
            yield piece
        if await process.wait() != 0:
            raise OSError(f"the archive of {folder} is not complete")
    finally:
        _kill(process)
        await process.communicate()


async def started(
    module: str, *arguments: str, account: Account | None = None, ahead: int = MOST_ANSWER
) -> asyncio.subprocess.Process:
    """A process of our own code, in a group of its own, with nothing of the manager's environment.

    It becomes the account itself, once all its code is loaded: users need not be able to read that. It has
    been root, so the kernel lets no process of that user look into it. A line of its output has `ahead` bytes
    at most; about twice as many are held in memory.
    """
    here = str(Path(trainmaster.__file__).parents[1])
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    if account is not None:
        kept["HOME"] = account.home  # Git reads its settings there
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", module, as_argument(account), *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=kept | {"PYTHONPATH": here},
        start_new_session=True,
        limit=ahead,
    )


async def _exchange(process: asyncio.subprocess.Process, line: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(ConnectionError):
        process.stdin.write(line)
        await process.stdin.drain()
    return await process.stdout.readline()


def _kill(process: asyncio.subprocess.Process) -> None:
    """It and whatever it has started, such as Git; one that the kernel holds ends when that lets go."""
    assert process.stdin is not None
    process.stdin.close()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
