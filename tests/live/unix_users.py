"""Unix users for tests: made by `useradd`, each with a home, and removed again."""

from __future__ import annotations

import fcntl
import http.client
import itertools
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.live.daemons import LiveDaemon, live
from trainmaster.model.launch_spec import Account

_numbers = itertools.count(1)


@contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder that everybody may enter; those of pytest are closed to other users."""
    folder = Path(tempfile.mkdtemp(prefix="tm-users-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def unix_user(homes: Path) -> Iterator[Account]:
    """A user that nobody else has, for as long as this lasts."""
    if os.geteuid() != 0:
        pytest.fail("This test makes Unix users with useradd: run it as root.")
    name = f"tmtest{os.getpid()}x{next(_numbers)}"
    home = homes / name
    subprocess.run(
        [
            *("useradd", "--create-home", "--home-dir", str(home), "--shell", "/bin/bash"),
            *("--groups", "users", name),
        ],
        check=True,
        capture_output=True,
    )
    home.chmod(0o700)
    entry = pwd.getpwnam(name)
    try:
        yield Account(name, entry.pw_uid, entry.pw_gid, entry.pw_dir, entry.pw_shell)
    finally:
        end_processes_of(entry.pw_uid)
        subprocess.run(["userdel", name], check=True, capture_output=True)
        shutil.rmtree(home, ignore_errors=True)


def end_processes_of(uid: int) -> None:
    """Of a user that a test has made."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and entry.stat().st_uid == uid:
                os.kill(int(entry.name), signal.SIGKILL)


def as_user(account: Account, script: str) -> subprocess.CompletedProcess[str]:
    """A shell script that this user runs at home."""
    return subprocess.run(
        ["/bin/sh", "-c", script],
        user=account.uid,
        group=account.gid,
        extra_groups=[],
        cwd=account.home,
        env={"PATH": "/usr/bin:/bin", "HOME": account.home},
        capture_output=True,
        text=True,
        check=False,
    )


class AsUser(http.client.HTTPConnection):
    """A connection to a manager's Unix socket; the kernel tells that this user made it."""

    def __init__(self, path: Path, account: Account | None) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path
        self._account = account

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        if self._account is not None:
            os.setegid(self._account.gid)
            os.seteuid(self._account.uid)
        try:
            self.sock.connect(str(self._path))
        finally:
            os.seteuid(0)
            os.setegid(0)


def asked(
    path: Path, account: Account | None, method: str, url: str, body: object = None
) -> tuple[int, Any]:
    """Status and answer of a request that this user makes; None: root."""
    line = AsUser(path, account)
    content = None if body is None else json.dumps(body)
    line.request(method, url, content, {"content-type": "application/json"})
    answer = line.getresponse()
    said = answer.read()
    line.close()
    is_json = (answer.headers.get("content-type") or "").startswith("application/json")
    return answer.status, json.loads(said) if is_json else said


@contextmanager
def system_manager(folder: Path, *arguments: str) -> Iterator[LiveDaemon]:
    """A manager for everybody. Its socket is the machine's only one, so that one test has it at a time."""
    if os.geteuid() != 0:
        pytest.fail("This test starts a manager for all users: run it as root.")
    with open("/tmp/trainmaster-system-manager.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with live(folder, "--system", *arguments) as daemon:
            yield daemon
