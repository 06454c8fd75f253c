"""What the kernel says of processes: descendants, processes with a run's name, holders of a lock."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import struct
import time
from collections.abc import Collection, Iterable, Iterator, Sequence

import trainmaster
from trainmaster_sdk.process_tree import all_pids, is_alive, stat_of

CONNECT_S = 1.0
"""How long a process may take to accept a connection."""

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
PR_SET_PTRACER = 0x59616D61

_libc = ctypes.CDLL(None, use_errno=True)


def is_lock_held(file: int, how: int) -> bool:
    """Whether others hold this file so that it cannot be locked like that; the descriptor is closed."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def python_path() -> str:
    """For programs of ours: this Trainmaster's own folder first, then the user's path."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(trainmaster.__file__)))
    return os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH", ""))))


def become_subreaper() -> None:
    """Inherit every process that a descendant leaves behind, so that none escapes."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def may_be_read_by(pid: int) -> None:
    """Let that process, and those that it starts, read the stacks of this one: Yama forbids it otherwise."""
    _libc.prctl(PR_SET_PTRACER, pid, 0, 0, 0)


def set_process_name(name: str) -> None:
    """The name in process lists: 15 characters at most."""
    _libc.prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def descendants(root: int) -> list[int]:
    """All processes below this one that have not ended; zombies are left out."""
    found: list[int] = []
    level = list(_children(root))
    while level:
        found += level
        level = [child for pid in level for child in _children(pid)]
    return [pid for pid in found if is_alive(pid)]


def kill_descendants() -> None:
    """Kill everything below this process, until nothing is left."""
    pause_s = 0.001
    while left := descendants(os.getpid()):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(pause_s)
        pause_s = min(0.5, 2 * pause_s)


def _children(pid: int) -> Iterator[int]:
    """A child belongs to the thread that forked it, so every thread is asked."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                yield from map(int, file.read().split())
        except OSError:
            continue


def can_list_children() -> bool:
    """Some kernels are built without that file."""
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def is_stopped(pid: int) -> bool:
    """Whether it is stopped, or has ended."""
    fields = stat_of(pid)
    return not fields or fields[0] in (b"T", b"t", b"Z", b"X")


def processes_of_run(mark: str, name: str, ends: Collection[str]) -> list[int]:
    """Processes with this `NAME=value` in their environment, and a variable of that name that ends so."""
    wanted, start = mark.encode(), f"{name}=".encode()
    endings = tuple(end.encode() for end in ends)
    found = []
    for pid in all_pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environ = file.read()
        except OSError:
            continue
        if wanted not in environ:
            continue
        said = environ.split(b"\0")
        is_marked = wanted in said and any(
            each.startswith(start) and each.endswith(endings) for each in said
        )
        if is_marked and is_alive(pid):
            found.append(pid)
    return found


def variables_of(pid: int, names: Sequence[str]) -> tuple[str, ...] | None:
    """These variables of a process, or of the nearest process above it that has them all; None: none has."""
    wanted = [f"{name}=".encode() for name in names]
    while pid > 1:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                said = file.read().split(b"\0")
        except OSError:
            said = []
        found = [next((each for each in said if each.startswith(name)), None) for name in wanted]
        if None not in found:
            values = [each.partition(b"=")[2] for each in found if each is not None]
            return tuple(value.decode(errors="replace") for value in values)
        fields = stat_of(pid)
        pid = int(fields[1]) if fields else 0
    return None


def uid_of(pid: int) -> int | None:
    """The user that a process runs as; None where it has ended."""
    try:
        with open(f"/proc/{pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Uid:"))
    except (OSError, StopIteration):
        return None


def lock_holders(path: str) -> list[int]:
    """The processes that hold a lock on this file."""
    try:
        inode = str(os.stat(path).st_ino)
        with open("/proc/locks") as file:
            rows = [line.split() for line in file]
    except OSError:
        return []
    pids = {
        int(fields[4])
        for fields in rows
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].split(":")[2] == inode
    }
    return [pid for pid in pids if pid > 0 and has_open(pid, path)]


def has_open(pid: int, path: str) -> bool:
    """Inode numbers are unique within one file system only: compare the device too."""
    for each in _descriptors(pid):
        with contextlib.suppress(OSError):
            if os.path.samefile(each, path):
                return True
    return False


def opened_by(pid: int) -> Iterator[str]:
    """The paths of what a process has open."""
    for each in _descriptors(pid):
        with contextlib.suppress(OSError):
            yield os.readlink(each)


def _descriptors(pid: int) -> list[str]:
    try:
        return [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


def listener_at(path: str) -> list[int]:
    """The process that listens on this Unix socket; none where nobody does."""
    with socket.socket(socket.AF_UNIX) as line, contextlib.suppress(OSError):
        line.settimeout(CONNECT_S)
        line.connect(path)
        said = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, _, _ = struct.unpack("3i", said)
        return [pid] if pid else []
    return []


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler of its own for this signal: others would be killed by it."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except OSError:
        pass
    return False


def in_groups(leaders: Iterable[int]) -> Iterator[int]:
    """All processes of this machine that are in the groups of these."""
    wanted = frozenset(leaders)
    for name in os.listdir("/proc"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if name.isdecimal() and os.getpgid(int(name)) in wanted:
                yield int(name)


def oom_kills() -> int:
    """How many processes the kernel has killed because memory ran out since the machine started."""
    try:
        with open("/proc/vmstat", "rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0
