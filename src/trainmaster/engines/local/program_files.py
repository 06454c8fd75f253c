"""A program's files as they were at submission: a list of names, sizes and times, and what differs from it.

The list is made when a job is submitted, and compared when its first process starts, by that process.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable

MOST_FILES = 5_000
MOST_NAMED = 10
"""Changed files that are named; beyond that one knows enough."""
COMPARE_S = 2.0
"""How long a submission or a start may be held up by this; what is left then is not listed or compared."""

Seen = list[tuple[str, int, int]]
"""Path, size and time of change in nanoseconds."""


def listed(base: str, paths: Iterable[str]) -> Seen:
    """These files of the folder as they are now; those that are not there are left out."""
    found: Seen = []
    until = time.monotonic() + COMPARE_S
    for path in paths:
        if len(found) == MOST_FILES or time.monotonic() > until:
            break
        seen = _seen(os.path.join(base, path))
        if seen is not None:
            found.append((path, *seen))
    return found


def read(file: str) -> Seen:
    """A list that was kept; empty where there is none."""
    if not file:
        return []
    try:
        with open(file) as reading:
            known: Seen = json.load(reading)
    except (OSError, ValueError):
        return []
    return known


def changed(known: Seen, base: str = ".") -> list[str]:
    """Files on the list that have changed since or are gone."""
    until, found = time.monotonic() + COMPARE_S, []
    for path, *before in known:
        now = _seen(os.path.join(base, path))
        if now is None or [*now] != before:
            found.append(path)
        if len(found) == MOST_NAMED or time.monotonic() > until:
            break
    return found


def _seen(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
