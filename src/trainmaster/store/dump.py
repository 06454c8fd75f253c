"""All rows of a store as lines of JSON, and back: the same for SQLite and PostgreSQL.

Tables are taken as the database has them, so a store of an earlier schema is dumped and loaded as it is; the
next leader brings it up to date.
"""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Float,
    LargeBinary,
    MetaData,
    Table,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from trainmaster.durable_files import put_in_place, sync
from trainmaster.model.job_state import ENDED_STATES
from trainmaster.store import schema
from trainmaster.store.copies import PARTS, move_parts
from trainmaster.store.database import Database
from trainmaster.store.errors import StoreError, readable_errors
from trainmaster.store.sqlite import CONTENTS, open_sqlite
from trainmaster.store.store import Store
from trainmaster.store.tables import JOBS, LEDGER, METADATA, SNAPSHOTS, AnyFloat

AT_ONCE = 500
"""Rows that are read or written together."""
REPLACED = "trainmaster_replaced_"
"""Schemas of PostgreSQL that hold tables which a restore replaced."""


class NotEmpty(StoreError):
    """There is a store where one is to be written."""


@dataclass(frozen=True, slots=True)
class Dump:
    """What a store has at one moment."""

    schema: str
    seq: int
    counts: Mapping[str, int]
    """Rows by table, in an order in which they can be loaded."""
    _connection: Connection
    _tables: Mapping[str, Table]

    def snapshot(self) -> str | None:
        """The body of the newest snapshot; None where no manager has worked with it."""
        newest = SNAPSHOTS.c.seq.desc()
        query = select(SNAPSHOTS.c.body_json).order_by(newest).limit(1)
        return self._connection.scalar(query)

    def lines(self, table: str) -> Iterator[bytes]:
        """The names of its columns, then each of its rows."""
        found = self._tables[table]
        yield _line([column.name for column in found.columns])
        query = select(found).order_by(*found.primary_key.columns)
        for row in self._connection.execution_options(yield_per=AT_ONCE).execute(query):
            yield _line([_told(value) for value in row])


@contextmanager
def dumping(store: Store) -> Iterator[Dump]:
    """One consistent view of everything, while others write."""
    with readable_errors(store.url), store.database.reader.connect() as connection:
        if connection.dialect.name == "postgresql":
            connection = connection.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
        found = schema.version(connection)
        schema.refuse_newer(found, store.url)
        if found is None:
            raise StoreError(f"The database {store.url} is empty: there is nothing to back up.")
        tables = _tables(connection)
        counts = {
            name: connection.scalar(select(func.count()).select_from(table)) or 0
            for name, table in tables.items()
        }
        seq = int(connection.scalar(select(LEDGER.c.last_seq)) or 0)
        yield Dump(found, seq, counts, connection, tables)


def _tables(connection: Connection) -> dict[str, Table]:
    """Ours, as they are in this database, the ones that others refer to first."""
    there = MetaData()
    names = set(inspect(connection).get_table_names())
    there.reflect(connection, only=sorted(names & METADATA.tables.keys()))
    for table in there.sorted_tables:
        for column in table.columns:
            if isinstance(column.type, Float):
                column.type = AnyFloat()
    return {table.name: table for table in there.sorted_tables}


def _line(values: object) -> bytes:
    return json.dumps(values, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _told(value: object) -> object:
    """As JSON has it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (int, str, float)):
        return value
    raise StoreError(f"A value of the type {type(value).__name__} cannot be put into a backup.")


# -- loading -------------------------------------------------------------------------------------------

Lines = Callable[[], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class Replaced:
    """What was there before."""

    aside: str = ""
    """Where it is now; empty: there was nothing."""
    last_number: int = 0
    """The largest number of its jobs, as far as that can be read."""
    epoch: int = 0
    live: tuple[tuple[str, int], ...] = ()
    """Its jobs that had not ended, each with its number."""


def load(
    database: Database,
    version: str,
    tables: Mapping[str, Lines],
    *,
    replaces: bool,
    before_switch: Callable[[Replaced], None] = lambda _: None,
) -> Replaced:
    """Fill a database with these rows, all or nothing; what was there is moved aside.

    The caller holds the leader's lock. `before_switch` is called when all rows are written and none can be
    seen yet.
    """
    with readable_errors(database.url):
        if has_contents(database) and not replaces:
            raise NotEmpty(
                f"{database.url} has jobs already: say --replace to move it aside, or name another"
                " database or data folder."
            )
        before = _before(database)
        if database.file.path is not None:
            return _load_file(database.file.path, version, tables, before, before_switch)
        with database.writer.begin() as connection:
            aside = _move_tables(connection)
            _fill(connection, version, tables, before.epoch)
            before_switch(before)
        return replace(before, aside=f"schema {aside}" if aside else "")


def has_contents(database: Database) -> bool:
    """Whether a manager ever worked with it; a file that cannot be read is taken for such."""
    if not database.file.is_there():
        return False
    try:
        with database.reader.connect() as connection:
            names = {*inspect(connection).get_table_names()} & {*CONTENTS}
            found = (connection.execute(text(f"SELECT 1 FROM {name} LIMIT 1")) for name in names)
            return any(each.first() is not None for each in found)
    except SQLAlchemyError:
        if database.file.path is None:
            raise
        return True


def _before(database: Database) -> Replaced:
    """Of the store that is there; a damaged file says nothing."""
    if not database.file.is_there():
        return Replaced()
    try:
        with database.reader.connect() as connection:
            if schema.version(connection) is None:
                return Replaced()
            epoch = connection.scalar(select(func.max(LEDGER.c.epoch))) or 0
            last = connection.scalar(select(func.max(JOBS.c.number))) or 0
            ids = select(JOBS.c.id, JOBS.c.number).where(JOBS.c.state.not_in(ENDED_STATES))
            live = connection.execute(ids.order_by(JOBS.c.number, JOBS.c.place))
            return Replaced("", last, epoch, tuple((id, number) for id, number in live))
    except SQLAlchemyError:
        if database.file.path is None:
            raise
        return Replaced()


def last_number(database: Database) -> int:
    """The largest number of a job in it, of whatever version it is."""
    with readable_errors(database.url):
        return _before(database).last_number


def _load_file(
    path: Path,
    version: str,
    tables: Mapping[str, Lines],
    before: Replaced,
    before_switch: Callable[[Replaced], None],
) -> Replaced:
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    written = open_sqlite(fresh)
    try:
        try:
            with written.writer.begin() as connection:
                _fill(connection, version, tables, before.epoch)
            with written.writer.connect() as connection:
                found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
        finally:
            written.dispose()  # the last connection puts its log into the file
        if found != "ok":
            raise StoreError(f"What was written to {fresh} is damaged ({found}): check the disk.")
        sync(fresh)
        before_switch(before)
        moved = move_parts(path, "replaced")
        put_in_place(fresh, path)
    finally:
        for part in PARTS:
            fresh.with_name(fresh.name + part).unlink(missing_ok=True)
    return replace(before, aside=moved[0] if moved else "")


def _move_tables(connection: Connection) -> str:
    """Move our tables into a schema of their own; its name, empty if there were none."""
    there = inspect(connection)
    ours = {*METADATA.tables, schema.VERSION_TABLE} & {*there.get_table_names()}
    if not ours:
        return ""
    taken = {*there.get_schema_names()}
    name = next(name for n in count(1) if (name := f"{REPLACED}{n}") not in taken)
    connection.execute(text(f"CREATE SCHEMA {name}"))
    for table in sorted(ours):
        connection.execute(text(f"ALTER TABLE {table} SET SCHEMA {name}"))
    return name


def _fill(
    connection: Connection, version: str, tables: Mapping[str, Lines], last_epoch: int
) -> None:
    schema.migrate(connection, version)
    made = _tables(connection)
    for table in reversed(made.values()):  # a migration may have made rows
        connection.execute(table.delete())
    for name, table in made.items():
        if name not in tables:
            raise StoreError(f"The backup has no table {name}: it is not complete.")
        _insert(connection, table, iter(tables[name]()))
        _count_on(connection, table)
    # A leader of what was there must not take itself for the leader of this.
    epoch = func.greatest if connection.dialect.name == "postgresql" else func.max
    connection.execute(update(LEDGER).values(epoch=epoch(LEDGER.c.epoch, last_epoch) + 1))


def _insert(connection: Connection, table: Table, lines: Iterator[bytes]) -> None:
    names = json.loads(next(lines))
    if unknown := {*names} - {*table.columns.keys()}:
        raise StoreError(f"The backup has columns of {table.name} that are unknown: {unknown}.")
    columns = [table.columns[name] for name in names]
    while some := list(islice(lines, AT_ONCE)):
        rows = [
            {column.name: _meant(value, column) for column, value in zip(columns, row, strict=True)}
            for row in map(json.loads, some)
        ]
        connection.execute(insert(table), rows)


def _meant(value: Any, column: Column[Any]) -> object:
    """What `_told` was given."""
    if value is None:
        return None
    if isinstance(column.type, LargeBinary):
        return base64.b64decode(value)
    return float(value) if isinstance(column.type, AnyFloat) else value


def _count_on(connection: Connection, table: Table) -> None:
    """PostgreSQL numbers new rows by itself: above those that were loaded."""
    if connection.dialect.name != "postgresql":
        return
    for column in table.primary_key.columns:
        sequence = connection.scalar(
            text("SELECT pg_get_serial_sequence(:table, :column)"),
            {"table": table.name, "column": column.name},
        )
        if sequence is not None:
            last = connection.scalar(select(func.max(column))) or 0
            connection.execute(
                text("SELECT setval(:sequence, :last, :used)"),
                {"sequence": sequence, "last": max(1, last), "used": last > 0},
            )
