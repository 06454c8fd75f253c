"""The data folder is its user's alone: it holds the environment of jobs, with secrets."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from trainmaster.cli.support.background import LOG, OUTPUT
from trainmaster.cli.support.remembered_slots import GPU_MEMORY, SLOTS
from trainmaster.engines.local.privileges import CLOSED, OPEN
from trainmaster.errors import BadInput

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
JOBS, SOCKETS = "jobs", "sockets"
OWN_FOLDERS = ("runs", JOBS, "programs", "backups")
USUAL = "/var/lib/trainmaster"


def keep_private(folder: Path) -> None:
    """Make the state readable by its user only: it holds the environment of jobs, with secrets.

    A folder that was there before may be used for other things too: its own permissions stay, and
    only the manager's files in it are made private.
    """
    os.umask(0o077)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for names, mode in ((OWN_FILES, 0o600), (OWN_FOLDERS, 0o700)):
        for path in (found for name in names for found in folder.glob(name)):
            found = stat.S_IMODE(path.lstat().st_mode)
            if found & 0o077 and not path.is_symlink() and not _is_for_users(path, found):
                path.chmod(mode)


def _is_for_users(path: Path, mode: int) -> bool:
    """Whether it is open because jobs run as their users: they may be running, and need what is theirs."""
    return path.name == JOBS and mode == OPEN


def is_open_to_users(folder: Path) -> bool:
    """Whether root's manager ran jobs as their users with this folder: their jobs go on as themselves."""
    try:
        found = os.lstat(folder / JOBS)
    except OSError:
        return False
    return os.geteuid() == found.st_uid == 0 and stat.S_IMODE(found.st_mode) == OPEN


def open_to_users(folder: Path) -> None:
    """Let users reach what is theirs in `jobs`, and nothing else of the folder.

    BadInput where they could not reach it, or could put something else in its place.
    """
    above = {*folder.absolute().parents, *folder.resolve().parents}
    for place in (*sorted(above), folder):
        found = os.stat(place)
        may_exchange = found.st_mode & 0o022 and not (
            place != folder and found.st_mode & stat.S_ISVTX
        )
        if found.st_uid != 0 or may_exchange:
            raise BadInput(
                f"other users can change {place}, so jobs cannot run as their users with the data folder"
                f" {folder}: use one that only root can change, such as --data {USUAL}."
            )
        if place != folder and not found.st_mode & stat.S_IXOTH:
            raise BadInput(
                f"other users cannot enter {place}, so jobs cannot run as their users with the data folder"
                f" {folder}: use another, such as --data {USUAL}."
            )
    for path in folder.iterdir():
        mode = stat.S_IMODE(path.lstat().st_mode)
        if path.name not in (JOBS, SOCKETS) and mode & 0o077 and not path.is_symlink():
            path.chmod(mode & 0o700)
    jobs = folder / JOBS
    jobs.mkdir(mode=CLOSED, exist_ok=True)
    for each in (jobs, folder):
        each.chmod(OPEN)
