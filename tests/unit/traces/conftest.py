"""Small files to read, and the public ones where they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[4] / "shared" / "data"

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a small trace and answer its path."""

    def write_text(text: str, name: str = "trace.csv") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_text


@pytest.fixture
def shared() -> Callable[[str], Path]:
    """A public trace, or a skip that says which one is not here."""

    def find(name: str) -> Path:
        path = SHARED_DATA / name
        if not path.exists():
            pytest.skip(f"{path} is not here")
        return path

    return find
