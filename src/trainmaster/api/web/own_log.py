"""Bounds the file that this process prints to, while it prints."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

LARGEST = 1 << 20
LOOK_S = 10.0


def keep_bounded(log: Path) -> None:
    """For good: in a thread."""
    while True:
        bound(log)
        time.sleep(LOOK_S)


def bound(log: Path) -> None:
    """Move what it has to `.1` where that is much; who appends to it goes on at its beginning."""
    try:
        if log.stat().st_size > LARGEST:
            shutil.copy(log, f"{log}.1")
            os.truncate(log, 0)
    except OSError:  # a full disk, perhaps: looked at again
        pass
