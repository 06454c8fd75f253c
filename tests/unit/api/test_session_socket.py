"""The socket of the page process: only sessions count there, and never the peer."""

from __future__ import annotations

import asyncio

from starlette.testclient import TestClient

from tests.api_service import MemoryService, by_us
from trainmaster.api.app import create_app
from trainmaster.api.caller import Caller, Role
from trainmaster.api.session_socket import OnlySessions
from trainmaster.api.sessions import Sessions, name_in

V1 = "/api/v1"


def test_a_request_is_its_session_s_and_without_one_nobody_s_even_from_root(
    service: MemoryService,
) -> None:
    _, token = asyncio.run(service.accounts.create_token("eve", "admin"))
    sessions = Sessions()
    app = create_app(service, sessions=sessions)  # type: ignore[arg-type]
    client = TestClient(by_us(OnlySessions(by_us(app, 0)), 0), base_url="http://localhost")
    cookie = sessions.begin_as(Caller("ada", Role.USER, 64_001, "socket"), 64_001)
    for shown in (
        {},
        {"Authorization": f"Bearer {token}"},
        {"Cookie": f"trainmaster_80={cookie}"},
        {"Trainmaster-Session": cookie},
        {"Trainmaster-Session": ""},
    ):
        assert client.get(f"{V1}/caller", headers=shown).status_code == 401, shown
    mine = {"Trainmaster-Session": name_in(cookie)}
    said = client.get(f"{V1}/caller", headers=mine).json()
    assert (said["role"], said["via"]) == ("user", "link")
    assert client.post(f"{V1}/nodes/n0/drain", headers=mine).status_code == 403
    assert client.post(f"{V1}/login-links", headers=mine).status_code == 403
    assert client.get("/", headers=mine).status_code == 404
    assert client.get("/metrics", headers=mine).status_code == 404
    sessions.end(cookie)
    assert client.get(f"{V1}/caller", headers=mine).status_code == 401


def test_the_name_of_a_session_is_not_its_cookie() -> None:
    sessions = Sessions()
    cookie = sessions.begin_as(Caller("ada", Role.USER, None, "token"), None)
    assert sessions.of(cookie, None) is not None
    for wrong in (name_in(cookie), f"{name_in(cookie)}.", f"{cookie}x", "", "."):
        assert sessions.of(wrong, None) is None
    assert sessions.named(name_in(cookie)) is not None
    assert sessions.named("") is None
