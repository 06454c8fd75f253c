"""Queries to the store, which leaders and standbys may send; quick with many jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Select,
    bindparam,
    exists,
    func,
    literal,
    literal_column,
    or_,
    select,
    tuple_,
    union_all,
)

from trainmaster.store import schema
from trainmaster.store.database import Database
from trainmaster.store.errors import SQLITE, DamagedStore, StoreError, readable_errors
from trainmaster.store.rows import (
    ChargeRow,
    FailedRunRow,
    JobFilter,
    KeyRow,
    SnapshotRow,
    SpanRow,
    StepRow,
    StoredJob,
    StoredProgress,
    StoryRow,
    TokenRow,
    UserRow,
)
from trainmaster.store.sqlite import problem_in
from trainmaster.store.tables import (
    CHARGES,
    JOBS,
    KEYS,
    LEDGER,
    METADATA,
    PROGRESS,
    SNAPSHOTS,
    STEPS,
    STORIES,
    TOKENS,
    USERS,
    columns,
    numbers,
)

R = TypeVar("R")
_PLACE_IN_LIST = (JOBS.c.submit_ms, JOBS.c.number, JOBS.c.place, JOBS.c.id)
"""What orders jobs by submission; the index `jobs_page` begins with it."""
_LAST = tuple(f"last_{column.name}" for column in _PLACE_IN_LIST)
"""The parameters of the query for a next page."""


class StoreReader:
    """An opened database, for reading. All methods block: call them from a thread."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._is_ready = False
        self._is_closed = False

    @property
    def url(self) -> str:
        """Without a password: for messages."""
        return self.database.url

    @property
    def address(self) -> str:
        """With its password: for processes of ours."""
        if self.database.file.path is not None:
            return f"sqlite:///{self.database.file.path.absolute()}"
        return self.database.writer.url.render_as_string(hide_password=False)

    def refuse_newer(self) -> None:
        """StoreError where the schema is of a newer program; a missing one is fine."""
        with self._open():
            if self.database.file.is_there():
                with self.database.reader.connect() as connection:
                    schema.refuse_newer(schema.version(connection), self.url)

    def check(self) -> None:
        """Look for damage; StoreError where there is any. Takes seconds where there are many jobs."""
        path = self.database.file.path
        with self._open():
            if path is not None:
                problem = problem_in(path)
                if problem:
                    raise DamagedStore(
                        f"The database {self.url} {SQLITE['SQLITE_CORRUPT']} ({problem})."
                    )
                return
            with self.database.reader.connect() as connection:
                for table in METADATA.sorted_tables:  # a page that cannot be read is an error
                    connection.scalar(select(func.count()).select_from(table))

    def check_file(self) -> None:
        """StoreError where the file of the database was removed or exchanged while in use; at once."""
        self.database.file.check()

    def snapshot(self, *, oldest: bool = False) -> SnapshotRow | None:
        """The newest one, or the oldest that is kept."""
        order = SNAPSHOTS.c.seq.asc() if oldest else SNAPSHOTS.c.seq.desc()
        return self._first(SnapshotRow, select(*columns(SnapshotRow)).order_by(order).limit(1))

    def last_seq(self) -> int:
        """The number of the last step that was stored, compacted ones included."""
        with self._look() as connection:
            return int(connection.scalar(select(LEDGER.c.last_seq)) or 0)

    def steps(self, after: int = 0, limit: int | None = None) -> Sequence[StepRow]:
        """Steps that follow step `after`, in order."""
        query = select(*columns(StepRow)).where(STEPS.c.seq > after).order_by(STEPS.c.seq)
        return self._rows(StepRow, query if limit is None else query.limit(max(0, limit)))

    def named(self, name: str, user: str | None = None) -> StoredJob | None:
        """The newest job of exactly this name, of this user where one is given."""
        newest = (JOBS.c.number.desc(), JOBS.c.place.desc())
        query = select(*columns(StoredJob)).where(JOBS.c.name == name).order_by(*newest).limit(1)
        return self._first(StoredJob, query if user is None else query.where(JOBS.c.user == user))

    def jobs(self, wanted: JobFilter) -> Sequence[StoredJob]:
        with self._look() as connection:
            last: Sequence[Any] = ()
            if wanted.before is not None:
                place = select(*_PLACE_IN_LIST).where(JOBS.c.id == wanted.before)
                found = connection.execute(place).first()
                if found is None:
                    return []  # nothing follows what is not there
                last = found
            query = _page_of_jobs(replace(wanted, before="" if last else None))
            values = dict(zip(_LAST, last, strict=False))
            return [StoredJob(*row) for row in connection.execute(query, values)]

    def newest_of_each_program(self, state: str, most: int, in_all: int) -> Sequence[StoredJob]:
        """So many jobs in this state of each program, and all of unknown ones, newest first.

        Of more than `in_all` the newest of each program are taken first, then the second of each.
        """
        order = [column.desc() for column in _PLACE_IN_LIST]
        rank = func.row_number().over(partition_by=JOBS.c.program, order_by=order)
        chosen = (
            select(*_PLACE_IN_LIST, JOBS.c.program, rank.label("rank"))
            .where(JOBS.c.state == state)
            .subquery()
        )
        newest = (
            select(chosen.c.id)
            .where(or_(chosen.c.rank <= most, chosen.c.program.is_(None)))
            .order_by(chosen.c.rank, *(chosen.c[column.name].desc() for column in _PLACE_IN_LIST))
            .limit(in_all)
            .subquery()
        )
        query = select(*columns(StoredJob)).join(newest, JOBS.c.id == newest.c.id).order_by(*order)
        return self._rows(StoredJob, query)

    def all_jobs(self, states: frozenset[str]) -> Iterator[StoredJob]:
        """Every job in these states, newest first, page by page."""
        page = JobFilter(states=states, limit=1000)
        while rows := self.jobs(page):
            yield from rows
            page = replace(page, before=rows[-1].id)

    def array_states(self, arrays: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        """By array: how many of its jobs are in each state."""
        query = (
            select(JOBS.c.array, JOBS.c.state, func.count())
            .where(JOBS.c.number.in_([numbers(each)[0] for each in arrays]))
            .where(JOBS.c.array.in_(arrays))
            .group_by(JOBS.c.array, JOBS.c.state)
        )
        found: dict[str, dict[str, int]] = {}
        for array, state, count in self._rows(lambda *row: row, query) if arrays else ():
            found.setdefault(array, {})[state] = count
        return found

    def job(self, id: str) -> StoredJob | None:
        return self._first(StoredJob, select(*columns(StoredJob)).where(JOBS.c.id == id))

    def last_number(self) -> int:
        """The largest whole number among job ids (12 of `12` and `12_3`); 0 if there are no jobs."""
        with self._look() as connection:
            return connection.scalar(select(func.max(JOBS.c.number))) or 0

    def first_submission(self) -> int | None:
        """When the oldest job that is kept was submitted."""
        with self._look() as connection:
            found = connection.scalar(select(func.min(JOBS.c.submit_ms)))
            return None if found is None else int(found)

    def count(self) -> dict[str, int]:
        """How many jobs are in each state."""
        state = JOBS.c.state
        query = select(state, func.count()).group_by(state).order_by(state)
        return dict(self._rows(lambda *row: row, query))

    def story(self, job: str) -> Sequence[StoryRow]:
        query = select(*columns(StoryRow)).where(STORIES.c.job == job).order_by(STORIES.c.nr)
        return self._rows(StoryRow, query)

    def last_story_entry(self) -> int:
        """The number of the newest entry of all stories; 0 if there is none."""
        with self._look() as connection:
            return int(connection.scalar(select(func.max(STORIES.c.nr))) or 0)

    def story_entries(self, after: int, limit: int) -> Sequence[tuple[int, StoryRow]]:
        """Entries of all stories that follow entry `after`, in order, with their numbers."""
        query = select(STORIES.c.nr, *columns(StoryRow)).where(STORIES.c.nr > after)
        return self._rows(
            lambda number, *row: (int(number), StoryRow(*row)),
            query.order_by(STORIES.c.nr).limit(limit),
        )

    def failed_runs(
        self,
        what: Sequence[str],
        since_ms: int = 0,
        user: str | None = None,
        queue: str | None = None,
    ) -> Sequence[FailedRunRow]:
        """Entries of these kinds in the stories of jobs submitted since then, oldest first."""
        query = (
            select(STORIES.c.job, JOBS.c.user, JOBS.c.name, STORIES.c.detail_json)
            .join(JOBS, JOBS.c.id == STORIES.c.job)
            .where(STORIES.c.what.in_(what), JOBS.c.submit_ms >= since_ms)
            .order_by(STORIES.c.nr)
        )
        for column, value in ((JOBS.c.user, user), (JOBS.c.queue, queue)):
            query = query if value is None else query.where(column == value)
        return self._rows(FailedRunRow, query)

    def charges(
        self,
        since_ms: int,
        until_ms: int,
        user: str | None = None,
        queue: str | None = None,
    ) -> Sequence[ChargeRow]:
        """GPU time that was held in this time, in part at least."""
        query = select(*columns(ChargeRow)).where(
            CHARGES.c.to_ms >= since_ms, CHARGES.c.from_ms <= until_ms
        )
        for column, value in ((CHARGES.c.user, user), (CHARGES.c.queue, queue)):
            query = query if value is None else query.where(column == value)
        return self._rows(ChargeRow, query.order_by(CHARGES.c.nr))

    def each_charge(
        self,
        since_ms: int,
        until_ms: int,
        user: str | None = None,
        queue: str | None = None,
        at_once: int = 5000,
    ) -> Iterator[ChargeRow]:
        """The same by their ends, and not all in memory: `at_once` are read at a time."""
        query = select(CHARGES.c.nr, *columns(ChargeRow)).where(CHARGES.c.from_ms <= until_ms)
        for column, value in ((CHARGES.c.user, user), (CHARGES.c.queue, queue)):
            query = query if value is None else query.where(column == value)
        query = query.order_by(CHARGES.c.to_ms, CHARGES.c.nr).limit(at_once)
        last_ms, last_nr = since_ms, -1
        while True:
            is_later = or_(CHARGES.c.to_ms > last_ms, CHARGES.c.nr > last_nr)
            found = self._rows(
                lambda nr, *row: (nr, ChargeRow(*row)),
                query.where(CHARGES.c.to_ms >= last_ms, is_later),
            )
            yield from (row for _, row in found)
            if len(found) < at_once:
                return
            last_nr, last_ms = found[-1][0], found[-1][1].to_ms

    def charged_states(
        self,
        since_ms: int,
        until_ms: int,
        user: str | None = None,
        queue: str | None = None,
    ) -> Mapping[str, str]:
        """The state of each job that held GPU time in this time."""
        charged = select(CHARGES.c.job).where(
            CHARGES.c.to_ms >= since_ms, CHARGES.c.from_ms <= until_ms
        )
        for column, value in ((CHARGES.c.user, user), (CHARGES.c.queue, queue)):
            charged = charged if value is None else charged.where(column == value)
        query = select(JOBS.c.id, JOBS.c.state).where(JOBS.c.id.in_(charged))
        return dict(self._rows(lambda *row: row, query))

    def newest_failed_runs(
        self, what: Sequence[str], since_ms: int, limit: int
    ) -> Sequence[FailedRunRow]:
        """Entries of these kinds since then in the stories of all jobs, newest first."""
        query = (
            select(STORIES.c.job, JOBS.c.user, JOBS.c.name, STORIES.c.detail_json, STORIES.c.at_ms)
            .join(JOBS, JOBS.c.id == STORIES.c.job)
            .where(STORIES.c.what.in_(what), STORIES.c.at_ms >= since_ms)
            .where(STORIES.c.what.in_([literal_column("'failed'"), literal_column("'lost'")]))
            .order_by(STORIES.c.at_ms.desc(), STORIES.c.nr.desc())
            .limit(limit)
        )
        return self._rows(FailedRunRow, query)

    def lost_gpu_ms(self, since_ms: int, user: str | None = None) -> int:
        """GPU time of work that was lost since then, in thousandths of a GPU x ms."""
        query = select(func.sum(CHARGES.c.lost_gpu_ms)).where(CHARGES.c.to_ms >= since_ms)
        with self._look() as connection:
            found = query if user is None else query.where(CHARGES.c.user == user)
            return int(connection.scalar(found) or 0)

    def spans(
        self, since_ms: int, until_ms: int, nodes: Sequence[str], limit: int
    ) -> Sequence[SpanRow]:
        """Where jobs held GPUs in this time, on these nodes or on all, the last to end first."""
        fields = ("job", "user", "attempt", "devices", "from_ms", "to_ms", "ended")
        query = (
            select(JOBS.c.name, *(CHARGES.c[field] for field in fields))
            .join(JOBS, JOBS.c.id == CHARGES.c.job)
            .where(CHARGES.c.to_ms >= since_ms, CHARGES.c.from_ms <= until_ms)
            .where(CHARGES.c.devices.is_not(None), CHARGES.c.to_ms > CHARGES.c.from_ms)
            .order_by(CHARGES.c.to_ms.desc(), CHARGES.c.nr.desc())
            .limit(limit)
        )
        if nodes:
            there = (CHARGES.c.devices.contains(f"\n{node}:", autoescape=True) for node in nodes)
            query = query.where(or_(*there))
        return self._rows(
            lambda name, *row: SpanRow(**dict(zip(fields, row, strict=True)), name=name), query
        )

    def progress(self, job: str, limit: int = 1000) -> Sequence[StoredProgress]:
        """All reports of a job, or `limit` of them at even distances with the first and the last.

        Of c reports the i-th (from 0) is taken when i (limit - 1) / (c - 1) passes a whole number.
        """
        if limit < 2:
            last = select(*columns(StoredProgress)).where(PROGRESS.c.job == job)
            last = last.order_by(PROGRESS.c.nr.desc()).limit(1)
            return self._rows(StoredProgress, last) if limit == 1 else []
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
        spans = func.nullif(c - 1, 0, type_=BigInteger)
        passes = (i * (limit - 1)) // spans > ((i - 1) * (limit - 1)) // spans
        query = (
            select(*(ranked.c[column.name] for column in columns(StoredProgress)))
            .where(or_(c <= limit, i == 0, passes))
            .order_by(ranked.c.nr)
        )
        return self._rows(StoredProgress, query)

    def spare_progress(
        self, after: int, before_ms: int, span_ms: int, limit: int
    ) -> tuple[list[int], int | None]:
        """Reports that a later one of the same job in the same span makes redundant.

        Of the next `limit` rows after that one, as far as they are older than `before_ms`; with the last that
        was looked at, None where there was none.
        """
        rows = (
            select(PROGRESS.c.nr, PROGRESS.c.job, PROGRESS.c.at_ms)
            .where(PROGRESS.c.nr > after)
            .order_by(PROGRESS.c.nr)
            .limit(limit)
            .subquery()
        )
        later = PROGRESS.alias()
        next_ms = (
            select(later.c.at_ms)
            .where(later.c.job == rows.c.job, later.c.nr > rows.c.nr)
            .order_by(later.c.nr)
            .limit(1)
            .scalar_subquery()
        )
        query = select(rows.c.nr, rows.c.at_ms, next_ms).order_by(rows.c.nr)
        spare, last = list[int](), None
        with self._look() as connection:
            for nr, at_ms, next_at_ms in connection.execute(query):
                if at_ms >= before_ms:
                    break
                last = nr
                if next_at_ms is not None and next_at_ms // span_ms == at_ms // span_ms:
                    spare.append(nr)
        return spare, last

    def key(self, key: str) -> KeyRow | None:
        return self._first(KeyRow, select(*columns(KeyRow)).where(KEYS.c.key == key))

    def token(self, digest: str) -> TokenRow | None:
        """The token with this digest, revoked and expired ones too."""
        query = select(*columns(TokenRow)).where(TOKENS.c.digest == digest)
        return self._first(TokenRow, query)

    def token_by_id(self, id: str) -> TokenRow | None:
        return self._first(TokenRow, select(*columns(TokenRow)).where(TOKENS.c.id == id))

    def tokens(self) -> Sequence[TokenRow]:
        """All of them, oldest first."""
        order = (TOKENS.c.created_ms, TOKENS.c.id)
        return self._rows(TokenRow, select(*columns(TokenRow)).order_by(*order))

    def user(self, name: str) -> UserRow | None:
        """What was said of a user's role."""
        return self._first(UserRow, select(*columns(UserRow)).where(USERS.c.id == name))

    def users(self) -> Sequence[UserRow]:
        """All users whose role was set, by name."""
        return self._rows(UserRow, select(*columns(UserRow)).order_by(USERS.c.id))

    def _rows(self, kind: Callable[..., R], query: Select[Any]) -> list[R]:
        with self._look() as connection:
            return [kind(*row) for row in connection.execute(query)]

    def _first(self, kind: Callable[..., R], query: Select[Any]) -> R | None:
        return next(iter(self._rows(kind, query)), None)

    @contextmanager
    def _look(self) -> Iterator[Connection]:
        """A connection to read with, to tables that are known to be ours."""
        self.check_file()
        with self._open(), self.database.reader.connect() as connection:
            if not self._is_ready:
                schema.refuse_unready(schema.version(connection), self.url)
                self._is_ready = True
            yield connection

    @contextmanager
    def _open(self) -> Iterator[None]:
        if self._is_closed:
            raise StoreError(f"The store {self.url} is closed: open it again.")
        with readable_errors(self.url):
            yield


@lru_cache(maxsize=64)
def _page_of_jobs(wanted: JobFilter) -> Select[Any]:
    """The query for a page; the one that follows a job has the values of its place as parameters.

    Remembered, because making it takes as long as asking for it.
    """
    limit, conditions = max(0, wanted.limit), list(_conditions(wanted))
    if wanted.before is not None:
        places = zip(_LAST, _PLACE_IN_LIST, strict=True)
        last = [bindparam(name, type_=column.type) for name, column in places]
        conditions.append(tuple_(*_PLACE_IN_LIST) < tuple_(*last))
    if not wanted.states:
        return _newest(JOBS, limit, is_brief=wanted.is_brief).where(*conditions)
    # One page of each state, and of these the first: along the index of states, whatever their
    # number; asked for several at once, SQLite would sort all that are in them.
    pages = [
        select(
            _newest(JOBS, limit, *_PLACE_IN_LIST[1:3], is_brief=wanted.is_brief)
            .where(JOBS.c.state == state, *conditions)
            .subquery()
        )
        for state in sorted(wanted.states)
    ]
    return _newest(union_all(*pages).subquery(), limit)


def _newest(
    source: FromClause, limit: int, *more: ColumnElement[Any], is_brief: bool = False
) -> Select[Any]:
    """The newest of a table of jobs, or of what was chosen from it."""
    fields = [
        literal("").label(column.name)
        if is_brief and column.name == "spec_json"
        else source.c[column.name]
        for column in columns(StoredJob)
    ]
    order = [source.c[column.name].desc() for column in _PLACE_IN_LIST]
    return select(*fields, *more).order_by(*order).limit(limit)


def _conditions(wanted: JobFilter) -> Iterator[ColumnElement[bool]]:
    yield from _matching(wanted, JOBS)
    if wanted.is_folded:
        later = JOBS.alias()
        of_same = later.c.submit_ms == JOBS.c.submit_ms, later.c.number == JOBS.c.number
        found = [*of_same, later.c.place > JOBS.c.place, *_matching(wanted, later)]
        if wanted.states:
            found.append(later.c.state.in_(sorted(wanted.states)))
        yield or_(JOBS.c.array.is_(None), ~exists().where(*found))


def _matching(wanted: JobFilter, jobs: FromClause) -> Iterator[ColumnElement[bool]]:
    for name in ("user", "queue", "array"):
        value = getattr(wanted, name)
        if value is not None:
            yield jobs.c[name] == value
    if wanted.text is not None:
        in_name = jobs.c.folded_name.contains(wanted.text.casefold(), autoescape=True)
        yield or_(in_name, jobs.c.id.contains(wanted.text, autoescape=True))
    if wanted.since_ms is not None:
        yield jobs.c.submit_ms >= wanted.since_ms
