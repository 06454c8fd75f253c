"""The store in a database of SQL: the same statements for SQLite and PostgreSQL."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import RLock

from sqlalchemy import Connection, select
from sqlalchemy.exc import DBAPIError

from trainmaster.store import mutations as writing
from trainmaster.store import queries as reading
from trainmaster.store import schema
from trainmaster.store.database import Database
from trainmaster.store.errors import said_plainly
from trainmaster.store.protocol import Deposed, StoreError, Wanted
from trainmaster.store.rows import (
    Batch,
    JobRow,
    KeyRow,
    ProgressRow,
    SnapshotRow,
    StepRow,
    StoryRow,
)
from trainmaster.store.tables import LEDGER


class SqlStore:
    """A `Store` on SQLAlchemy; safe for threads.

    Leading is a lock and an epoch. The lock keeps a second daemon waiting; the epoch, raised by
    each that takes the lock and compared in each writing transaction, keeps out one that lost the
    lock and has not noticed. A lock that was lost (the server restarted) is taken again in passing
    as long as nobody led meanwhile.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._writing = RLock()
        """Taken before `_standing`, where both are."""
        self._standing = RLock()
        self._epoch: int | None = None
        self._is_unsure = False
        """The database failed in our last turn: leadership may be lost."""
        self._doubted: tuple[Batch, ...] = ()
        """What failed to be appended, and may have been kept all the same: the answer was lost."""
        self._is_ready = False
        self._is_closed = False

    @property
    def url(self) -> str:
        return self.database.url

    # -- leading -----------------------------------------------------------------------------------

    def lead(self) -> bool:
        with self._writing, self._standing, self._open():
            if self._epoch is not None and self._stands():
                return True
            self._epoch = None
            if not self.database.lock.take():
                return False
            try:
                self.database.writer.dispose()  # a file of the same name may be another by now
                schema.bring_up_to_date(self.database.writer, self.url)
                self.database.place.settle()
                self._epoch = self._raise_epoch()
            finally:
                if self._epoch is None:
                    self.database.writer.dispose()
                    self.database.lock.release()
            self._is_unsure, self._doubted = False, ()
            return self._epoch is not None

    def _raise_epoch(self) -> int | None:
        holder = f"{socket.gethostname()}:{os.getpid()}"
        with self.database.writer.begin() as connection:
            try:
                return writing.raise_epoch(connection, holder)
            except DBAPIError as error:
                if getattr(error.orig, "sqlstate", None) == writing.LOCK_NOT_AVAILABLE:
                    return None  # a deposed leader is in the middle of its last write
                raise

    def leads(self) -> bool:
        with self._standing:
            if self._epoch is None or self._is_closed:
                return False
            try:
                with said_plainly(self.url):
                    return self._stands()
            except StoreError:
                return False

    def _stands(self) -> bool:
        """Whether lock and epoch are ours, taking back a lock that nobody else took."""
        self.database.place.check()
        lock = self.database.lock
        if not lock.is_held() and not lock.take():
            self._epoch = None
            return False
        with self.database.reader.connect() as connection:
            found = connection.scalar(select(LEDGER.c.epoch))
        if found != self._epoch:
            self._step_down()
        return self._epoch is not None

    def _step_down(self) -> None:
        self._epoch = None
        self.database.lock.release()

    # -- writing -----------------------------------------------------------------------------------

    def append(self, batches: Sequence[Batch]) -> None:
        if not batches:
            return
        writing.refuse_gaps(batches)
        with self._turn() as (connection, epoch):
            try:
                self._keep(connection, epoch, batches)
                connection.commit()
            except StoreError:
                raise
            except BaseException:
                self._doubted = tuple(batches)
                raise
            self._doubted = ()

    def _keep(self, connection: Connection, epoch: int, batches: Sequence[Batch]) -> None:
        """Write these, or those of them that an append before, which seemed to fail, left over."""
        if writing.claim(connection, epoch, batches):
            writing.keep(connection, batches)
            return
        last = writing.last_step(connection, epoch)
        kept = max(0, last - batches[0].step.seq + 1)
        if not 0 < kept <= len(batches) or tuple(batches[:kept]) != self._doubted[:kept]:
            raise writing.out_of_turn(batches[0].step.seq, last)
        if rest := batches[kept:]:
            self._keep(connection, epoch, rest)

    def keep_snapshot(self, snapshot: SnapshotRow) -> None:
        with self._turn() as (connection, epoch):
            last = writing.last_step(connection, epoch)
            writing.refuse_later(snapshot, last)
            writing.keep_snapshot(connection, snapshot)

    def compact(self, before_ms: int) -> int:
        with self._turn() as (connection, epoch):
            writing.last_step(connection, epoch)
            return writing.compact(connection, before_ms)

    @contextmanager
    def _turn(self) -> Iterator[tuple[Connection, int]]:
        """A transaction of the leader's."""
        with self._writing, self._open():
            try:
                epoch = self._own_epoch()
                with self.database.writer.begin() as connection:
                    yield connection, epoch
            except Deposed:
                with self._standing:
                    self._step_down()
                raise
            except StoreError:
                raise
            except BaseException:
                self._is_unsure = True
                raise
            self._is_unsure = False

    def _own_epoch(self) -> int:
        """The epoch to write in; Deposed for who does not lead, or not any more."""
        self.database.place.check()
        with self._standing:  # `leads` may find out meanwhile, in another thread
            if self._epoch is None:
                raise Deposed(
                    "This daemon does not lead, and may not write: stop it, or let it wait."
                )
            epoch = self._epoch
            if self._is_unsure and not self._stands():
                raise Deposed("Another daemon leads by now: stop this one, or let it wait.")
            return epoch

    # -- reading -----------------------------------------------------------------------------------

    def refuse_newer(self) -> None:
        """StoreError where the schema is of a newer program; a missing one is fine."""
        with self._open():
            if self.database.place.is_there():
                with self.database.reader.connect() as connection:
                    schema.refuse_newer(schema.version(connection), self.url)

    def snapshot(self, *, oldest: bool = False) -> SnapshotRow | None:
        with self._look() as connection:
            return reading.snapshot(connection, oldest)

    def steps(self, after: int = 0, limit: int | None = None) -> Sequence[StepRow]:
        with self._look() as connection:
            return reading.steps(connection, after, limit)

    def jobs(self, wanted: Wanted) -> Sequence[JobRow]:
        with self._look() as connection:
            return reading.jobs(connection, wanted)

    def job(self, id: str) -> JobRow | None:
        with self._look() as connection:
            return reading.job(connection, id)

    def last_number(self) -> int:
        with self._look() as connection:
            return reading.last_number(connection)

    def count(self) -> dict[str, int]:
        with self._look() as connection:
            return reading.count(connection)

    def story(self, job: str) -> Sequence[StoryRow]:
        with self._look() as connection:
            return reading.story(connection, job)

    def progress(self, job: str, limit: int = 1000) -> Sequence[ProgressRow]:
        with self._look() as connection:
            return reading.progress(connection, job, limit)

    def key(self, key: str) -> KeyRow | None:
        with self._look() as connection:
            return reading.key(connection, key)

    @contextmanager
    def _look(self) -> Iterator[Connection]:
        """A connection to read with, to tables that are known to be ours."""
        with self._open(), self.database.reader.connect() as connection:
            if not self._is_ready:
                schema.refuse_unready(schema.version(connection), self.url)
                self._is_ready = True
            yield connection

    # -- both --------------------------------------------------------------------------------------

    @contextmanager
    def _open(self) -> Iterator[None]:
        if self._is_closed:
            raise StoreError(f"The store {self.url} is closed: open it again.")
        with said_plainly(self.url):
            yield

    def close(self) -> None:
        with self._writing, self._standing:
            self._epoch = None
            self._is_closed = True
            self.database.dispose()
