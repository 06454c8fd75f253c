"""The store: leadership and writing; `reader.py` has the queries."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock

from sqlalchemy import Connection, select
from sqlalchemy.exc import DBAPIError

from trainmaster.store import mutations, schema
from trainmaster.store.database import Database
from trainmaster.store.errors import LeadershipLost, StoreError, readable_errors
from trainmaster.store.reader import StoreReader
from trainmaster.store.rows import Batch, SnapshotRow, TokenRow, UserRow
from trainmaster.store.tables import LEDGER


class Store(StoreReader):
    """Steps, jobs and snapshots in SQLite or PostgreSQL, by the same statements; safe for threads.

    Only the leader writes; every manager may read.

    Leadership is a lock and an epoch. The lock keeps a second manager waiting. The epoch is the
    fencing token: each new leader raises it and each transaction compares it, which stops a leader
    that lost the lock without noticing. A lost lock (the server restarted) is taken again if there
    was no other leader meanwhile.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._writing = RLock()
        """Acquired before `_leadership`, if both are needed."""
        self._leadership = RLock()
        self._epoch: int | None = None
        self._is_unsure = False
        """The database failed in our last turn: leadership may be lost."""
        self._doubted: tuple[Batch, ...] = ()
        """Batches whose append failed; they may be stored nevertheless, if only the answer was lost."""
        self.before_migration: Callable[[str], None] = lambda _: None
        """Called with the version of the schema before tables are brought up to date."""

    # -- leading -----------------------------------------------------------------------------------

    def acquire_leadership(self, *, by_force: bool = False) -> bool:
        """Become the leader, the one manager that may write; False at once if there is another.

        `by_force`: even so, because that one has stopped working.
        """
        with self._writing, self._leadership, self._open():
            if self._epoch is not None and self._still_leads():
                return True
            self._epoch = None
            lock = self.database.lock
            if not (lock.seize() if by_force else lock.take()):
                return False
            try:
                self.database.writer.dispose()  # a file of the same name may be another by now
                schema.bring_up_to_date(self.database.writer, self.url, self._copy_first)
                self.database.file.settle()
                self._epoch = self._raise_epoch()
            finally:
                if self._epoch is None:
                    if by_force:
                        lock.end_former()
                    self.database.writer.dispose()
                    self.database.lock.release()
            self._is_unsure, self._doubted = False, ()
            return self._epoch is not None

    def _copy_first(self, version: str) -> None:
        """Copying may take long, and a standby of the earlier version take over: then nothing is changed."""
        self.before_migration(version)
        if not self.database.lock.is_held():
            raise StoreError(
                f"Another manager took over {self.url} while it was copied for an upgrade: stop that one."
            )

    def _raise_epoch(self) -> int | None:
        holder = f"{socket.gethostname()}:{os.getpid()}"
        with self.database.writer.begin() as connection:
            try:
                return mutations.raise_epoch(connection, holder)
            except DBAPIError as error:
                if getattr(error.orig, "sqlstate", None) == mutations.LOCK_NOT_AVAILABLE:
                    return None  # a former leader is in the middle of its last write
                raise

    def is_leader(self) -> bool:
        """Whether this manager is still the leader.

        False while the store cannot be reached; True again after that, unless another one led meanwhile.
        """
        with self._leadership:
            if self._epoch is None or self._is_closed:
                return False
            try:
                with readable_errors(self.url):
                    return self._still_leads()
            except StoreError:
                return False

    def _still_leads(self) -> bool:
        """Whether lock and epoch are ours, taking back a lock that is free."""
        self.database.file.check()
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

    def beat(self) -> None:
        """Show that this leader works; LeadershipLost if another manager leads by now."""
        with self._turn() as (connection, epoch):
            mutations.beat(connection, epoch)

    def sign_of_life(self) -> tuple[int, ...]:
        """Numbers that change while a leader works; another manager compares them from time to time."""
        with self._look() as connection:
            ledger = select(LEDGER.c.epoch, LEDGER.c.last_seq, LEDGER.c.beat)
            return tuple(connection.execute(ledger).one())

    # -- writing -----------------------------------------------------------------------------------

    def append(self, batches: Sequence[Batch]) -> None:
        """Store these in one transaction; LeadershipLost if another manager leads, StoreError if that fails.

        After a StoreError the same batches may be appended again, with more after them: batches that
        were stored although the answer was lost are not stored twice. Steps must be
        the next ones; jobs of stories and progress must be there; the first answer to a key stands.
        """
        if not batches:
            return
        mutations.refuse_gaps(batches)
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
        """Write these, except those that an earlier append stored although it seemed to fail."""
        if mutations.claim(connection, epoch, batches):
            mutations.keep(connection, batches)
            return
        last = mutations.last_step(connection, epoch)
        kept = max(0, last - batches[0].step.seq + 1)
        if not 0 < kept <= len(batches) or tuple(batches[:kept]) != self._doubted[:kept]:
            raise mutations.out_of_turn(
                f"Step {batches[0].step.seq} cannot be kept, the next one is {last + 1}"
            )
        if rest := batches[kept:]:
            self._keep(connection, epoch, rest)

    def keep_snapshot(self, snapshot: SnapshotRow) -> None:
        with self._turn() as (connection, epoch):
            last = mutations.last_step(connection, epoch)
            mutations.keep_snapshot(connection, snapshot, last)

    def keep_account(self, row: TokenRow | UserRow) -> None:
        """Store a token, or the role of a user; LeadershipLost if another manager leads."""
        with self._turn() as (connection, epoch):
            mutations.last_step(connection, epoch)
            mutations.keep_account(connection, row)

    def forget_user(self, name: str) -> None:
        """Forget the role of a user; LeadershipLost if another manager leads."""
        with self._turn() as (connection, epoch):
            mutations.last_step(connection, epoch)
            mutations.forget_user(connection, name)

    def compact(self, before_ms: int) -> int:
        """Drop steps before this time that a kept snapshot covers, and older snapshots; how many steps.

        The oldest snapshot that stays is followed by every step since. Of the others the newest two
        stay and the first of every day. Keys go after seven days.
        """
        with self._turn() as (connection, epoch):
            mutations.last_step(connection, epoch)
            return mutations.compact(connection, before_ms)

    def thin_progress(self, after: int, before_ms: int, span_ms: int, limit: int) -> int | None:
        """Of the next reports, older than that, keep the last of each job in each span.

        The last row that was looked at, where the next call goes on; None at the end. Finds the rows
        before the transaction begins.
        """
        spare, last = self.spare_progress(after, before_ms, span_ms, limit)
        if spare:
            with self._turn() as (connection, epoch):
                mutations.last_step(connection, epoch)
                mutations.drop_progress(connection, spare)
        return last

    @contextmanager
    def _turn(self) -> Iterator[tuple[Connection, int]]:
        """A writing transaction."""
        with self._writing, self._open():
            try:
                epoch = self._own_epoch()
                with self.database.writer.begin() as connection:
                    yield connection, epoch
            except LeadershipLost:
                with self._leadership:
                    self._step_down()
                raise
            except StoreError:
                raise
            except BaseException:
                self._is_unsure = True
                raise
            self._is_unsure = False

    def _own_epoch(self) -> int:
        """The epoch to write in; LeadershipLost if this manager is not the leader."""
        self.database.file.check()
        with self._leadership:  # `is_leader` may find out meanwhile, in another thread
            if self._epoch is None:
                raise LeadershipLost(
                    "This manager does not lead, and may not write: stop it, or let it wait."
                )
            epoch = self._epoch
            if self._is_unsure and not self._still_leads():
                raise LeadershipLost("Another manager leads by now: stop this one, or let it wait.")
            return epoch

    def close(self) -> None:
        """Give up leadership and close all connections."""
        with self._writing, self._leadership:
            self._epoch = None
            self._is_closed = True
            self.database.dispose()
