"""What anybody reads, as queries that stay quick with many jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Select,
    func,
    literal,
    or_,
    select,
    tuple_,
    union_all,
)

from trainmaster.store.protocol import Wanted
from trainmaster.store.rows import JobRow, KeyRow, ProgressRow, SnapshotRow, StepRow, StoryRow
from trainmaster.store.tables import JOBS, KEYS, PROGRESS, SNAPSHOTS, STEPS, STORIES, columns, rows

_PLACE_IN_LIST = (JOBS.c.submit_ms, JOBS.c.number, JOBS.c.place, JOBS.c.id)
"""What orders jobs by submission; the index `jobs_page` begins with it."""


def snapshot(connection: Connection, oldest: bool) -> SnapshotRow | None:
    order = SNAPSHOTS.c.seq.asc() if oldest else SNAPSHOTS.c.seq.desc()
    query = select(*columns(SnapshotRow)).order_by(order).limit(1)
    return next(iter(rows(SnapshotRow, connection.execute(query))), None)


def steps(connection: Connection, after: int, limit: int | None) -> Sequence[StepRow]:
    query = select(*columns(StepRow)).where(STEPS.c.seq > after).order_by(STEPS.c.seq)
    if limit is not None:
        query = query.limit(max(0, limit))
    return rows(StepRow, connection.execute(query))


def jobs(connection: Connection, wanted: Wanted) -> Sequence[JobRow]:
    conditions = list(_conditions(wanted))
    if wanted.before is not None:
        last = connection.execute(select(*_PLACE_IN_LIST).where(JOBS.c.id == wanted.before)).first()
        if last is None:
            return []  # nothing follows what is not there
        conditions.append(tuple_(*_PLACE_IN_LIST) < tuple_(*last))
    limit = max(0, wanted.limit)
    states = sorted(wanted.states)
    if not states:
        page = _page(JOBS, limit, is_brief=wanted.is_brief)
        return rows(JobRow, connection.execute(page.where(*conditions)))
    # One page of each state, and of these the first: along the index of states, whatever their
    # number; asked for several at once, SQLite would sort all that are in them.
    pages = [
        select(
            _page(JOBS, limit, *_PLACE_IN_LIST[1:3], is_brief=wanted.is_brief)
            .where(JOBS.c.state == state, *conditions)
            .subquery()
        )
        for state in states
    ]
    return rows(JobRow, connection.execute(_page(union_all(*pages).subquery(), limit)))


def _page(
    source: FromClause, limit: int, *more: ColumnElement[Any], is_brief: bool = False
) -> Select[Any]:
    """The newest of a table of jobs, or of what was chosen from it."""
    fields = [
        literal("").label(column.name)
        if is_brief and column.name == "spec_json"
        else source.c[column.name]
        for column in columns(JobRow)
    ]
    order = [source.c[column.name].desc() for column in _PLACE_IN_LIST]
    return select(*fields, *more).order_by(*order).limit(limit)


def _conditions(wanted: Wanted) -> Sequence[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if wanted.user is not None:
        found.append(JOBS.c.user == wanted.user)
    if wanted.queue is not None:
        found.append(JOBS.c.queue == wanted.queue)
    if wanted.array is not None:
        found.append(JOBS.c.array == wanted.array)
    if wanted.text is not None:
        in_name = JOBS.c.folded_name.contains(wanted.text.casefold(), autoescape=True)
        found.append(or_(in_name, JOBS.c.id.contains(wanted.text, autoescape=True)))
    if wanted.since_ms is not None:
        found.append(JOBS.c.submit_ms >= wanted.since_ms)
    return found


def job(connection: Connection, id: str) -> JobRow | None:
    query = select(*columns(JobRow)).where(JOBS.c.id == id)
    return next(iter(rows(JobRow, connection.execute(query))), None)


def last_number(connection: Connection) -> int:
    return connection.scalar(select(func.max(JOBS.c.number))) or 0


def count(connection: Connection) -> dict[str, int]:
    query = (
        select(JOBS.c.state, func.count().label("jobs"))
        .group_by(JOBS.c.state)
        .order_by(JOBS.c.state)
    )
    return {row.state: row.jobs for row in connection.execute(query)}


def story(connection: Connection, job: str) -> Sequence[StoryRow]:
    query = select(*columns(StoryRow)).where(STORIES.c.job == job).order_by(STORIES.c.nr)
    return rows(StoryRow, connection.execute(query))


def progress(connection: Connection, job: str, limit: int) -> Sequence[ProgressRow]:
    """All reports, or `limit` of them at even distances with the first and the last.

    Of c reports the i-th (from 0) is taken when i (limit - 1) / (c - 1) passes a whole number.
    """
    if limit < 2:
        return _last_report(connection, job) if limit == 1 else []
    ranked = (
        select(
            PROGRESS,
            (func.row_number().over(order_by=PROGRESS.c.nr) - 1).label("i"),
            func.count().over().label("c"),
        )
        .where(PROGRESS.c.job == job)
        .subquery()
    )
    i, c = ranked.c.i, ranked.c.c
    last = func.nullif(c - 1, 0, type_=BigInteger)
    passes = (i * (limit - 1)) // last > ((i - 1) * (limit - 1)) // last
    query = (
        select(*(ranked.c[column.name] for column in columns(ProgressRow)))
        .where(or_(c <= limit, i == 0, passes))
        .order_by(ranked.c.nr)
    )
    return rows(ProgressRow, connection.execute(query))


def _last_report(connection: Connection, job: str) -> Sequence[ProgressRow]:
    query = select(*columns(ProgressRow)).where(PROGRESS.c.job == job)
    query = query.order_by(PROGRESS.c.nr.desc()).limit(1)
    return rows(ProgressRow, connection.execute(query))


def key(connection: Connection, key: str) -> KeyRow | None:
    query = select(*columns(KeyRow)).where(KEYS.c.key == key)
    return next(iter(rows(KeyRow, connection.execute(query))), None)
