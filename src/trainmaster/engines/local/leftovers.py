"""Runs that have lost their supervisor, or never had one: what is left is ended, and that is written down."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from trainmaster.engines.freezer import send
from trainmaster.engines.local import journal, processes, runfile
from trainmaster.engines.local.cgroups import RunCgroups, cgroup_name
from trainmaster.engines.local.launch import marks

WHY_LOST = "Its supervisor was killed, or the machine was restarted; nobody saw how it ended."
PATIENCE_S = 60.0


def never_started(order: str) -> journal.Entry:
    """The end of a run that was told to halt, or was killed, before it began."""
    return {
        "code": 143,
        "asked": order,
        "rank": None,
        "has_left": order == "halt",
        "was_killed": False,
        "why": "It was told to end before it had started.",
        "tail": "",
    }


def settle_lost(folder: Path) -> bool:
    """End what is left of a run without a supervisor and say so; False while somebody holds it."""
    lock = journal.take_lock(str(folder))
    if lock is None:
        return False
    try:
        if journal.has_ended(str(folder)):
            return True
        end_all(folder)
        book = journal.Journal(str(folder))
        book.append(book.entry("lost", {"why": WHY_LOST}))
        book.close()
        return True
    finally:
        os.close(lock)


def settle_unbegun(folder: Path, said: journal.Entry) -> bool:
    """End a run that has not begun, so that it never will; False where it has."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = journal.take_lock(str(folder), patience_s=1.0)
    if lock is None:
        return False
    try:
        if journal.has_begun(str(folder)):
            return False
        book = journal.Journal(str(folder))
        book.append(book.entry("ended", said))
        book.close()
        return True
    finally:
        os.close(lock)


def end_all(folder: Path) -> None:
    """SIGKILL to everything that carries the run's name, until nothing does."""
    try:
        file = runfile.read(str(folder))
    except (OSError, ValueError):
        return
    groups = RunCgroups(file.cgroups, cgroup_name(file.socket))
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        groups.kill()
        left = {*processes.carriers(marks(file)), *filter(processes.is_alive, groups.members())}
        if not left:
            break
        for pid in left:
            send(pid, signal.SIGKILL)
        time.sleep(0.005)
    groups.remove()
    with contextlib.suppress(OSError):
        os.unlink(file.socket)
