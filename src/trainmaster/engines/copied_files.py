"""How files that were copied at submission are told from those that the job wrote."""

from __future__ import annotations

import os
import stat
from pathlib import Path

COPIED_NS = 946_684_800 * 10**9
"""Modification time of copied files: a file with another time was written by the job."""
CACHES = frozenset(
    (
        *("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"),
        *(".ipynb_checkpoints", ".tox"),
    )
)
"""Folders that are not copied: programs make them again."""


def is_as_copied(path: Path | str, at: int | None = None) -> bool:
    """Whether this file or link of a copy is as it was copied: the job has not written to it.

    `at` is a descriptor of the folder that it is in, where it is given by its name there.
    """
    try:
        seen = os.stat(path, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return not stat.S_ISDIR(seen.st_mode) and seen.st_mtime_ns == COPIED_NS
