"""Detects that an interactive session is idle, and asks to suspend it."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import sys
import time
import urllib.request

from trainmaster_sdk import wire
from trainmaster_sdk.process_tree import stat_of, tree_below

URL = "TRAINMASTER_URL"
UNIX = "unix:"
REFUSED = 400
"""The lowest status of answers that are refusals."""
PATIENCE_S = 30.0
BUSY = 0.02
"""Part of one core above which processes count as working: prompts and their timers use less."""


class Idleness:
    """How long the processes below one have used almost no CPU."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._at = time.monotonic()
        self._used = used_s(root)
        self._quiet_since = self._at

    def quiet_s(self) -> float:
        now, used = time.monotonic(), used_s(self._root)
        # a process that ended takes its time with it: what is left is the new mark
        if used - self._used > BUSY * max(now - self._at, 0.001):
            self._quiet_since = now
        self._at, self._used = now, used
        return now - self._quiet_since

    def begin_again(self) -> None:
        """Restart the measurement after a stop: that time does not count."""
        self._at = self._quiet_since = time.monotonic()
        self._used = used_s(self._root)


def used_s(root: int) -> float:
    """CPU time of this process and all below it so far, including ended children."""
    tree = (stat_of(pid) for pid in (root, *tree_below(root)))
    return sum(int(ticks) for fields in tree for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def ask_to_be_suspended() -> bool:
    """Ask the manager to suspend this job; a failure is printed on standard error."""
    url, job = os.environ.get(URL), os.environ.get(wire.JOB)
    if not url or not job:
        sys.stderr.write(
            f"Idle, but {URL} is not set: cannot ask the manager to suspend this job.\n"
        )
        return False
    try:
        _post(url.rstrip("/"), f"/api/v1/jobs/{job}/idle")
        return True
    except (http.client.HTTPException, OSError) as error:
        sys.stderr.write(f"Idle, but the manager did not suspend this job: {error}.\n")
        return False


def _post(url: str, path: str) -> None:
    """Post to a manager by its Unix socket, `unix:/PATH`, or by its address; OSError where it refuses."""
    headers = {"Content-Type": "application/json"}
    if not url.startswith(UNIX):
        asked = urllib.request.Request(f"{url}{path}", b"{}", headers, method="POST")
        with urllib.request.urlopen(asked, timeout=PATIENCE_S):
            return
    connection = http.client.HTTPConnection("localhost", timeout=PATIENCE_S)
    with contextlib.closing(connection), socket.socket(socket.AF_UNIX) as connection.sock:
        connection.sock.settimeout(PATIENCE_S)
        connection.sock.connect(url.removeprefix(UNIX))
        connection.request("POST", path, b"{}", headers)
        answer = connection.getresponse()
        if answer.status >= REFUSED:
            raise OSError(f"it answered {answer.status} {answer.reason}")
