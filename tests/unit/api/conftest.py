"""An API over a daemon in memory, spoken to without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.api_service import MemoryService, by_us
from trainmaster.api.app import create_app


@pytest.fixture
def service(tmp_path: Path) -> MemoryService:
    return MemoryService(tmp_path)


@pytest.fixture
def client(service: MemoryService) -> Iterator[TestClient]:
    with TestClient(by_us(create_app(service)), base_url="http://127.0.0.1:8470") as client:
        yield client
