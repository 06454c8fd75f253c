"""What the leader writes, each inside one transaction that compares the epoch first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from sqlalchemy import Connection, Table, delete, func, insert, select, text, update
from sqlalchemy.dialects import postgresql, sqlite

from trainmaster.store.errors import LeadershipLost, StoreError
from trainmaster.store.rows import DAY_MS, KEYS_LIVE_MS, Batch, SnapshotRow, TokenRow, UserRow
from trainmaster.store.tables import (
    CHARGES,
    JOBS,
    KEYS,
    LEDGER,
    PROGRESS,
    SNAPSHOTS,
    STEPS,
    STORIES,
    TABLES,
    Row,
    values,
)

NEWEST = 2
"""Snapshots that are kept in any case: one to recover from, and one before it."""

LOCK_NOT_AVAILABLE = "55P03"
LONGEST_WAIT_MS = 2000

Upsert = postgresql.Insert | sqlite.Insert


# -- whose turn it is ------------------------------------------------------------------------------


def raise_epoch(connection: Connection, holder: str) -> int:
    """Begin a new epoch: writers of an older one are refused from now on."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = {LONGEST_WAIT_MS}"))
    connection.execute(update(LEDGER).values(epoch=LEDGER.c.epoch + 1, holder=holder))
    return int(connection.execute(select(LEDGER.c.epoch)).scalar_one())


def last_step(connection: Connection, epoch: int) -> int:
    """The last stored step; LeadershipLost unless the epoch is ours, until the transaction ends."""
    ledger = select(LEDGER.c.epoch, LEDGER.c.holder, LEDGER.c.last_seq).with_for_update()
    found, holder, last = connection.execute(ledger).one()
    if found != epoch:
        host, _, pid = holder.rpartition(":")
        raise LeadershipLost(
            f"Another manager leads by now, process {pid} on {host}: stop this one, or let it wait."
        )
    return int(last)


def beat(connection: Connection, epoch: int) -> None:
    """Show that the leader lives; LeadershipLost unless the epoch is ours."""
    last_step(connection, epoch)
    connection.execute(update(LEDGER).values(beat=LEDGER.c.beat + 1))


def claim(connection: Connection, epoch: int, batches: Sequence[Batch]) -> bool:
    """Take the numbers of these steps, if the epoch is ours and they are the next ones."""
    taken = connection.execute(
        update(LEDGER)
        .where(LEDGER.c.epoch == epoch, LEDGER.c.last_seq == batches[0].step.seq - 1)
        .values(last_seq=batches[-1].step.seq)
    )
    return taken.rowcount == 1


def out_of_turn(what: str) -> StoreError:
    """The error for rows that do not follow the stored ones."""
    return StoreError(f"{what}: restart the manager to read what is there.")


def refuse_gaps(batches: Sequence[Batch]) -> None:
    """Steps of one append follow each other."""
    for earlier, later in pairwise(batch.step.seq for batch in batches):
        if later != earlier + 1:
            raise out_of_turn(f"Step {later} cannot be kept right after step {earlier}")


# -- what is kept ----------------------------------------------------------------------------------


def keep(connection: Connection, batches: Sequence[Batch]) -> None:
    """Write all that these steps changed, each kind of row by one statement."""
    _insert(connection, STEPS, [batch.step for batch in batches])
    changed = {job.id: job for batch in batches for job in batch.jobs}
    _upsert(connection, JOBS, list(changed.values()))
    _insert(connection, STORIES, [story for batch in batches for story in batch.stories])
    _insert(connection, PROGRESS, [report for batch in batches for report in batch.progress])
    _insert(connection, CHARGES, [charge for batch in batches for charge in batch.charges])
    keys = [values(key) for batch in batches for key in batch.keys]
    if keys:  # the first answer to a key stands, as long as it is remembered
        new = _inserting(connection.dialect.name, KEYS)
        renewed = {column.name: new.excluded[column.name] for column in KEYS.columns}
        is_old = KEYS.c.at_ms < new.excluded.at_ms - KEYS_LIVE_MS
        connection.execute(
            new.on_conflict_do_update(index_elements=[KEYS.c.key], set_=renewed, where=is_old), keys
        )


def keep_snapshot(connection: Connection, snapshot: SnapshotRow, last: int) -> None:
    """Store a snapshot; its step must be stored already."""
    if not 0 <= snapshot.seq <= last:
        raise out_of_turn(
            f"A snapshot after step {snapshot.seq} cannot be kept, the last step is {last}"
        )
    _upsert(connection, SNAPSHOTS, [snapshot])


def keep_account(connection: Connection, row: TokenRow | UserRow) -> None:
    """Store a token, or the role of a user: a new one or a changed one."""
    _upsert(connection, TABLES[type(row)], [row])


def forget_user(connection: Connection, name: str) -> None:
    """Forget the role of a user."""
    users = TABLES[UserRow]
    connection.execute(delete(users).where(users.c.id == name))


def compact(connection: Connection, before_ms: int) -> int:
    """Drop what lies before the last snapshot before a time; how many steps.

    What stays is the oldest snapshot and every step since, so that it can be replayed.
    """
    now = connection.scalar(select(func.max(STEPS.c.now_ms)))
    if now is None:
        now = connection.scalar(select(func.max(SNAPSHOTS.c.at_ms)))
    if now is not None:
        connection.execute(delete(KEYS).where(KEYS.c.at_ms < now - KEYS_LIVE_MS))
    base = _base(connection, before_ms)
    _thin_snapshots(connection, base)
    if base is None:
        return 0
    return int(connection.execute(delete(STEPS).where(STEPS.c.seq <= base)).rowcount)


def drop_progress(connection: Connection, rows: Sequence[int]) -> None:
    """Drop these reports."""
    connection.execute(delete(PROGRESS).where(PROGRESS.c.nr.in_(rows)))


def _base(connection: Connection, before_ms: int) -> int | None:
    """The last snapshot before that time that covers no younger step; None if there is none."""
    young = connection.scalar(
        select(STEPS.c.seq).where(STEPS.c.now_ms >= before_ms).order_by(STEPS.c.seq).limit(1)
    )
    bases = select(func.max(SNAPSHOTS.c.seq)).where(SNAPSHOTS.c.at_ms < before_ms)
    if young is not None:
        bases = bases.where(SNAPSHOTS.c.seq < young)
    found: int | None = connection.scalar(bases)
    return found


def _thin_snapshots(connection: Connection, base: int | None) -> None:
    """Keep the oldest that is needed, the newest two, and the first of every day in between.

    Those of the days become the oldest one after another: without them no step could ever be dropped.
    """
    listed = connection.execute(
        select(SNAPSHOTS.c.seq, SNAPSHOTS.c.at_ms).order_by(SNAPSHOTS.c.seq)
    ).all()
    needed = [(seq, at_ms) for seq, at_ms in listed if base is None or seq >= base]
    days = {at_ms // DAY_MS: seq for seq, at_ms in reversed(needed)}
    kept = {*days.values(), *(seq for seq, _ in (*needed[:1], *needed[-NEWEST:]))}
    gone = [seq for seq, _ in listed if seq not in kept]
    if gone:
        connection.execute(delete(SNAPSHOTS).where(SNAPSHOTS.c.seq.in_(gone)))


def _insert(connection: Connection, table: Table, what: Sequence[Row]) -> None:
    if what:
        connection.execute(insert(table), [values(row) for row in what])


def _upsert(connection: Connection, table: Table, what: Sequence[Row]) -> None:
    if what:
        statement = _upserting(connection.dialect.name, table)
        connection.execute(statement, [values(row) for row in what])


@lru_cache
def _upserting(dialect: str, table: Table) -> Upsert:
    """Built once: building the statement takes as long as executing it."""
    statement = _inserting(dialect, table)
    return statement.on_conflict_do_update(
        index_elements=list(table.primary_key.columns),
        set_={c.name: statement.excluded[c.name] for c in table.columns if not c.primary_key},
    )


def _inserting(dialect: str, table: Table) -> Upsert:
    """INSERT with ON CONFLICT, which SQLAlchemy has for each dialect only."""
    if dialect == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)
