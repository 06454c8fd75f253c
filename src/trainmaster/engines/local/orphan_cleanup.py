"""Cleans up runs without a supervisor: kills what is left, and writes that down."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from trainmaster.engines.local import containers, journal, processes, runfile
from trainmaster.engines.local.cgroups import RunCgroups, cgroup_name
from trainmaster.engines.local.exit_status import withdrawal
from trainmaster.engines.local.process_freezer import send
from trainmaster.engines.local.runfile import CgroupPlan
from trainmaster.engines.local.socket_paths import for_orders, takes_orders
from trainmaster.engines.local.worker_environment import RUN
from trainmaster_sdk import wire
from trainmaster_sdk.process_tree import is_alive
from trainmaster_sdk.wire import Message

WHY_KILLED = "why-killed"
"""The file in a run's folder that says why its supervisor was killed."""
WHY_LOST = "Its supervisor was killed, or the machine was restarted; how it ended is unknown."
WHY_COPIED = "It is a run of the data folder that this one is a copy of, and was left alone there."
SWEEPING_S = 1.0
"""Seconds that one sweep takes, at most; sweeps are repeated until nothing is left."""


@dataclass(frozen=True, slots=True)
class RunRemains:
    """Where the remains of a run are: its folder; its socket and cgroups if the folder does not name them."""

    folder: Path
    socket: str
    cgroups: CgroupPlan
    uuid: str = ""
    """Of the job that the run is of."""

    @property
    def name(self) -> str:
        return f"{self.folder.parent.name}.{self.folder.name}"


def ended_before_start(said: Message) -> journal.JournalEntry:
    """The end of a run that was told to halt, or was killed, before it began."""
    order = said["order"]
    return withdrawal(said) | {
        "code": 143,
        "asked": order,
        "rank": None,
        "has_left": order == "halt",
        "was_killed": False,
        "why": "It was told to end before it had started.",
        "tail": "",
    }


def close_lost_run(
    remains: RunRemains, floor: int, why: str = WHY_LOST, *, was_alive: bool = True
) -> bool:
    """End what is left of a run without a supervisor and say so; False while anything is left.

    What it says has a number beyond `floor`, the last that was seen: the journal may have become shorter.
    It says when the last sign of life was where the run `was_alive` no more when it was looked for.
    """
    with _held(remains) as is_ours:
        if not is_ours:
            return False
        newest = journal.last(str(remains.folder))
        what = "lost"
        why = _noted(remains) or why
        said: journal.JournalEntry = {"why": WHY_COPIED if _is_copy(remains) else why}
        if not was_alive:
            said["alive_ms"] = last_sign(remains.folder)
        if newest is not None and newest["what"] in journal.LAST:
            if newest["n"] >= floor:
                return True
            what, said = newest["what"], newest
        if not kill_remains(remains):
            return False
        _write(remains, floor, what, said)
        return True


def _noted(remains: RunRemains) -> str:
    """Why its supervisor was killed on purpose, where somebody noted that."""
    try:
        return (remains.folder / WHY_KILLED).read_text()
    except (OSError, ValueError):
        return ""


def close_unstarted_run(remains: RunRemains, what: str, said: journal.JournalEntry) -> bool:
    """End a run that has not begun, so that it never will; False where it has."""
    with _held(remains, patience_s=1.0) as is_ours:
        if not is_ours or journal.has_begun(str(remains.folder)):
            return False
        _write(remains, 0, what, said)
        return True


def kill_supervisor(remains: RunRemains, why: str = "") -> None:
    """Kill the run's supervisor, and its ranks with it: it cannot be followed.

    `why` is noted for whoever finds first that it is gone.
    """
    if why:
        with contextlib.suppress(OSError):  # without a note it is killed all the same
            (remains.folder / WHY_KILLED).write_text(why)
    for pid in processes.lock_holders(str(remains.folder / journal.LOCK)):
        if pid != os.getpid():
            send(pid, signal.SIGKILL)


@contextlib.contextmanager
def _held(remains: RunRemains, patience_s: float = 0.0) -> Iterator[bool]:
    """Hold the run's lock, creating its folder if needed; False if another process holds it."""
    remains.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = journal.take_lock(str(remains.folder), patience_s)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            os.close(lock)


def _write(remains: RunRemains, floor: int, what: str, said: journal.JournalEntry) -> None:
    book = journal.Journal(str(remains.folder), floor)
    try:
        when = {name: said[name] for name in ("steady_ms", "boot") if name in said}
        book.append(said | book.entry(what, {"uuid": remains.uuid}) | when)
        if not book.is_written:
            raise OSError(book.trouble)
    finally:
        book.close()


def kill_remains(remains: RunRemains) -> bool:
    """SIGKILL to everything that carries the run's name; whether nothing does any more.

    Found by the run's name and that of its socket, which both follow from its folder: its file may be gone.
    """
    groups, sockets = _groups_and_sockets(remains)
    until = time.monotonic() + SWEEPING_S
    while True:
        for group in groups:
            group.kill()
        left = processes_left(remains)
        if not left:
            break
        if time.monotonic() > until:
            return False
        for pid in left:
            send(pid, signal.SIGKILL)
        time.sleep(0.005)
    with contextlib.suppress(FileNotFoundError, ValueError):  # nothing is known of its containers
        file = runfile.read(str(remains.folder))
        if file.socket in sockets:
            containers.remove(file)
    for group in groups:
        group.remove()
    for socket in (each for path in sockets for each in (path, for_orders(path))):
        with contextlib.suppress(OSError):
            os.unlink(socket)
    return True


def processes_left(remains: RunRemains) -> set[int]:
    """Everything alive that carries the run's name."""
    groups, sockets = _groups_and_sockets(remains)
    ends = ["/" + os.path.basename(socket) for socket in sockets]
    named = processes.processes_of_run(f"{RUN}={remains.name}", wire.SOCKET, ends)
    return {pid for group in groups for pid in group.members() if is_alive(pid)} | set(named)


def last_sign(folder: Path) -> int:
    """When a run without a supervisor gave its last sign of life: an entry, or output; 0: it gave none."""
    newest = journal.last(str(folder))
    written = [path.stat().st_mtime_ns // 1_000_000 for path in folder.glob("rank-*.log*")]
    return max([0 if newest is None else newest["at_ms"], *written])


def is_of_another_folder(remains: RunRemains, socket: str) -> bool:
    """Whether who listens there supervises the run of this name in another data folder.

    This folder is then a copy of that one, or was restored from its backup, and files in it name its sockets.
    A folder that was moved has its lock still.
    """
    lock = remains.folder / journal.LOCK
    end = f"/{remains.folder.parent.name}/{remains.folder.name}/{journal.LOCK}"
    return any(
        opened.endswith(end) and not processes.has_open(pid, str(lock))
        for pid in processes.listener_at(takes_orders(socket))
        for opened in processes.opened_by(pid)
    )


def _is_copy(remains: RunRemains) -> bool:
    return any(is_of_another_folder(remains, each) for each in _cgroups_and_sockets(remains)[1])


def _groups_and_sockets(remains: RunRemains) -> tuple[list[RunCgroups], list[str]]:
    plan, named = _cgroups_and_sockets(remains)
    sockets = [each for each in named if not is_of_another_folder(remains, each)]
    return [RunCgroups(plan, cgroup_name(socket)) for socket in sockets], sockets


def _cgroups_and_sockets(remains: RunRemains) -> tuple[CgroupPlan, list[str]]:
    """Its control groups and its sockets: as its file says, and where they would be."""
    try:
        file = runfile.read(str(remains.folder))
    except (OSError, ValueError):
        said = runfile.socket_of(str(remains.folder))
        sockets = [remains.socket] if said is None else [said, remains.socket]
        # No limits are known: groups for them are looked for wherever they could be.
        return replace(remains.cgroups, memory=0, cpus=0, pids=1), list(dict.fromkeys(sockets))
    return file.cgroups, list(dict.fromkeys((file.socket, remains.socket)))
