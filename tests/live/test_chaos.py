"""A short fault run with a fixed seed on each store; `make chaos` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.chaos import FAULTS, perform
from tests.live.postgres import Unavailable

pytestmark = [pytest.mark.live, pytest.mark.slow]
SECONDS = 30.0


@pytest.mark.parametrize(("store", "seed"), [("sqlite", 11), ("postgresql", 12)])
def test_no_job_is_lost_or_doubled_or_made_up(store: str, seed: int, tmp_path: Path) -> None:
    try:
        verdict = perform(tmp_path, store, seed, SECONDS)
    except Unavailable as error:
        pytest.skip(f"PostgreSQL cannot be started here: {error}")
    assert verdict.jobs > 0
    assert not verdict.findings


def test_every_fault_is_said_in_words() -> None:
    assert len(FAULTS) == len({fault for fault, _ in FAULTS.values()})
