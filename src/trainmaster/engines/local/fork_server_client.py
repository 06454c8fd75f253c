"""The engine's side of the fork server: asks for supervisors, and restarts it when it has died."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import structlog

from trainmaster.engines.local import descriptors, processes
from trainmaster.engines.local.worker_environment import base_env

ANSWER_S = 30.0
"""How long a supervisor may take to answer on a machine that is very busy."""
END_S = 5.0

LIBRARIES = "LD_LIBRARY_PATH"

log = structlog.get_logger(__name__)


class ForkServerClient:
    """One fork server, while the engine is open."""

    def __init__(self, answer_s: float = ANSWER_S) -> None:
        self._answer_s = answer_s
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._asked: dict[str, asyncio.Future[bool]] = {}
        self._starting = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The fork server's process id, while it lives."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    async def spawn(self, folder: Path) -> bool:
        """Whether a supervisor answered for this folder; it may have found that one is there already."""
        name = str(folder)
        answered = self._asked.get(name)
        if answered is None:
            answered = self._asked[name] = asyncio.get_running_loop().create_future()
            try:
                await self._ask(name)
            except OSError:
                self._answer(name, False)
        asked = self._process
        try:
            return await asyncio.wait_for(asyncio.shield(answered), self._answer_s)
        except TimeoutError:
            self._answer(name, False)
            self._replace(asked)
            return False

    def _replace(self, silent: asyncio.subprocess.Process | None) -> None:
        """Kill a fork server that hangs: the next call starts another."""
        if silent is not None and silent is self._process and silent.returncode is None:
            log.error("the fork server does not answer and is replaced", pid=silent.pid)
            silent.kill()

    async def close(self) -> None:
        """Close its input, which ends it; calls that still wait get no answer."""
        for name in [*self._asked]:
            self._answer(name, False)
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                await asyncio.wait_for(self._process.wait(), END_S)
            except TimeoutError:  # it hangs
                self._process.kill()
                await self._process.wait()
            self._process = None
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader
            self._reader = None

    async def start(self) -> None:
        """Start one, if none is running."""
        async with self._starting:
            if self.pid is not None:
                return
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "trainmaster.engines.local.fork_server"),
                str(descriptors.SOFT),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=server_env(os.environ),
                start_new_session=True,
            )
            self._reader = asyncio.create_task(self._read(self._process))

    async def _ask(self, name: str) -> None:
        await self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(name).encode() + b"\n")
        await self._process.stdin.drain()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Pass on the answers; when it dies, the missing ones fail."""
        assert process.stdout is not None
        while line := await process.stdout.readline():
            name, came = json.loads(line)
            self._answer(name, came)
        await process.wait()
        for name in [*self._asked]:
            self._answer(name, False)

    def _answer(self, name: str, came: bool) -> None:
        answered = self._asked.pop(name, None)
        if answered is not None and not answered.done():
            answered.set_result(came)


def server_env(ours: Mapping[str, str]) -> dict[str, str]:
    """For the fork server, supervisors and their helpers, which look for libcuda where we do.

    Programs get an environment of their own.
    """
    libraries = {LIBRARIES: ours[LIBRARIES]} if LIBRARIES in ours else {}
    return base_env(ours) | {"PYTHONPATH": processes.python_path()} | libraries
