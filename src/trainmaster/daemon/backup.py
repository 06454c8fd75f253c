"""Backups of a manager: its store, the name of its data folder and its settings, with or without the runs.

A backup is made while the manager works. It holds the environment of jobs, and no token in clear. Restored
over runs that are newer, it makes the next start adopt them (`adoption.py`), as `up --adopt` does.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from trainmaster.daemon.backup_file import (
    FOLDER,
    MANIFEST,
    ROWS_END,
    RUNS,
    SETTINGS,
    STORE,
    BackupWriter,
    Manifest,
    Progress,
    Unpacked,
    lines_of,
    unpack,
    verify,
    writing,
)
from trainmaster.daemon.data_folder import (
    COPIES,
    HOME,
    IN_USE,
    RESTORED,
    WITHOUT_RUNS,
    named_by,
    number_above,
    runs_in,
)
from trainmaster.daemon.folder_lock import FolderLock, is_in_use
from trainmaster.daemon.request_errors import RequestError
from trainmaster.durable_files import read_name, write_whole
from trainmaster.store.copies import copy_file, set_copies_aside
from trainmaster.store.database import Database
from trainmaster.store.dump import Replaced, dumping, last_number, load
from trainmaster.store.errors import StoreError, readable_errors
from trainmaster.store.open import open_database
from trainmaster.store.store import Store

LAST = "last-backup.json"
EVERY = 1000
"""Rows between two words of progress."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that was made."""

    path: Path
    manifest: Manifest
    remarks: tuple[str, ...]
    """Files that are not in it, or not as they are now."""


def nothing(done: int, of: int, what: str) -> None:
    """Tells nobody of the progress."""


def write_backup(
    store: Store, folder: Path, target: Path, *, with_runs: bool, progress: Progress = nothing
) -> Backup:
    """Write everything of the store as it is now, and settings; with the runs, if wanted, after it.

    In this order: a run that the store does not know is adopted, one that is not there is lost.
    """
    remarks: list[str] = []
    with dumping(store) as dump, writing(target) as writer:
        snapshot = dump.snapshot()
        if snapshot is None:
            raise StoreError(
                f"The database {store.url} was never used: there is nothing to back up."
            )
        named = named_by(snapshot)
        manifest = Manifest(
            schema_version=dump.schema,
            made_at=datetime.now(UTC).isoformat(timespec="seconds"),
            host=socket.gethostname(),
            folder=str(folder),
            home=named.home,
            store=named.store,
            database=store.url,
            seq=dump.seq,
            tables=dict(dump.counts),
            has_runs=with_runs,
            was_in_use=is_in_use(folder),
        )
        writer.add_text(MANIFEST, manifest.model_dump_json(indent=2) + "\n")
        told = _Told(progress, sum(dump.counts.values()))
        for table in dump.counts:
            writer.add_lines(f"{STORE}{table}{ROWS_END}", told.count(table, dump.lines(table)))
        remarks += _add_folder(writer, folder, with_runs, progress)
    write_whole(folder / LAST, json.dumps({"at": manifest.made_at, "file": str(target)}), 0o600)
    return Backup(target, manifest, tuple(remarks))


class _Told:
    """Counts rows on their way, and tells how many were there of all."""

    def __init__(self, progress: Progress, rows: int) -> None:
        self._progress, self._rows, self._done = progress, rows, 0

    def count(self, table: str, lines: Iterable[bytes]) -> Iterator[bytes]:
        for line in lines:
            self._done += 1
            if self._done % EVERY == 0:
                self._progress(self._done, self._rows, f"table {table}")
            yield line


def _add_folder(
    writer: BackupWriter, folder: Path, with_runs: bool, progress: Progress
) -> Iterator[str]:
    folder = folder.resolve()  # no links in the paths from here on, unless a job puts one there
    found = [folder / name for name in sorted(SETTINGS) if (folder / name).is_file()]
    if with_runs:
        found += [path for name in RUNS for path in _below(folder / name)]
    for done, path in enumerate(found):
        progress(done, len(found), path.name)
        if said := writer.add_path(path, f"{FOLDER}{path.relative_to(folder)}"):
            yield said


def _below(place: Path) -> Iterator[Path]:
    """A folder and all in it; links are not followed."""
    if place.is_dir():
        yield place
    for at, folders, files in os.walk(place):
        for name in (*folders, *files):
            yield Path(at, name)


def copy_before_upgrade(store: Store, folder: Path, version: str) -> Path:
    """Keep a store as an earlier version of the program wrote it, before its tables change; where.

    A file that the earlier version can use as it is, or a backup of what is on a server. One of the same
    step is not made twice.
    """
    copies = folder / COPIES
    copies.mkdir(mode=0o700, exist_ok=True)
    with dumping(store) as dump:
        name = f"schema-{version}-step-{dump.seq}"
    path = store.database.file.path
    target = copies / f"{name}{'.tar.gz' if path is None else '.db'}"
    if target.exists():
        return target
    if path is None:
        return write_backup(store, folder, target, with_runs=False).path
    copy_file(store, path, target)
    return target


# -- restoring -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Restored:
    """What was put back, and what the next start finds."""

    manifest: Manifest
    aside: str
    """Where the former store is; empty: there was none."""
    files: Unpacked
    newer: tuple[str, ...]
    """Jobs of the folder that the backup does not know: the next start adopts their runs."""
    waiting: tuple[str, ...]
    """Jobs of the former store that are in neither: they waited, and are to be submitted again."""
    original: str
    """The folder that the backup is of, where its manager works on this machine; empty: it does not."""


def restore(
    path: Path, folder: Path, url: str, *, replaces: bool, progress: Progress = nothing
) -> Restored:
    """Put a backup into this data folder and database; after an error all is as it was.

    The former store is moved aside. Runs stay as they are, and the next start adopts those that are newer.
    """
    manifest = verify(path, progress)
    _refuse_unfit(folder, manifest)
    files = Unpacked()

    def finish(before: Replaced) -> None:
        nonlocal files
        number_above(folder, before.last_number)
        about: dict[str, object] = {
            "file": str(path),
            "made_at": manifest.made_at,
            "seq": manifest.seq,
        }
        about[IN_USE] = manifest.was_in_use
        write_whole(folder / RESTORED, json.dumps(about), 0o600)
        files = unpack(path, folder, progress)
        write_whole(folder / HOME, manifest.home)
        set_copies_aside(folder / COPIES)

    with _alone(folder, url) as database:
        told = _Told(progress, sum(manifest.tables.values()))
        tables = {name: partial(_lines, path, name, told) for name in manifest.tables}
        version = manifest.schema_version
        try:
            before = load(database, version, tables, replaces=replaces, before_switch=finish)
        except BaseException:
            (folder / RESTORED).unlink(missing_ok=True)
            raise
        known = last_number(database)
    if manifest.has_runs:
        (folder / WITHOUT_RUNS).unlink(missing_ok=True)
    else:
        write_whole(folder / WITHOUT_RUNS, str(known))
    newer = [job for job, _ in runs_in(folder) if int(job.partition("_")[0]) > known]
    waiting = [job for job, number in before.live if number > known and job not in newer]
    original = _original_in_use(folder, manifest)
    return Restored(manifest, before.aside, files, tuple(newer), tuple(waiting), original)


def _lines(path: Path, table: str, told: _Told) -> Iterator[bytes]:
    return told.count(table, lines_of(path, table))


def _original_in_use(folder: Path, manifest: Manifest) -> str:
    """The folder that a backup is of, where that is another one of this machine and a manager uses it."""
    original = Path(manifest.folder)
    if manifest.host != socket.gethostname() or original == folder:
        return ""
    try:
        return manifest.folder if is_in_use(original) else ""
    except OSError:  # another user's: nobody here can say
        return ""


def _refuse_unfit(folder: Path, manifest: Manifest) -> None:
    """RequestError for a folder with runs of another store: its jobs have the same numbers."""
    home = read_name(folder / HOME)
    if home and home != manifest.home and any(runs_in(folder)):
        raise RequestError(
            f"{folder} has runs of another store than the backup, which is of {manifest.folder} on"
            f" {manifest.host}: name an empty folder with --data; nothing was changed."
        )


@contextmanager
def _alone(folder: Path, url: str) -> Iterator[Database]:
    """The database, while no manager can lead it or use the folder."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if is_in_use(folder):
        raise RequestError(
            f"A manager uses {folder}: stop it with `trainmaster down --data {folder}`; its jobs go on."
        )
    database = open_database(url)
    lock = FolderLock(folder, database.url)
    lock.take()
    try:
        with readable_errors(database.url):
            is_free = database.lock.take()
        if not is_free:
            raise RequestError(f"A manager leads {database.url}: stop it first; its jobs go on.")
        yield database
    finally:
        database.dispose()
        lock.release()
