"""The embedded database: one file, its write-ahead log, and a lock file beside it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import structlog
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool, QueuePool

from trainmaster.durable_files import sync
from trainmaster.store.database import Database, DatabaseFile
from trainmaster.store.errors import SQLITE, StoreError, first_line, is_damage

log = structlog.get_logger("trainmaster.store")

BUSY_MS = 5000
"""How long to wait for another program that holds the file, before saying so."""
CONTENTS = ("steps", "jobs", "snapshots")
"""Tables of which one has a row as soon as a manager leads."""
LOG_BYTES = 64 << 20
"""Disk space that the write-ahead log may keep after a large write."""


def open_sqlite(path: Path) -> Database:
    """A database in a file, which need not exist before `acquire_leadership`."""
    path = path.absolute()
    return Database(
        url=f"sqlite:///{path}",
        writer=_writer(path),
        reader=_reader(path),
        lock=FileLock(lock_of(path)),
        file=DatabaseFile(path),
    )


def _writer(path: Path) -> Engine:
    def connect() -> sqlite3.Connection:
        if path.exists() and not os.access(path, os.W_OK, effective_ids=True):
            # SQLite would open it nevertheless, and leave a log beside it that is read-only too.
            raise StoreError(f"The database {path} {SQLITE['SQLITE_READONLY']}.")
        connection = _connect(path, "mode=rwc")
        (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        if mode != "wal":
            connection.close()
            raise StoreError(
                f"The database {path} cannot have a write-ahead log where it is: keep it on a"
                " local disk."
            )
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute(f"PRAGMA journal_size_limit={LOG_BYTES}")
        return connection

    engine = create_engine(
        "sqlite://", creator=connect, poolclass=QueuePool, pool_size=1, max_overflow=0
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # Not at the first write: no other writer may come between a check and a write.
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _reader(path: Path) -> Engine:
    """Connections for one query each: opening is cheap, and none becomes stale."""

    def connect() -> sqlite3.Connection:
        if not path.exists():
            raise StoreError(
                f"There is no database {path} yet: start `trainmaster up` with it once."
            )
        # Reading needs the log, which cannot be opened without the right to write beside it. Where
        # there is none, no process writes, and the file alone is complete.
        is_quiet = not path.with_name(path.name + "-wal").exists()
        if is_quiet and not os.access(path, os.W_OK, effective_ids=True):
            return _connect(path, "mode=ro&immutable=1")
        try:
            return _connect(path, "mode=ro")
        except sqlite3.OperationalError:
            if not is_quiet:
                raise
            return _connect(path, "mode=ro&immutable=1")

    engine = create_engine("sqlite://", creator=connect, poolclass=NullPool)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine


def _connect(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?{how}",
        uri=True,
        timeout=BUSY_MS / 1000,
        isolation_level=None,  # transactions are begun and ended by us
        check_same_thread=False,
    )
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # opens the files now
    except BaseException:
        connection.close()
        raise
    return connection


def _holder(path: Path) -> int | None:
    """The process that a lock file names, if it has the file open."""
    try:
        pid = int(path.read_text())
        opened = (f"/proc/{pid}/fd/{each}" for each in os.listdir(f"/proc/{pid}/fd"))
        is_holder = any(os.path.samefile(each, path) for each in opened if os.path.exists(each))
    except (OSError, ValueError):
        return None
    return pid if is_holder and pid != os.getpid() else None


def problem_in(path: Path) -> str:
    """What SQLite's check finds wrong in a database; empty if nothing."""
    try:
        with closing(_connect(path, "mode=ro")) as connection:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return first_line(error)
    return "" if found == "ok" else " ".join(str(found).split())


def has_rows(path: Path) -> bool:
    """Whether a manager ever worked with it; one that was only created has no steps, jobs or snapshots."""
    with closing(_connect(path, "mode=ro")) as connection:
        named = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        made = [name for name in CONTENTS if connection.execute(named, (name,)).fetchone()]
        return any(connection.execute(f"SELECT 1 FROM {name}").fetchone() for name in made)


def write_copy(path: Path, to: Path) -> None:
    """Write everything that a database has into a new file, on the disk when this returns."""
    to.unlink(missing_ok=True)
    with closing(_connect(path, "mode=ro")) as connection:
        connection.execute("VACUUM INTO ?", (str(to),))
    sync(to)


def lock_of(path: Path) -> Path:
    """The file that the leader of a database locks."""
    return path.with_name(path.name + ".lock")


class FileLock:
    """A lock file under flock: the kernel releases it when the process ends, even by a crash."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._former: int | None = None
        """The process that it was taken from by force."""

    def take(self) -> bool:
        self.release()
        while True:
            file = self._open()
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                return False
            except OSError as error:
                os.close(file)
                raise StoreError(
                    f"The file {self._path} cannot be locked ({error.strerror}):"
                    " keep the database on a local disk."
                ) from error
            self._file = file
            if self.is_held():  # the file may have been removed between the two calls
                break
            self.release()
        os.truncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())  # so that users can find the process
        return True

    def seize(self) -> bool:
        """A lock on a file that is no longer there excludes no other process."""
        self._former = _holder(self._path)
        self._path.unlink(missing_ok=True)
        return self.take()

    def end_former(self) -> None:
        """Kill it: a process that is stopped in a transaction locks the database for as long."""
        if self._former is not None:
            log.error("a leader that stands still in a write is killed", pid=self._former)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._former, signal.SIGKILL)
            self._former = None

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError as error:
            raise StoreError(
                f"The folder {self._path.parent} does not exist: create it, or name another."
            ) from error
        except OSError as error:
            raise StoreError(
                f"The file {self._path} cannot be written ({error.strerror}): give this user the"
                " right to write to its folder, or name another."
            ) from error

    def is_held(self) -> bool:
        """Whether we hold it, and the path is still that file: a removed one excludes no other process."""
        if self._file is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(self._path))
        except OSError:
            return False

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
