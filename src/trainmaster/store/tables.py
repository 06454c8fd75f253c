"""The tables as this version of the program uses them; `migrations` says how they came to be."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

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
)

from trainmaster.store.rows import (
    JobRow,
    KeyRow,
    ProgressRow,
    SnapshotRow,
    StepRow,
    StoryRow,
)

R = TypeVar("R")
METADATA = MetaData()
LONG = BigInteger().with_variant(Integer(), "sqlite")
"""SQLite counts rows by itself only where a primary key is called INTEGER; it is 64 bits wide there."""


class AnyFloat(TypeDecorator[float]):
    """A float that may be NaN: SQLite would turn NaN into NULL, and a diverged loss is news."""

    impl = Double
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], object]:
        """In place of the one of `Double`, which makes a float of the text again."""
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
)
"""One row: whose turn it is to write, and the last step. Every writing transaction locks it."""

STEPS = Table(
    "steps",
    METADATA,
    Column("seq", LONG, primary_key=True, autoincrement=False),
    Column("now_ms", BigInteger, nullable=False),
    Column("events_json", Text, nullable=False),
    Column("orders_json", Text, nullable=False),
)

SNAPSHOTS = Table(
    "snapshots",
    METADATA,
    Column("seq", LONG, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("body_json", Text, nullable=False),
)

_PAGE = ("submit_ms", "number", "place", "id", "user", "queue", "array")
JOBS = Table(
    "jobs",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("submit_ms", BigInteger, nullable=False),
    Column("start_ms", BigInteger),
    Column("finish_ms", BigInteger),
    Column("gpus", BigInteger, nullable=False),
    Column("exit_code", BigInteger),
    Column("array", Text),
    Column("array_index", BigInteger),
    Column("spec_json", Text, nullable=False),
    Column("record_json", Text, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("place", BigInteger, nullable=False),
    Column("folded_name", Text, nullable=False),
    Index("jobs_number", "number"),
    # Pages are read along these two, and what they filter by is in them, so that a page of few
    # matches among many jobs looks at the index only.
    Index("jobs_page", *_PAGE),
    Index("jobs_state", "state", *_PAGE),
)
"""After the fields of a JobRow: 12 and 4 of `12_3` to order by, and the name without its case."""

STORIES = Table(
    "stories",
    METADATA,
    Column("nr", LONG, primary_key=True),
    Column("job", Text, ForeignKey("jobs.id"), nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("what", Text, nullable=False),
    Column("detail_json", Text, nullable=False),
    Index("stories_job", "job", "nr"),
)

PROGRESS = Table(
    "progress",
    METADATA,
    Column("nr", LONG, primary_key=True),
    Column("job", Text, ForeignKey("jobs.id"), nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("loss", AnyFloat),
    Column("samples_per_s", AnyFloat),
    Index("progress_job", "job", "nr"),
)

KEYS = Table(
    "keys",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("request_hash", Text, nullable=False),
    Column("answer_json", Text, nullable=False),
    Index("keys_at", "at_ms"),
)

Row = StepRow | SnapshotRow | JobRow | StoryRow | ProgressRow | KeyRow
TABLES: dict[type[Row], Table] = {
    StepRow: STEPS,
    SnapshotRow: SNAPSHOTS,
    JobRow: JOBS,
    StoryRow: STORIES,
    ProgressRow: PROGRESS,
    KeyRow: KEYS,
}
FIELDS: dict[type[Row], tuple[str, ...]] = {
    row: tuple(field.name for field in fields(row)) for row in TABLES
}

_NUMBERED = re.compile(r"([0-9]{1,18})(?:_([0-9]{1,17}))?")


def columns(row: type[Row]) -> list[Column[Any]]:
    """The columns of a row's table, in the order of its fields: what `rows` takes."""
    return [TABLES[row].c[name] for name in FIELDS[row]]


def rows(kind: Callable[..., R], found: Iterable[Sequence[Any]]) -> list[R]:
    """Values of what was selected by `columns`."""
    return [kind(*row) for row in found]


def values(row: Row) -> dict[str, object]:
    """What goes into a row's table."""
    found: dict[str, object] = {name: getattr(row, name) for name in FIELDS[type(row)]}
    if isinstance(row, JobRow):
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
