"""What goes wrong with database files: real ones, full, locked, damaged, read-only, gone."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.contract.stores import JOB, batch, job, step
from trainmaster.store import sqlite
from trainmaster.store.errors import LeadershipLost, StoreError
from trainmaster.store.open import open_store
from trainmaster.store.rows import JobFilter
from trainmaster.store.store import Store

NOBODY = 65534


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights of root, to whom no file is read-only."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture(scope="module", autouse=True)
def _imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nobody may not read root's Python: what is imported late is imported before."""
    with closing(open_store(str(tmp_path_factory.mktemp("warm") / "a.db"))) as store:
        assert store.acquire_leadership()


@pytest.fixture
def path() -> Iterator[Path]:
    """A database file in a folder of nobody's; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="tm-store-"))
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    folder.chmod(0o755)
    yield folder / "trainmaster.db"
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with as_nobody():
        found = open_store(str(path))
        assert found.acquire_leadership()
        found.append([batch(1, JOB)])
    yield found
    found.close()


def sentence(action: Callable[[], object]) -> str:
    """The one sentence that a failing action says, which says what to do."""
    with pytest.raises(StoreError) as caught:
        action()
    said = str(caught.value)
    assert re.fullmatch(r"[^\n]*: [^\n]*\.", said), said
    assert not isinstance(caught.value, LeadershipLost)
    return said


def test_settings_of_the_writer(store: Store) -> None:
    assert isinstance(store, Store)
    with store.database.writer.connect() as connection:
        found = {
            name: connection.execute(text(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    full = 2
    assert found == {
        "journal_mode": "wal",
        "synchronous": full,
        "foreign_keys": 1,
        "busy_timeout": 5000,
    }


def test_a_turn_keeps_out_other_writers_from_its_begin(path: Path, store: Store) -> None:
    """Between comparing the epoch and writing nobody gets in."""
    assert isinstance(store, Store)
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other:
        with store.database.writer.begin() as connection:
            connection.execute(text("SELECT epoch FROM ledger"))
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("BEGIN IMMEDIATE")
        other.execute("BEGIN IMMEDIATE")


def test_a_full_database(store: Store) -> None:
    assert isinstance(store, Store)
    large = [batch(2, *(job(str(number)) for number in range(2, 2000)))]
    with store.database.writer.connect() as connection:
        connection.execute(text("PRAGMA max_page_count=60"))
    for _ in range(2):
        assert "is full, or its disk is: free some space" in sentence(lambda: store.append(large))
    assert store.steps() == [step(1)]
    assert store.is_leader()
    with store.database.writer.connect() as connection:
        connection.execute(text("PRAGMA max_page_count=1000000"))
    store.append(large)
    assert store.count() == {"pending": 1999}


def test_locked_by_another_program(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_MS", 50)
    with closing(open_store(str(path))) as store:
        assert store.acquire_leadership()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            said = sentence(lambda: store.append([batch(1, JOB)]))
            assert "is locked by another program: close that one" in said
            assert store.count() == {}  # reading goes on
            assert store.is_leader()
        store.append([batch(1, JOB)])
        assert store.job("1") == JOB


def test_leading_where_another_program_holds_the_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_MS", 50)
    with closing(open_store(str(path))) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            assert "is locked by another program" in sentence(store.acquire_leadership)
        assert store.acquire_leadership()


@pytest.mark.parametrize("use", ["open", "acquire_leadership"])
def test_a_file_that_is_no_database(path: Path, use: str) -> None:
    if use == "open":
        path.write_text("something else entirely, " * 100)
        assert "is not an SQLite database" in sentence(lambda: open_store(str(path)))
    else:
        with closing(open_store(str(path))) as store:
            path.write_text("something else entirely, " * 100)
            assert "is not an SQLite database" in sentence(store.acquire_leadership)
    assert path.read_text().startswith("something else")


def test_a_damaged_file(path: Path) -> None:
    with closing(open_store(str(path))) as store:
        assert store.acquire_leadership()
        store.append([batch(1, *(job(str(number)) for number in range(500)))])
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))
    said = sentence(lambda: damaged(str(path)))
    assert "is damaged: stop the manager and start `trainmaster up --adopt`" in said


def damaged(path: str) -> None:
    with closing(open_store(path)) as store:
        store.acquire_leadership()
        store.jobs(JobFilter(limit=1000))
        store.append([batch(2, *(job(str(number)) for number in range(500)))])


def test_a_folder_that_does_not_exist(path: Path) -> None:
    with closing(open_store(str(path.parent / "no" / "such.db"))) as store:
        assert "does not exist: create it" in sentence(store.acquire_leadership)


def test_a_folder_that_cannot_be_written(path: Path) -> None:
    path.parent.chmod(0o555)
    with as_nobody(), closing(open_store(str(path))) as store:
        assert "give this user the right to write to its folder" in sentence(
            store.acquire_leadership
        )
    assert list(path.parent.iterdir()) == []


def test_a_read_only_file_is_read_and_not_led(path: Path, store: Store) -> None:
    store.close()
    path.chmod(0o444)
    with as_nobody(), closing(open_store(str(path))) as found:
        assert "is read-only: give this user the right to write" in sentence(
            found.acquire_leadership
        )
        assert not found.is_leader()
        assert found.job("1") == JOB
    path.chmod(0o644)
    with as_nobody(), closing(open_store(str(path))) as found:
        assert found.acquire_leadership()


def test_a_read_only_folder_is_read(path: Path, store: Store) -> None:
    store.close()
    assert not path.with_name("trainmaster.db-wal").exists()
    path.chmod(0o444)
    path.parent.chmod(0o555)
    with as_nobody(), closing(open_store(str(path))) as found:
        assert found.job("1") == JOB
        assert found.steps() == [step(1)]
        # The folder is opened again and somebody leads: what they write is read as well.
        path.parent.chmod(0o755)
        path.chmod(0o644)
        with closing(open_store(str(path))) as leader:
            assert leader.acquire_leadership()
            leader.append([batch(2, job("2"))])
            assert found.job("2") == job("2")


def test_a_reader_without_rights_sees_what_a_leader_writes(path: Path, store: Store) -> None:
    path.parent.chmod(0o555)
    with as_nobody(), closing(open_store(str(path))) as reader:
        store.append([batch(2, job("2"))])
        assert reader.job("2") == job("2")


def test_a_file_that_is_closed_to_us(path: Path, store: Store) -> None:
    store.close()
    path.chmod(0o000)
    with as_nobody():
        assert "check that this user may read it" in sentence(lambda: open_store(str(path)))
    path.chmod(0o644)
    path.parent.chmod(0o000)
    with as_nobody():
        assert "check that this user may read it" in sentence(lambda: open_store(str(path)))


@pytest.mark.parametrize("is_exchanged", [True, False])
def test_a_file_that_is_taken_away_from_the_leader(
    path: Path, store: Store, is_exchanged: bool
) -> None:
    away = path.with_name("away.db")
    path.rename(away)
    if is_exchanged:
        path.touch()
    assert "was removed or exchanged while in use" in sentence(
        lambda: store.append([batch(2, job("2"))])
    )
    assert not store.is_leader()
    away.replace(path)
    store.append([batch(2, job("2"))])
    assert store.is_leader()
    assert store.job("2") == job("2")


def test_opening_again_goes_on_with_the_file_that_is_there(path: Path, store: Store) -> None:
    for file in path.parent.glob("trainmaster.db*"):
        file.unlink()
    said = sentence(store.acquire_leadership)
    assert (
        "start it with `trainmaster up --adopt`; jobs that have not started are gone then" in said
    )
    with closing(open_store(str(path))) as other:
        assert other.acquire_leadership()
        other.append([batch(1, job("7"))])
        assert [row.id for row in other.jobs(JobFilter())] == ["7"]
        assert not store.is_leader()
