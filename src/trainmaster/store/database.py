"""What differs between databases: how to connect, which file, and how leadership is locked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sqlalchemy import Engine

from trainmaster.store.errors import StoreError


class DatabaseFile:
    """A database's file: detects that it was removed or replaced while connected."""

    def __init__(self, path: Path | None) -> None:
        """None: the database is on a server."""
        self.path = path
        self._known: os.stat_result | None = None

    def is_there(self) -> bool:
        return self.path is None or self.path.exists()

    def settle(self) -> None:
        """Remember which file is there now."""
        self._known = None if self.path is None else os.stat(self.path)

    def check(self) -> None:
        """StoreError if the open file is not the one at this path any more."""
        if self.path is None or self._known is None:
            return
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            found = None
        if found is None or not os.path.samestat(found, self._known):
            raise StoreError(
                f"The database {self.path} was removed or exchanged while in use: put it back, or stop"
                " the manager with `trainmaster down` (jobs go on) and start it with `trainmaster up"
                " --adopt`; jobs that have not started are gone then, unless a copy of the database has them."
            )


class LeaderLock(Protocol):
    """What keeps a second manager from leading. Not safe for threads: the store guards it."""

    def take(self) -> bool:
        """Take it if it is free; at once."""
        ...

    def seize(self) -> bool:
        """Take it from a leader that has stopped working; that one finds that it is gone."""
        ...

    def end_former(self) -> None:
        """End what the leader before us was stopped in: a transaction that keeps us from writing."""
        ...

    def is_held(self) -> bool:
        """Whether we still hold it."""
        ...

    def release(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Database:
    """An opened database, as the store uses it."""

    url: str
    """Without a password."""
    writer: Engine
    """One connection, whose transactions exclude other writers from their start."""
    reader: Engine
    """As many connections as there are threads that read."""
    lock: LeaderLock
    file: DatabaseFile

    def dispose(self) -> None:
        self.lock.release()
        self.writer.dispose()
        self.reader.dispose()
