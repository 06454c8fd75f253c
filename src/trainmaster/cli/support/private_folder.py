"""The data folder is its user's alone: it holds the environment of jobs, with secrets."""

from __future__ import annotations

import os
from pathlib import Path

from trainmaster.cli.support.background import LOG, OUTPUT
from trainmaster.cli.support.remembered_slots import GPU_MEMORY, SLOTS

OWN_FILES = (
    "trainmaster.db*",
    "address",
    "admin-token",
    "audit.log*",
    f"{LOG}*",
    "daemon.log*",
    OUTPUT,
    "store.json",
    "lock",
    SLOTS,
    GPU_MEMORY,
)
OWN_FOLDERS = ("runs", "jobs", "programs", "backups")


def keep_private(folder: Path) -> None:
    """Make the state readable by its user only: it holds the environment of jobs, with secrets.

    A folder that was there before may be used for other things too: its own permissions stay, and
    only the manager's files in it are made private.
    """
    os.umask(0o077)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for names, mode in ((OWN_FILES, 0o600), (OWN_FOLDERS, 0o700)):
        for path in (found for name in names for found in folder.glob(name)):
            if path.stat().st_mode & 0o077 and not path.is_symlink():
                path.chmod(mode)
