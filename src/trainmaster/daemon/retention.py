"""Retention: logs, copied code and checkpoints of jobs that ended long ago are removed, each by its limit."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from trainmaster.daemon.code_snapshot import remove_incomplete
from trainmaster.daemon.gpu_use_history import FOLDER as GPU_USE
from trainmaster.daemon.submitted_program import FOLDER as PROGRAMS
from trainmaster.engines.copied_files import is_as_copied
from trainmaster.model.job import Run
from trainmaster.model.units import SECOND
from trainmaster.store.rows import JobFilter, StoredJob
from trainmaster.store.store import Store

CHECKPOINTS = "checkpoints"
IsLive = Callable[[str], bool]


def outdated_runs(folder: Path, store: Store, is_live: IsLive, before_ms: int) -> list[Run]:
    """Runs whose logs may go: their job ended before that time; those of unknown jobs stay."""
    return [
        Run(place.name, int(attempt.name))
        for place in _folders(folder / "runs")
        if not is_live(place.name) and _is_over(_row(store, place.name), before_ms)
        for attempt in _folders(place)
        if attempt.name.isdecimal()
    ]


def drop_code(folder: Path, store: Store, is_live: IsLive, before_ms: int) -> int:
    """Remove the copied code of jobs and arrays that ended before that time; how many copies."""
    dropped = 0
    for place in _folders(folder / "jobs"):
        code = place / "code"
        if not code.is_dir() or code.is_symlink() or is_live(place.name):
            continue
        row = store.job(place.name)
        rows = store.jobs(JobFilter(array=place.name, limit=1_000_000)) if row is None else [row]
        if not rows and code.stat().st_mtime * SECOND >= before_ms:
            continue  # its submission is in progress
        if not any(is_live(each.id) for each in rows) and _is_over(rows, before_ms):
            dropped += _drop_copied(code)
    return dropped


def drop_checkpoints(folder: Path, store: Store, is_live: IsLive, before_ms: int) -> int:
    """Remove checkpoints in our own folder of jobs that ended before that time; of how many jobs.

    Those that a job keeps elsewhere are its own, and one that no row names stays.
    """
    dropped = 0
    for place in _folders(folder / "jobs"):
        saved = place / CHECKPOINTS
        if saved.is_symlink() or not saved.is_dir() or is_live(place.name):
            continue
        if _is_over(_row(store, place.name), before_ms):
            shutil.rmtree(saved)  # by descriptors: links are removed, not followed
            dropped += 1
    return dropped


def remove_leftovers(folder: Path, last_number: int) -> int:
    """Remove copies of code that a crash left: half made, or of a submission that was never stored."""
    left = remove_incomplete(folder / "jobs")
    for place in _folders(folder / "jobs"):
        is_unknown = place.name.isdecimal() and int(place.name) > last_number
        if is_unknown and not (folder / "runs" / place.name).exists():
            left += _drop_copied(place / "code")
            with contextlib.suppress(OSError):
                place.rmdir()
    return left


def drop_program_lists(folder: Path, used: Collection[str], before_ms: int) -> None:
    """Remove lists of programs that no live job was submitted with and that are old."""
    for path in (folder / PROGRAMS).glob("*"):
        if str(path) not in used and path.stat().st_mtime * SECOND < before_ms:
            path.unlink(missing_ok=True)


def drop_gpu_use(folder: Path, store: Store, is_live: IsLive, before_ms: int) -> None:
    """Remove what jobs that ended before that time used of their GPUs; of unknown jobs it stays."""
    for path in (folder / GPU_USE).glob("*.json"):
        if not is_live(path.stem) and _is_over(_row(store, path.stem), before_ms):
            path.unlink(missing_ok=True)


def _drop_copied(code: Path) -> int:
    """Remove what was copied, and nothing that the job wrote there itself; whether there was anything."""
    dropped = False
    # By descriptors: a link that the job has put in the place of a folder is never followed.
    for _, folders, files, at in os.fwalk(code, topdown=False, follow_symlinks=False):
        for name in (*files, *folders):
            with contextlib.suppress(OSError):
                if is_as_copied(name, at):
                    os.unlink(name, dir_fd=at)
                    dropped = True
                elif name in folders:
                    os.rmdir(name, dir_fd=at)
    with contextlib.suppress(OSError):
        code.rmdir()
    return dropped


def _row(store: Store, id: str) -> Sequence[StoredJob]:
    row = store.job(id)
    return [] if row is None else [row]


def _is_over(rows: Sequence[StoredJob], before_ms: int) -> bool:
    return bool(rows) and all(
        row.finish_ms is not None and row.finish_ms < before_ms for row in rows
    )


def _folders(place: Path) -> list[Path]:
    if not place.is_dir():
        return []
    return [
        each
        for each in place.iterdir()
        if each.is_dir() and not each.is_symlink() and not each.name.startswith(".")
    ]
