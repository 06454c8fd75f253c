"""Whether a node sees the files of the manager and of jobs: asked before anything is launched there."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from trainmaster.durable_files import write_whole
from trainmaster.model.launch_spec import LaunchSpec

MARK = ".mark"
"""A file below the manager's runs with a name that no other folder has."""
NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ENOTCONN)


@dataclass(frozen=True, slots=True)
class Unseen:
    """Of the paths that a job names, what one machine lacks."""

    gone: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()
    """Folders that the job reads and in which there is nothing: their storage may not be mounted."""


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
    saved = "" if spec.checkpoint_dir in sent else os.path.dirname(spec.checkpoint_dir)
    own = (os.path.join(spec.workdir, saved),) if saved else ()
    return tuple(dict.fromkeys((*read_files(spec, sent), *own)))


def read_files(spec: LaunchSpec, sent: Collection[str] = ()) -> tuple[str, ...]:
    """Those of them in which a job looks for something: its checkpoints may be the first there."""
    own = "" if spec.workdir in sent else spec.workdir
    return tuple(os.path.join(spec.workdir, each) for each in (own, *spec.data) if each)


def unseen(paths: Sequence[str], read: Collection[str]) -> Unseen:
    """What only may not be read is there: programs run as other users."""
    gone = tuple(path for path in paths if not _is_there(path))
    return Unseen(gone, tuple(path for path in paths if path in read and _is_bare(path)))


def lacking(found: Mapping[str, Unseen]) -> dict[str, Unseen]:
    """What each machine lacks, and another has: what nobody has is the job's own fault."""
    said = found.values()
    gone = {path for each in said for path in each.gone}
    bare = {path for each in said for path in each.bare}
    is_there = {path for path in gone if any(path not in each.gone for each in said)}
    is_filled = {path for path in bare if any(path not in each.gone + each.bare for each in said)}
    return {
        name: Unseen(
            tuple(path for path in each.gone if path in is_there),
            tuple(path for path in each.bare if path in is_filled),
        )
        for name, each in found.items()
    }


def _is_there(path: str) -> bool:
    try:
        os.stat(path)
    except OSError as error:
        return error.errno not in NOT_THERE
    return True


def _is_bare(path: str) -> bool:
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is None
    except OSError:
        return False
