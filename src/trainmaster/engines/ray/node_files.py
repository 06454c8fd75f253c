"""Whether a node sees the files of the manager and of jobs: asked before anything is launched there."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from uuid import uuid4

from trainmaster.durable_files import write_whole
from trainmaster.model.launch_spec import LaunchSpec

MARK = ".mark"
"""A file below the manager's runs with a name that no other folder has."""
NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ENOTCONN)


def mark_of(runs: Path) -> str:
    """What the manager's folder is known by; written where it has no mark yet."""
    place = runs / MARK
    try:
        return place.read_text()
    except FileNotFoundError:
        mark = uuid4().hex
        write_whole(place, mark)
        return mark


def has_mark(runs: str, mark: str) -> bool:
    """Whether the folder of this path, as it is seen here, is the one with that mark."""
    try:
        return Path(runs, MARK).read_text() == mark
    except (OSError, UnicodeDecodeError):
        return False


def named_files(spec: LaunchSpec, sent: Collection[str] = ()) -> tuple[str, ...]:
    """What a job needs to see on each of its nodes, without the folders that are sent there."""
    own = "" if spec.workdir in sent else spec.workdir
    saved = "" if spec.checkpoint_dir in sent else os.path.dirname(spec.checkpoint_dir)
    named = (os.path.join(spec.workdir, each) for each in (own, saved, *spec.data) if each)
    return tuple(dict.fromkeys(named))


def unseen(paths: Sequence[str]) -> tuple[str, ...]:
    """Those that are not there. What only may not be read is: programs run as other users."""
    return tuple(path for path in paths if not _is_there(path))


def _is_there(path: str) -> bool:
    try:
        os.stat(path)
    except OSError as error:
        return error.errno not in NOT_THERE
    return True
