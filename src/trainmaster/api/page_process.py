"""The process that builds the pages: started when somebody looks, and again when it has died.

It keeps nothing, so that it can be killed at any time; it ends with the manager, whose end it sees at its
standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import structlog

from trainmaster.api.local_socket import LocalSocket, own_path

log = structlog.get_logger("trainmaster.pages")

FILE = "pages.log"
WAIT_S = 2.0
"""How long a request waits for a process that starts."""
LOOK_S = 0.05
STEADY_S = 30.0
"""A process that lived so long is started again at once."""
LONGEST_PAUSE_S = 60.0
KEPT_BACK = ("TRAINMASTER_", "PG")
"""Beginnings of variables that may hold what opens a database or a manager."""
End = TypeVar("End", bound=asyncio.Protocol)


class PagesAway(Exception):
    """There are no pages just now: one sentence."""


@dataclass(slots=True)
class _Life:
    """Of one process."""

    process: subprocess.Popen[bytes]
    started_s: float
    died_s: float | None = None

    def watch(self) -> None:
        """Note when it dies: nobody may look for long after that."""
        self.process.wait()
        self.died_s = time.monotonic()


class PageProcess:
    """At most one process, and the sockets between it and its manager."""

    def __init__(self, folder: Path) -> None:
        """For the manager of this data folder."""
        self._folder = folder
        self.sessions = LocalSocket(own_path(folder, "pages"))
        """Where it asks the API."""
        self._place = Path(f"{self.sessions.bound}.p")
        """Where it serves the pages."""
        self._life: _Life | None = None
        self._deaths = 0
        """In a row, soon after the start."""

    async def connect(self, make: Callable[[], End]) -> tuple[asyncio.Transport, End]:
        """A new connection to it; PagesAway where there is none soon."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + WAIT_S
        while True:
            try:
                return await loop.create_unix_connection(make, str(self._place))
            except (FileNotFoundError, ConnectionRefusedError):
                self._start_if_due()
            if loop.time() > latest:
                raise PagesAway("The page is starting.")
            await asyncio.sleep(LOOK_S)

    def end(self) -> None:
        """With all that it has started; its socket for sessions is the server's to close."""
        life, self._life = self._life, None
        if life is not None:
            _kill(life.process)
            life.process.wait()
            _close_input(life.process)
        self._place.unlink(missing_ok=True)

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        life = self._life
        return None if life is None or life.process.poll() is not None else life.process.pid

    def end_stuck(self, pid: int | None) -> None:
        """It has answered nobody for long; the next who looks has it started again."""
        if self._life is not None and pid is not None and pid == self.pid:
            log.warning("the process of the pages does not answer and is ended", pid=pid)
            _kill(self._life.process)

    def _start_if_due(self) -> None:
        now = time.monotonic()
        if (life := self._life) is not None:
            code = life.process.poll()
            if code is None:
                return
            died_s = now if life.died_s is None else life.died_s
            is_steady = died_s - life.started_s > STEADY_S
            pause_s = 0.0 if is_steady else min(2.0**self._deaths, LONGEST_PAUSE_S)
            if now - died_s < pause_s:
                raise PagesAway(
                    f"The page cannot be shown: its process has ended with {code}, as {FILE} in the manager's"
                    " data folder says. It is started again in a while."
                )
            self._deaths = 0 if is_steady else self._deaths + 1
            log.warning("the process of the pages has ended and is started again", code=code)
            _close_input(life.process)
        self._life = _Life(self._start(), now)
        threading.Thread(target=self._life.watch, name="pages", daemon=True).start()

    def _start(self) -> subprocess.Popen[bytes]:
        said = self._folder / FILE
        out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            return subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "trainmaster.api.web"),
                    *("--manager", str(self.sessions.bound), "--socket", str(self._place)),
                    *("--log", str(said)),
                ],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                cwd="/",
                env=_environment(self._folder),
                start_new_session=True,
            )
        finally:
            os.close(out)


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(KEPT_BACK)}
    return {
        **kept,
        "NICEGUI_STORAGE_PATH": str(folder / "pages"),
        "MALLOC_ARENA_MAX": "2",  # each thread would map 64 MiB of the memory that it may have
    }


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def _close_input(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
