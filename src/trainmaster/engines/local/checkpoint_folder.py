"""When a program that reports no saves last wrote a checkpoint file, and how long it worked since."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

LOOKING_S = 5.0
"""Seconds to look for at most: a folder may hold millions of files, and the run's end waits."""
LAG_NS = 100_000_000
"""How far the clock of files may be behind: a tick of the kernel, and more where a virtual machine waits."""
NOT_CHECKPOINTS = (".*", "*.log", "*.out", "*.txt", "*.csv", "*.jsonl", "events.out.tfevents*")
"""Names of files that are hidden, or that programs append to while they train: they show no save."""


def last_written_ns(folder: str, since_ns: int) -> int | None:
    """When a file in it that may be a checkpoint was written last, if later than that."""
    oldest = since_ns - LAG_NS
    until, newest = time.monotonic() + LOOKING_S, oldest
    for place, name in _entries(folder):
        if not any(fnmatchcase(name, each) for each in NOT_CHECKPOINTS):
            newest = max(newest, _written_ns(os.path.join(place, name)))
        if time.monotonic() > until:
            break
    return newest if newest > oldest else None


def _entries(folder: str) -> Iterator[tuple[str, str]]:
    """Every folder in it that is not hidden, as `.`, and every file there."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in (".", *names):
            yield place, name


def worked_ns(since_ns: int, until_ns: int, pauses: Iterable[tuple[int, int]]) -> int:
    """How much of that time a run was not stopped in memory; each pause has a beginning and an end."""
    paused = (max(0, min(end, until_ns) - max(begin, since_ns)) for begin, end in pauses)
    return until_ns - since_ns - sum(paused)


def _written_ns(path: str) -> int:
    try:
        return os.lstat(path).st_mtime_ns
    except OSError:  # removed meanwhile
        return 0
