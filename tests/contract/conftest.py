"""The stores that the contract suites run on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainmaster.store.open import open_store
from trainmaster.store.store import Store


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.live)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/trainmaster.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def opened(store_url: str) -> Iterator[Callable[[], Store]]:
    """Opens the store, as often as asked; all are closed in the end."""
    stores: list[Store] = []

    def another() -> Store:
        stores.append(open_store(store_url))
        return stores[-1]

    yield another
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Callable[[], Store]) -> Store:
    """A store that leads."""
    found = opened()
    assert found.acquire_leadership()
    return found
