"""The daemon is killed with SIGKILL at random moments: no job is lost, none runs twice, all end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.live.crashing import crash

pytestmark = [pytest.mark.live, pytest.mark.slow]
POINTS = int(os.environ.get("TRAINMASTER_CRASH_POINTS", "6"))


def test_on_sqlite(tmp_path: Path) -> None:
    crash(tmp_path, POINTS, 1)


def test_on_postgresql(tmp_path: Path, postgres_url: str) -> None:
    crash(tmp_path, POINTS, 2, "--database", postgres_url)
