"""Copies of an SQLite database beside it: made while it is in use, a few kept, and put back after damage.

A copy is written anew from the rows that can be read, so a damaged database never becomes a copy. A database
on a server is copied by the server's own means.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from trainmaster.durable_files import put_in_place, sync
from trainmaster.store.errors import DamagedStore, StoreError, first_line, readable_errors
from trainmaster.store.sqlite import FileLock, has_rows, lock_of, problem_in, write_copy
from trainmaster.store.store import Store

KEPT = 7
PATTERN = "trainmaster-*.db"
PARTS = ("", "-wal", "-shm")
"""A database's file, and the two that SQLite keeps beside it."""
SPARE = 64 << 20
"""Bytes of the disk that a copy leaves free."""


def keep_copy(store: Store, folder: Path) -> Path | None:
    """Copy the database, unless nothing has changed since the last copy; None where none was made."""
    path = store.database.file.path
    if path is None:
        return None
    target = folder / f"trainmaster-{store.last_seq()}.db"
    known = _newest_first(folder)
    if known and known[0].name == target.name:
        return None
    copy_file(store, path, target)
    for old in _newest_first(folder)[KEPT:]:
        with contextlib.suppress(OSError):
            old.unlink()
    return target


def copy_file(store: Store, path: Path, target: Path) -> None:
    """Copy a database that may be in use, whole or not at all; StoreError where that is not possible."""
    folder, needed = target.parent, path.stat().st_size + SPARE
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if shutil.disk_usage(folder).free < needed:
            raise StoreError(f"The database is not copied: {folder} has less than {needed} bytes.")
        fresh = folder / f"{target.name}.{os.getpid()}"
        try:
            with readable_errors(store.url):
                write_copy(path, fresh)
            put_in_place(fresh, target)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"The database cannot be copied: {first_line(error)}.") from error


def put_back(path: Path, folder: Path) -> str:
    """Where the database is missing, empty or damaged, put the newest good copy in its place; what was done.

    Nothing is done where the database is fine or a manager uses it. A damaged or empty one is kept under
    another name.
    """
    lock = FileLock(lock_of(path))
    if not lock.take():
        return ""
    try:
        is_there = path.exists()
        is_damaged = is_there and bool(problem_in(path))
        if is_there and not is_damaged and has_rows(path):
            return ""
        good = next((copy for copy in _newest_first(folder) if not problem_in(copy)), None)
        if good is None:
            is_ours = is_damaged and _begins_as_sqlite(path)
            return _set_aside(path, ", and there is no copy of it") if is_ours else ""
        said = _set_aside(path, "") if is_damaged else _missing(path)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            shutil.copyfile(good, fresh)
            sync(fresh)
            put_in_place(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)
        if problem := problem_in(path):
            raise DamagedStore(
                f"{said} The copy {good.name} is in its place, and damaged there ({problem}):"
                " see whether the disk is sound."
            )
        made = (
            datetime.fromtimestamp(good.stat().st_mtime, UTC)
            .astimezone()
            .strftime("%Y-%m-%d %H:%M:%S")
        )
        return (
            f"{said} The copy {good.name} of {made} is in its place: jobs submitted since then may be"
            " missing, unless the data folder describes them."
        )
    finally:
        lock.release()


def set_copies_aside(folder: Path) -> None:
    """Move copies of a store that is replaced into a folder below, where none is ever put back from."""
    known = _newest_first(folder)
    if not known:
        return
    aside = next(each for n in count(1) if not (each := folder / f"replaced-{n}").exists())
    aside.mkdir(mode=0o700)
    for copy in known:
        copy.rename(aside / copy.name)


def _set_aside(path: Path, more: str) -> str:
    (kept, *_) = move_parts(path, "damaged")
    return f"The database {path} was damaged: it is set aside as {kept}{more}."


def _missing(path: Path) -> str:
    """Its log must not stay: SQLite would write that into the copy, which it is not of.

    Nor must an empty one: a manager that was refused left it behind.
    """
    kept = move_parts(path, "missing")
    rest = f"; what was left of it is set aside as {' and '.join(kept)}" if kept else ""
    return f"The database {path} was missing{rest}."


def move_parts(path: Path, why: str) -> list[str]:
    """Rename all that there is of a database; the new names."""
    kept = next(
        names for n in count(1) if not any(map(Path.exists, names := _parts(path, f".{why}-{n}")))
    )
    moved = []
    for part, to in zip(_parts(path), kept, strict=True):
        with contextlib.suppress(FileNotFoundError):
            part.rename(to)
            moved.append(to.name)
    return moved


def _parts(path: Path, more: str = "") -> list[Path]:
    return [path.with_name(path.name + more + part) for part in PARTS]


def _begins_as_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob(PATTERN), key=lambda copy: copy.stat().st_mtime_ns, reverse=True)
