"""The store checks itself and keeps copies: damage is noticed, and a good copy is put back."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.stores import batch, job
from trainmaster.store import copies
from trainmaster.store.copies import KEPT, keep_copy
from trainmaster.store.errors import DamagedStore, StoreError
from trainmaster.store.open import open_store, put_back_copy
from trainmaster.store.store import Store


def filled(path: Path, jobs: int = 500) -> Store:
    store = open_store(str(path))
    assert store.acquire_leadership()
    store.append([batch(1, *(job(str(number)) for number in range(jobs)))])
    return store


def damage(path: Path, first: int = 4096) -> None:
    """Overwrite everything behind the first page."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(first)
        file.write(b"\xaa" * (size - first))


def test_damage_is_found_while_the_store_is_in_use(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "t.db")) as store:
        store.check()
        damage(tmp_path / "t.db")
        with pytest.raises(
            DamagedStore, match="is damaged: stop the manager and start `trainmaster up"
        ):
            store.check()


def test_copies_are_made_of_what_has_changed_and_the_newest_are_kept(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "t.db", 3)) as store:
        made = []
        for seq in range(2, KEPT + 4):
            made.append(keep_copy(store, tmp_path / "copies"))
            assert keep_copy(store, tmp_path / "copies") is None
            store.append([batch(seq)])
    assert sorted((tmp_path / "copies").iterdir()) == sorted(filter(None, made[-KEPT:]))
    with closing(open_store(str(made[-1]))) as copy:
        assert copy.count() == {"pending": 3}


def test_no_copy_is_made_of_a_damaged_store(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "t.db")) as store:
        good = keep_copy(store, tmp_path / "copies")
        store.append([batch(2)])
        damage(tmp_path / "t.db", 8192)
        with pytest.raises(DamagedStore):
            keep_copy(store, tmp_path / "copies")
    assert list((tmp_path / "copies").iterdir()) == [good]


def test_no_copy_fills_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "SPARE", 1 << 60)
    with closing(filled(tmp_path / "t.db")) as store, pytest.raises(StoreError, match="not copied"):
        keep_copy(store, tmp_path / "copies")


@pytest.mark.parametrize("how", ["damaged", "missing", "text", "created"])
def test_the_newest_good_copy_is_put_back(tmp_path: Path, how: str) -> None:
    path = tmp_path / "t.db"
    with closing(filled(path)) as store:
        keep_copy(store, tmp_path / "copies")
        store.append([batch(2, job("1000"))])
        worse = keep_copy(store, tmp_path / "copies")
    assert worse is not None
    damage(worse)
    if how == "damaged":
        damage(path)
    elif how == "missing":
        path.unlink()
    elif how == "created":  # by a manager that was refused then
        path.unlink()
        with closing(open_store(str(path))) as store:
            assert store.acquire_leadership()
    else:
        path.write_text("something else entirely, " * 100)
    kept = None if how == "missing" else path.read_bytes()
    said = put_back_copy(str(path), tmp_path / "copies")
    assert re.search(
        r"trainmaster-1.db of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d is in its place: jobs submitted since",
        said,
    )
    with closing(open_store(str(path))) as store:
        assert store.acquire_leadership()
        assert store.count() == {"pending": 500}
    if kept is not None:
        why = "missing" if how == "created" else "damaged"
        assert (tmp_path / f"t.db.{why}-1").read_bytes() == kept


def test_the_log_of_a_missing_database_is_not_written_into_the_copy(tmp_path: Path) -> None:
    path, log = tmp_path / "t.db", tmp_path / "t.db-wal"
    with closing(filled(path)) as store:
        keep_copy(store, tmp_path / "copies")
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for seq in range(2, 12):
            store.append([batch(seq, *(job(str(1000 * seq + number)) for number in range(50)))])
        written = log.read_bytes()
    for round in (1, 2):
        path.unlink()
        log.write_bytes(written)
        said = put_back_copy(str(path), tmp_path / "copies")
        assert f"set aside as t.db.missing-{round}-wal" in said
        assert (tmp_path / f"t.db.missing-{round}-wal").read_bytes() == written
        with closing(open_store(str(path))) as store:
            assert store.acquire_leadership()
            store.check()
            assert store.count() == {"pending": 500}


def test_a_copy_that_is_damaged_in_its_place_is_not_said_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.db"
    with closing(filled(path)) as store:
        keep_copy(store, tmp_path / "copies")
    path.unlink()

    def badly(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:5000])

    monkeypatch.setattr(copies.shutil, "copyfile", badly)
    with pytest.raises(DamagedStore, match="in its place, and damaged there"):
        put_back_copy(str(path), tmp_path / "copies")


def test_a_store_that_is_fine_or_in_use_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with closing(filled(path)) as store:
        keep_copy(store, tmp_path / "copies")
        store.append([batch(2)])
        assert put_back_copy(str(path), tmp_path / "copies") == ""
        damage(path)
        assert put_back_copy(str(path), tmp_path / "copies") == ""
    assert not list(tmp_path.glob("*.damaged*"))
    with closing(filled(tmp_path / "other.db")):
        pass
    assert put_back_copy(str(tmp_path / "other.db"), tmp_path / "copies") == ""


def test_an_empty_store_without_a_copy_is_left_alone(tmp_path: Path) -> None:
    with closing(open_store(str(tmp_path / "t.db"))) as store:
        assert store.acquire_leadership()
    assert put_back_copy(str(tmp_path / "t.db"), tmp_path / "copies") == ""
    assert (tmp_path / "t.db").exists()
