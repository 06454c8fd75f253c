"""Jupyter as a job's program: started, its address published, suspended when idle."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import datetime
from pathlib import Path

from trainmaster_sdk import terminal_protocol as frames
from trainmaster_sdk.idle_detection import Idleness, ask_to_be_suspended

PROGRAMS = (("jupyter-lab",), ("jupyter", "lab"), ("jupyter-notebook",))
LOOK_S = 1.0
LEAVING_S = 10.0


def program() -> tuple[str, ...] | None:
    """The first of Jupyter's programs that is installed here."""
    import shutil

    return next((words for words in PROGRAMS if shutil.which(words[0])), None)


def serve(folder: Path, idle_s: float) -> int:
    """Run it until it ends; ask to be suspended each time it was idle for that long."""
    words = program()
    if words is None:
        sys.stderr.write("Jupyter is not installed here: pip install jupyterlab.\n")
        return 127
    port, token = _free_port(), secrets.token_urlsafe(24)
    options = ("--no-browser", "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0")
    environment = os.environ | {"JUPYTER_TOKEN": token}
    started = subprocess.Popen([*words, *options], env=environment)
    signal.signal(signal.SIGTERM, lambda *_: started.terminate())
    woken: list[bool] = []
    signal.signal(signal.SIGCONT, lambda *_: woken.append(True))
    address = _Address(folder, port, token)
    idleness = Idleness(started.pid)
    while started.poll() is None:
        address.publish_once_it_answers()
        time.sleep(min(LOOK_S, idle_s))
        if woken:
            woken.clear()
            idleness.begin_again()
            address.woken_at = time.time()
        if address.is_published and min(idleness.quiet_s(), address.unused_s()) >= idle_s:
            ask_to_be_suspended()
            idleness.begin_again()
    (folder / frames.ADDRESS).unlink(missing_ok=True)
    return started.returncode if started.returncode >= 0 else 128 - started.returncode


class _Address:
    """The notebook's address, published once it answers."""

    def __init__(self, folder: Path, port: int, token: str) -> None:
        self._file = folder / frames.ADDRESS
        self._file.unlink(missing_ok=True)
        self._root = f"http://127.0.0.1:{port}"
        self._token = token
        self.is_published = False
        self.woken_at = time.time()

    def publish_once_it_answers(self) -> None:
        if self.is_published or self._status() is None:
            return
        said = {"url": f"{self._root}/lab?token={self._token}", "pid": os.getpid()}
        part = self._file.with_suffix(".part")
        part.touch(mode=0o600)
        part.write_text(json.dumps(said), encoding="utf-8")
        os.replace(part, self._file)
        self.is_published = True

    def unused_s(self) -> float:
        """How long it has been idle, as it reports; since it was resumed if it does not report."""
        status = self._status() or {}
        try:
            last = datetime.fromisoformat(str(status["last_activity"]).replace("Z", "+00:00"))
            used_at = max(last.timestamp(), self.woken_at)
        except (KeyError, ValueError):
            used_at = self.woken_at
        return time.time() - used_at

    def _status(self) -> dict[str, object] | None:
        asked = urllib.request.Request(
            f"{self._root}/api/status", headers={"Authorization": f"token {self._token}"}
        )
        try:
            with urllib.request.urlopen(asked, timeout=5) as answer:
                found = json.load(answer)
        except (urllib.error.URLError, OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
