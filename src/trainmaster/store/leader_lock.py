"""Locks that one process holds at a time, and that are free again when it dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from trainmaster.store.errors import StoreError


class LeaderLock(Protocol):
    """What keeps a second manager from leading. Not safe for threads: the store guards it."""

    def take(self) -> bool:
        """Take it if it is free; at once."""
        ...

    def is_held(self) -> bool:
        """Whether we have it still."""
        ...

    def release(self) -> None: ...


class FileLock:
    """A lock file under flock: the kernel lets go of it when the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

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
            if self.is_held():  # and not a file that somebody removed between the two calls
                break
            self.release()
        os.truncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())  # for people who wonder who it is
        return True

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
        """Held, and the file that others would lock: one that was removed keeps nobody out."""
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


_TAKE = text("SELECT pg_try_advisory_lock(:ours, hashtext(current_schema()))")
_OURS = 0x7261_696C  # "rail": the first half of the key of our advisory locks


class AdvisoryLock:
    """A lock of PostgreSQL on a connection of its own: the server frees it when that one ends."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._connection: Connection | None = None

    def take(self) -> bool:
        self.release()
        connection = self._engine.connect()
        try:
            is_ours = bool(connection.scalar(_TAKE, {"ours": _OURS}))
        except BaseException:
            _drop(connection)
            raise
        if is_ours:
            self._connection = connection
        else:
            _drop(connection)
        return is_ours

    def is_held(self) -> bool:
        if self._connection is None:
            return False
        try:
            self._connection.execute(text("SELECT 1"))
        except SQLAlchemyError:
            self.release()
            return False
        return True

    def release(self) -> None:
        if self._connection is not None:
            _drop(self._connection)
            self._connection = None


def _drop(connection: Connection) -> None:
    """End the session itself: one that went back to a pool would keep the lock."""
    with contextlib.suppress(SQLAlchemyError):
        connection.invalidate()
    connection.close()
