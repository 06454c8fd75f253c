"""A store as lines of JSON and back, between the two databases."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from tests.contract.stores import JOB, batch, job, report, step
from trainmaster.store import schema
from trainmaster.store.database import Database
from trainmaster.store.dump import NotEmpty, dumping, has_contents, load
from trainmaster.store.errors import StoreError
from trainmaster.store.open import open_database, open_store
from trainmaster.store.rows import Batch, JobFilter, KeyRow, SnapshotRow, StoredProgress
from trainmaster.store.store import Store
from trainmaster.store.tables import METADATA

NAN = StoredProgress("1", 400, 4, math.nan, math.inf)
Lines = dict[str, list[bytes]]


def filled(store: Store) -> Store:
    assert store.acquire_leadership()
    store.append([batch(1, JOB), batch(2, job("2", name="zwei ✓")), batch(3, job("12_3"))])
    store.append(
        [Batch(step(4), progress=(report("1", 3), NAN), keys=(KeyRow("k", 1, "h", "{}"),))]
    )
    store.keep_snapshot(SnapshotRow(4, 40, '{"home": "h"}'))
    return store


def dumped(store: Store) -> tuple[str, Lines]:
    with dumping(store) as dump:
        return dump.schema, {name: list(dump.lines(name)) for name in dump.counts}


def loaded(url: str, version: str, lines: Lines, *, replaces: bool = False) -> str:
    with database_at(url) as database:
        assert database.lock.take()
        tables = {name: lines[name].__iter__ for name in lines}
        return load(database, version, tables, replaces=replaces).aside


@pytest.fixture
def other_url(request: pytest.FixtureRequest, store_url: str, tmp_path: Path) -> str:
    """A database of the other kind."""
    if store_url.startswith("sqlite"):
        found: str = request.getfixturevalue("postgres_url")
        return found
    return f"sqlite:///{tmp_path}/other.db"


@contextmanager
def database_at(url: str) -> Iterator[Database]:
    database = open_database(url)
    try:
        yield database
    finally:
        database.dispose()


def test_every_table_is_known(store: Store) -> None:
    """One that a migration makes and `tables.py` does not know would not be in a backup."""
    with store.database.reader.connect() as connection:
        made = {*inspect(connection).get_table_names()} - {schema.VERSION_TABLE}
    assert made == METADATA.tables.keys()


@pytest.mark.live
def test_a_store_is_the_same_in_the_other_database(store: Store, other_url: str) -> None:
    version, lines = dumped(filled(store))
    assert loaded(other_url, version, lines) == ""
    with closing(open_store(other_url)) as other:
        assert other.acquire_leadership()
        assert other.jobs(JobFilter()) == store.jobs(JobFilter())
        assert (other.steps(), other.snapshot(), other.key("k")) == (
            store.steps(),
            store.snapshot(),
            store.key("k"),
        )
        assert [repr(each) for each in other.progress("1")] == [
            repr(each) for each in store.progress("1")
        ]
        assert "nan" in repr(other.progress("1")[-1])
        again = dumped(other)[1]
        assert {name: again[name] for name in again if name != "ledger"} == {
            name: lines[name] for name in lines if name != "ledger"
        }
        other.append([batch(5, job("13"))])  # rows are numbered above those that were loaded
        assert [each.step for each in other.story("13")] == [5]


def test_what_is_there_is_moved_aside_and_only_if_told_so(store: Store, store_url: str) -> None:
    version, lines = dumped(filled(store))
    store.append([batch(5, job("99"))])
    with store.database.reader.connect() as connection:
        epoch = connection.scalar(text("SELECT epoch FROM ledger"))
    store.close()
    with pytest.raises(NotEmpty, match="--replace"):
        loaded(store_url, version, lines)
    with closing(open_store(store_url)) as unchanged:
        assert unchanged.last_number() == 99
    aside = loaded(store_url, version, lines, replaces=True)
    with closing(open_store(store_url)) as now:
        assert now.last_number() == 12
        with now.database.reader.connect() as connection:
            found = connection.scalar(text("SELECT epoch FROM ledger"))
            assert epoch is not None
            assert found > epoch, "a former leader would take itself for this one's"
            if aside.startswith("schema "):
                moved = aside.removeprefix("schema ")
                count = connection.scalar(text(f"SELECT count(*) FROM {moved}.jobs"))
            else:
                place = Path(store_url.removeprefix("sqlite:///")).with_name(aside)
                with closing(open_store(str(place))) as old:
                    count = len(old.jobs(JobFilter()))
    assert count == 4


@pytest.mark.parametrize("replaces", [False, True])
def test_rows_that_do_not_fit_change_nothing(
    store: Store, store_url: str, replaces: bool, tmp_path: Path
) -> None:
    version, lines = dumped(filled(store))
    store.close()
    lines["stories"].append(b'["no such job", 1, 1, "x", "{}", 99]\n')
    lines["progress"] = [*lines["progress"][:1], b"[1, 2]\n"]
    with pytest.raises((StoreError, ValueError)):
        loaded(store_url, version, lines, replaces=replaces)
    with closing(open_store(store_url)) as unchanged:
        assert len(unchanged.jobs(JobFilter())) == 3
    assert not [each for each in tmp_path.iterdir() if ".replaced" in each.name]


@pytest.mark.parametrize("old", schema.VERSIONS)
def test_a_backup_of_an_earlier_schema_is_brought_up_to_date(
    opened: Callable[[], Store], store_url: str, old: str
) -> None:
    store = opened()
    with store.database.writer.begin() as connection:
        schema.migrate(connection, old)
    version, lines = dumped(store)
    assert version == old
    store.close()
    with database_at(store_url) as database:
        assert not has_contents(database)
    assert loaded(store_url, version, lines)
    again = opened()
    assert again.acquire_leadership()
    assert again.jobs(JobFilter()) == []


def test_a_dump_is_of_one_moment(opened: Callable[[], Store], store: Store) -> None:
    filled(store)
    with dumping(opened()) as dump:
        before = dump.counts["jobs"]
        store.append([batch(5, job("98")), batch(6, job("99"))])
        assert len(list(dump.lines("jobs"))) == before + 1
        assert len(list(dump.lines("stories"))) == dump.counts["stories"] + 1
