"""The audit log says what a request changed: which role, which token, which jobs, whose session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.api_service import MemoryService, by_us
from trainmaster.api.app import create_app
from trainmaster.api.audit_log import last_lines

V1 = "/api/v1"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


@pytest.fixture
def audited(service: MemoryService, place: Path) -> Iterator[TestClient]:
    app = create_app(service, audit=place)  # type: ignore[arg-type]
    with TestClient(by_us(app), base_url="http://127.0.0.1:8470") as client:
        yield client


def last(place: Path) -> dict[str, Any]:
    return last_lines(place, 1, None, None)[0]


def test_a_role_is_named(audited: TestClient, place: Path) -> None:
    assert audited.put(f"{V1}/users/mallory", json={"role": "operator"}).status_code == 200
    assert last(place)["subject"] == '{"role":"operator"}'


def test_a_token_is_named_by_its_id_and_for_whom_it_is(audited: TestClient, place: Path) -> None:
    made = audited.post(f"{V1}/tokens", json={"user": "ada", "role": "viewer", "label": "x" * 200})
    said = last(place)["subject"]
    assert said.startswith(f'token {made.json()["id"]} {{"user":"ada","role":"viewer"')
    assert len(said) == 200
    assert made.json()["token"] not in place.read_text()


def test_jobs_are_named_and_what_they_run_is_not(audited: TestClient, place: Path) -> None:
    jobs = [{"command": "echo secret"}] * 2
    made = audited.post(f"{V1}/jobs", json={"jobs": jobs}).json()["jobs"]
    assert last(place)["subject"] == f"2 jobs: {made[0]['id']}, {made[1]['id']}"
    assert "secret" not in place.read_text()


def test_a_session_that_begins_is_noted_as_its_users(audited: TestClient, place: Path) -> None:
    url = audited.post(f"{V1}/login-links").json()["url"]
    by = last(place)["user"]
    login = f"/login{url.partition('/login')[2]}"
    assert audited.get(login, follow_redirects=False).status_code == 303
    said = last(place)
    assert (said["verb"], said["path"], said["status"]) == ("GET", "/login", 303)
    assert (said["user"], said["via"], said["subject"]) == (by, "link", "session of the page")
    assert url.partition("code=")[2] not in place.read_text()


def test_what_only_looks_is_not_noted(audited: TestClient, place: Path) -> None:
    assert audited.get(f"{V1}/jobs").status_code == 200
    assert last_lines(place, 1, None, None) == []
