"""What tests of the SDK in real processes share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.sdk.fake_supervisor import FakeSupervisor, booth
from tests.unit.sdk.warm import Bench, bench


@pytest.fixture(name="runs")
def fixture_runs(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, ("torch", "trainmaster_sdk.torch")) as opened:
        yield opened


@pytest.fixture(name="there")
def fixture_there() -> Iterator[FakeSupervisor]:
    with booth() as opened:
        yield opened
