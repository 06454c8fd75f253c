"""Whether a program that reports no saves has written into its checkpoint folder."""

from __future__ import annotations

import os
import time

LOOKING_S = 5.0
"""Seconds to look for at most: a folder may hold millions of files, and the run's end waits."""


def has_file_since(folder: str, at_ns: int) -> bool:
    """Whether it holds a file that was written later than that; hidden ones do not count."""
    until = time.monotonic() + LOOKING_S
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if time.monotonic() > until:
                return False
            if not name.startswith(".") and _written_ns(os.path.join(place, name)) > at_ns:
                return True
    return False


def _written_ns(path: str) -> int:
    try:
        return os.lstat(path).st_mtime_ns
    except OSError:  # removed meanwhile
        return 0
