"""The tables as this version of the program uses them; `migrations` says how they came to be."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    literal_column,
)
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeEngine

from trainmaster.store.rows import (
    ChargeRow,
    KeyRow,
    SnapshotRow,
    StepRow,
    StoredJob,
    StoredProgress,
    StoryRow,
    TokenRow,
    UserRow,
)

METADATA = MetaData()
LONG = BigInteger().with_variant(Integer(), "sqlite")
"""SQLite counts rows by itself only where a primary key is called INTEGER; it is 64 bits wide there."""


class AnyFloat(TypeDecorator[float]):
    """A float that may be NaN: SQLite would store NaN as NULL, and a diverged loss must stay visible."""

    impl = Double
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], object]:
        """Replaces the one of `Double`, which would convert the text to a float."""
        nan: object = "nan" if dialect.name == "sqlite" else math.nan

        def bound(value: float | None) -> object:
            if value is None:
                return None
            return nan if math.isnan(value) else float(value)

        return bound

    def process_result_value(self, value: float | str | None, dialect: Dialect) -> float | None:
        return None if value is None else float(value)


LEDGER = Table(
    "ledger",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("beat", BigInteger, nullable=False, server_default="0"),
)
"""One row: the leader's epoch, the last step, its heartbeat. Every writing transaction locks it."""

TYPES: dict[str, TypeEngine[Any]] = {"int": BigInteger(), "str": Text(), "float": AnyFloat()}
KEY = ("seq", "id", "key")


def _table(name: str, row: type[Any], *more: SchemaItem) -> Table:
    """A table with a column for each field of its rows, and what else it needs."""
    columns: list[Column[Any]] = []
    for field in fields(row):
        kind, _, absent = field.type.partition(" | ")
        is_key = field.name in KEY
        column: Column[Any] = Column(
            field.name,
            LONG if is_key and kind == "int" else TYPES[kind],
            *([ForeignKey("jobs.id")] if field.name == "job" else []),
            primary_key=is_key,
            nullable=bool(absent),
            autoincrement=False,
        )
        columns.append(column)
    return Table(name, METADATA, *columns, *more)


_PAGE = ("submit_ms", "number", "place", "id", "user", "queue", "array")
STEPS = _table("steps", StepRow)
SNAPSHOTS = _table("snapshots", SnapshotRow)
JOBS = _table(
    "jobs",
    StoredJob,
    Column("number", BigInteger, nullable=False),
    Column("place", BigInteger, nullable=False),
    Column("folded_name", Text, nullable=False),
    Index("jobs_number", "number"),
    Index("jobs_name", "name", "number", "place"),
    # Pages are read along these two, and what they filter by is in them, so that a page of few
    # matches among many jobs looks at the index only.
    Index("jobs_page", *_PAGE),
    Index("jobs_state", "state", *_PAGE),
    # The newest runs of each program are chosen by it alone.
    Index("jobs_program", "state", "program", *_PAGE[:4]),
)
"""After the fields of a StoredJob: 12 and 4 of `12_3` to order by, and the name without its case."""
STORIES = _table(
    "stories", StoryRow, Column("nr", LONG, primary_key=True), Index("stories_job", "job", "nr")
)
_FAILED = STORIES.c.what.in_([literal_column("'failed'"), literal_column("'lost'")])
Index("stories_failed", STORIES.c.at_ms, sqlite_where=_FAILED, postgresql_where=_FAILED)
"""Of runs that failed or were lost only: it costs nothing for any other entry."""
PROGRESS = _table(
    "progress",
    StoredProgress,
    Column("nr", LONG, primary_key=True),
    Index("progress_job", "job", "nr"),
)
CHARGES = _table(
    "charges",
    ChargeRow,
    Column("nr", LONG, primary_key=True),
    Index("charges_time", "to_ms"),
    Index("charges_job", "job"),
)
KEYS = _table("keys", KeyRow, Index("keys_at", "at_ms"))
TOKENS = _table("tokens", TokenRow, Index("tokens_digest", "digest", unique=True))
USERS = _table("users", UserRow)

Row = (
    StepRow
    | SnapshotRow
    | StoredJob
    | StoryRow
    | StoredProgress
    | ChargeRow
    | KeyRow
    | TokenRow
    | UserRow
)
TABLES: dict[type[Row], Table] = {
    StepRow: STEPS,
    SnapshotRow: SNAPSHOTS,
    StoredJob: JOBS,
    StoryRow: STORIES,
    StoredProgress: PROGRESS,
    ChargeRow: CHARGES,
    KeyRow: KEYS,
    TokenRow: TOKENS,
    UserRow: USERS,
}
FIELDS: dict[type[Row], tuple[str, ...]] = {
    row: tuple(field.name for field in fields(row)) for row in TABLES
}

_NUMBERED = re.compile(r"([0-9]{1,18})(?:_([0-9]{1,17}))?")


def columns(row: type[Row]) -> list[Column[Any]]:
    """The columns of a row's table, in the order of its fields."""
    return [TABLES[row].c[name] for name in FIELDS[row]]


def values(row: Row) -> dict[str, object]:
    """What goes into a row's table."""
    found: dict[str, object] = {name: getattr(row, name) for name in FIELDS[type(row)]}
    if isinstance(row, StoredJob):
        found["number"], found["place"] = numbers(row.id)
        found["folded_name"] = row.name.casefold()
    return found


def numbers(id: str) -> tuple[int, int]:
    """What orders ids: (12, 4) of `12_3`, (12, 0) of `12`, (0, 0) of one that is not a number."""
    match = _NUMBERED.fullmatch(id)
    if match is None:
        return 0, 0
    number, element = match.groups()
    return int(number), 0 if element is None else int(element) + 1
