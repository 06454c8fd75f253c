"""When a program that reports no saves last wrote into its checkpoint folder."""

from __future__ import annotations

import os
import time

LOOKING_S = 5.0
"""Seconds to look for at most: a folder may hold millions of files, and the run's end waits."""


def last_written_ns(folder: str, since_ns: int) -> int | None:
    """When a file in it was written last, if later than that; hidden ones do not count."""
    until, newest = time.monotonic() + LOOKING_S, since_ns
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if time.monotonic() > until:
                break
            if not name.startswith("."):
                newest = max(newest, _written_ns(os.path.join(place, name)))
    return newest if newest > since_ns else None


def _written_ns(path: str) -> int:
    try:
        return os.lstat(path).st_mtime_ns
    except OSError:  # removed meanwhile
        return 0
