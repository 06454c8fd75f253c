"""A real `trainmaster up` on a free port and in a folder of its own, and one connection to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.live_stamp import until

ANSWER_S = 600.0
IDLE_S = 2.0
"""The server closes a connection that has been idle for some seconds: a new one is made before."""


class Client:
    """One connection to a daemon, which stays open, as that of a client of any length does."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection: http.client.HTTPConnection | None = None
        self._used = 0.0

    def call(self, method: str, path: str, body: object = None) -> Any:
        status, content = self.raw(method, path, body)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {content[:500]!r}")
        return json.loads(content)

    def raw(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        now = time.monotonic()
        if self._connection is None or now - self._used > IDLE_S:
            self.hang_up()
            place = urlsplit(self.url)
            host, port = place.hostname or "", place.port
            self._connection = http.client.HTTPConnection(host, port, timeout=ANSWER_S)
        said = None if body is None else json.dumps(body)
        self._connection.request(method, path, said, {"content-type": "application/json"})
        answer = self._connection.getresponse()
        content = answer.read()
        self._used = time.monotonic()
        return answer.status, content

    def hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = self.call("GET", "/api/v1/jobs?limit=1")["counts"]
        return found


class LiveDaemon(Client):
    """The process, and what one may ask it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "out.txt").open("ab") as out:
            self.process = subprocess.Popen(
                [*command(), "up", "--data", str(folder), "--port", "0", *arguments],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        until(self._is_active, "the daemon to be active")
        super().__init__(str(self._said()["url"]))

    def _said(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.folder / "address").read_text())
        except (OSError, ValueError):
            return {}
        return found

    def _is_active(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError((self.folder / "out.txt").read_text())
        return self._said().get("pid") == self.process.pid

    def memory(self) -> dict[str, float]:
        """MiB: now, and at most so far."""
        named = {"VmRSS:": "rss_mib", "VmHWM:": "peak_mib"}
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        split = (line.split() for line in lines)
        return {named[each[0]]: round(int(each[1]) / 1024, 1) for each in split if each[0] in named}

    def close(self) -> None:
        self.hang_up()
        self.process.kill()
        self.process.wait()
        for pid in _of_folder(self.folder):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


@contextmanager
def live(folder: Path, *arguments: str) -> Iterator[LiveDaemon]:
    """An active daemon; at the end it and everything that it started is gone."""
    daemon = LiveDaemon(folder, *arguments)
    try:
        yield daemon
    finally:
        daemon.close()


def command() -> list[str]:
    """The program that is installed beside this Python."""
    return [str(Path(sys.executable).with_name("trainmaster"))]


def _of_folder(folder: Path) -> list[int]:
    """Processes whose command line or environment names this folder."""
    mark, found = str(folder).encode(), []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            content = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            is_dead = b") Z " in (entry / "stat").read_bytes()
        except OSError:
            continue
        if mark in content and not is_dead:
            found.append(int(entry.name))
    return found
