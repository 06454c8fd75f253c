"""Who asks over TCP: sessions of the page and tokens, without a network."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.api_service import MemoryService, by_us
from trainmaster.api import identity, sessions
from trainmaster.api.app import create_app
from trainmaster.api.routes import accounts

URL = "http://127.0.0.1:8470"
V1 = "/api/v1"
ADA = 64_001


class Front:
    """One application, asked by the manager's own user, by a Unix user, and over TCP."""

    def __init__(self, service: MemoryService, audit: Path) -> None:
        app = create_app(service, url=URL, audit=audit)  # type: ignore[arg-type]
        self.audit = audit
        self.own = TestClient(by_us(app), base_url=URL)
        self.ada = TestClient(by_us(app, ADA), base_url=URL)
        self.tcp = TestClient(app, base_url=URL, follow_redirects=False)

    def log_in(self, client: TestClient, headers: dict[str, str] | None = None) -> int:
        """Open the page with a link that this client asks for."""
        link = client.post(f"{V1}/login-links", headers=headers).json()["url"]
        return self.tcp.get(link.removeprefix(URL)).status_code


@pytest.fixture
def front(service: MemoryService, tmp_path: Path) -> Front:
    return Front(service, tmp_path / "audit.log")


def role(front: Front) -> str | int:
    """What the browser may do."""
    answer = front.tcp.get(f"{V1}/caller")
    return str(answer.json()["role"]) if answer.status_code == 200 else answer.status_code


def test_a_link_works_once_and_its_session_is_that_of_whoever_asked(front: Front) -> None:
    link = front.ada.post(f"{V1}/login-links").json()["url"].removeprefix(URL)
    assert front.tcp.get("/").status_code == 401
    assert front.tcp.get(link).status_code == 303
    said = front.tcp.get(f"{V1}/caller").json()
    assert (said["user"], said["role"], said["via"]) == (f"uid-{ADA}", "user", "link")
    front.tcp.cookies.clear()
    again = front.tcp.get(link)
    assert (again.status_code, "trainmaster token link" in again.text) == (401, True)
    assert front.tcp.get("/login?code=").status_code == 401


def test_links_and_sessions_expire(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(sessions.time, "monotonic", lambda: now[0])
    link = front.own.post(f"{V1}/login-links").json()["url"].removeprefix(URL)
    now[0] += sessions.LINK_S
    assert front.tcp.get(link).status_code == 401
    assert front.log_in(front.own) == 303
    now[0] += sessions.SESSION_S - 1
    assert role(front) == "admin"
    now[0] += 1
    assert role(front) == 401


def test_a_cookie_counts_only_from_the_user_who_opened_the_link(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = [1000]
    for module in (identity, accounts):
        monkeypatch.setattr(module, "peer_uid", lambda _: uid[0])
    assert front.log_in(front.own) == 303
    assert role(front) == "admin"
    uid[0] = 1001  # a program of another user, which listened on another port of 127.0.0.1
    assert role(front) == 401


def test_a_session_ends_with_its_token_and_follows_the_role_of_its_user(
    front: Front, service: MemoryService
) -> None:
    made = front.own.post(f"{V1}/tokens", json={"user": "ada", "role": "operator"}).json()
    bearer = {"Authorization": f"Bearer {made['token']}"}
    assert front.log_in(front.tcp, bearer) == 303
    assert role(front) == "operator"
    front.own.delete(f"{V1}/tokens/{made['id']}")
    assert role(front) == 401
    front.tcp.cookies.clear()
    assert front.log_in(front.ada) == 303
    assert role(front) == "user"
    front.own.put(f"{V1}/users/uid-{ADA}", json={"role": "viewer"})
    assert role(front) == "viewer"


def test_a_session_cannot_begin_another_and_other_sites_cannot_use_it(front: Front) -> None:
    assert front.log_in(front.own) == 303
    assert front.tcp.post(f"{V1}/login-links").status_code == 403
    foreign = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert front.tcp.post(f"{V1}/nodes/n0/drain", headers=foreign).status_code == 403
    assert front.tcp.get(f"{V1}/jobs", headers=foreign).status_code == 403


def test_a_wrong_token_is_not_made_good_by_a_session(front: Front) -> None:
    assert front.log_in(front.own) == 303
    for shown in ("Bearer tm_wrong", "Bearer", "Basic cm9vdDpyb290"):
        assert front.tcp.get(f"{V1}/jobs", headers={"Authorization": shown}).status_code == 401


def test_what_is_not_in_the_table_is_not_served(
    service: MemoryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_app(service)  # type: ignore[arg-type]

    @app.get(f"{V1}/forgotten")
    async def forgotten() -> str:
        return "secret"

    answer = TestClient(by_us(app), base_url=URL).get(f"{V1}/forgotten")
    assert (answer.status_code, "secret" in answer.text) == (404, False)
    answer = TestClient(by_us(app), base_url=URL).delete(f"{V1}/nodes")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")


def test_a_role_that_only_a_newer_version_knows_gives_no_rights(
    front: Front, service: MemoryService
) -> None:
    row, text = asyncio.run(service.accounts.create_token("ada", "emperor"))
    said = front.tcp.get(f"{V1}/caller", headers={"Authorization": f"Bearer {text}"}).json()
    assert (said["role"], said["token"]) == ("viewer", row.id)


def test_the_audit_log_has_changes_and_refusals_and_no_tokens(front: Front) -> None:
    made = front.own.post(f"{V1}/tokens", json={"user": "ada"}).json()
    front.tcp.get(f"{V1}/jobs")
    front.tcp.get(f"{V1}/jobs", headers={"Authorization": f"Bearer {made['token']}"})
    lines = [json.loads(line) for line in front.audit.read_text().splitlines()]
    assert [(line["verb"], line["path"], line["status"], line["via"]) for line in lines] == [
        ("POST", f"{V1}/tokens", 201, "socket"),
        ("GET", f"{V1}/jobs", 401, None),
    ]
    assert made["token"] not in front.audit.read_text()
    assert front.audit.stat().st_mode & 0o777 == 0o600
