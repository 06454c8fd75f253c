"""Unix users for tests: made by `useradd`, each with a home, and removed again."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

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
        ["useradd", "--create-home", "--home-dir", str(home), "--shell", "/bin/bash", name],
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
