"""A persistent connection to a real `trainmaster up`, and the requests that benchmarks send."""

from __future__ import annotations

import http.client
import json
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.live.daemons import LiveDaemon

ANSWER_S = 600.0
IDLE_S = 2.0
"""The server closes a connection that has been idle for some seconds: a new one is made before."""


class MeasuringClient:
    """A client with one persistent connection."""

    def __init__(self, daemon: LiveDaemon) -> None:
        assert daemon.url is not None
        assert daemon.process is not None
        self.url, self._pid = daemon.url, daemon.process.pid
        self._headers = {"content-type": "application/json", **daemon.bearer()}
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
        self._connection.request(method, path, said, self._headers)
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

    def memory(self) -> dict[str, float]:
        """Memory of the manager in MiB: now, and peak."""
        named = {"VmRSS:": "rss_mib", "VmHWM:": "peak_mib"}
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        split = (line.split() for line in lines)
        return {named[each[0]]: round(int(each[1]) / 1024, 1) for each in split if each[0] in named}


def command() -> list[str]:
    """The program that is installed beside this Python."""
    return [str(Path(sys.executable).with_name("trainmaster"))]
