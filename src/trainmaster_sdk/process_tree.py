"""What /proc says of processes and their parents. Only the standard library: training programs load it."""

from __future__ import annotations

import os


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def stat_of(pid: int) -> list[bytes]:
    """State, parent and the rest, without the name, which may hold any character. Empty: it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    """Whether it exists and is not a zombie."""
    fields = stat_of(pid)
    return bool(fields) and fields[0] not in (b"Z", b"X")


def descendants_by_scan(root: int) -> list[int]:
    """All processes below this one that have not ended."""
    return [pid for pid in tree_below(root) if is_alive(pid)]


def tree_below(root: int) -> list[int]:
    """All processes below this one, zombies too, found by scanning the parent of every process."""
    parents = {pid: int(fields[1]) for pid in all_pids() if (fields := stat_of(pid))}
    found: list[int] = []
    level = {root}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        found += level
    return found
