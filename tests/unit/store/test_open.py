"""Stores by their URL."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trainmaster.store.errors import BadAddress, StoreError
from trainmaster.store.open import open_store


def test_a_path_and_a_url_are_one_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.db"
    for url in (str(path), f"sqlite:///{path}", "a.db", "sqlite:///a.db"):
        store = open_store(url)
        assert store.url == f"sqlite:///{path}"
        assert store.acquire_leadership()
        store.close()
    assert {file.name for file in tmp_path.iterdir()} == {"a.db", "a.db.lock"}


def test_a_path_may_have_any_characters(tmp_path: Path) -> None:
    path = tmp_path / "100% of #1?.db"
    store = open_store(str(path))
    assert store.acquire_leadership()
    assert store.count() == {}
    store.close()
    assert path.exists()


def test_opening_writes_nothing(tmp_path: Path) -> None:
    open_store(str(tmp_path / "a.db")).close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "names no file"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("mysql://root@localhost/x", "no store of the kind mysql://: give a path"),
        ("://", "cannot be read: write it as postgresql://"),
        (
            "nonsense",
            "not the address of a database: write postgresql://user@host/name, or ./nonsense",
        ),
        ("postgresql://host:port/x", "cannot be read: write it as postgresql://"),
    ],
)
def test_a_url_that_names_no_store(url: str, says: str) -> None:
    with pytest.raises(BadAddress, match=says):
        open_store(url)


def test_postgresql_without_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=rf"{sys.executable} -m pip install 'psycopg\[binary\]'"):
        open_store("postgresql://localhost/x")
