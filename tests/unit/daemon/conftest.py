"""A store that this manager leads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster.store.open import open_store
from trainmaster.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/trainmaster.db")
    assert opened.acquire_leadership()
    yield opened
    opened.close()
