"""Limits of requests: each is refused with the name of the limit, and nothing is taken in."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from tests.api_service import MemoryService, by_us
from trainmaster.api.access import kind_of
from trainmaster.api.app import create_app
from trainmaster.api.caller import Caller, Role
from trainmaster.api.connections import OpenConnections, bounded_protocol
from trainmaster.api.identity import CallerLookup
from trainmaster.api.limit_key import origin_of
from trainmaster.api.peer import Peer
from trainmaster.api.request_body import BodiesComing, Body
from trainmaster.api.request_limits import RequestLimits
from trainmaster.api.responses import ApiError
from trainmaster.api.sessions import Sessions
from trainmaster.api.tcp_peer import NOWHERE
from trainmaster.config.command_line import program_of
from trainmaster.config.limits import Limits, limits_of
from trainmaster.daemon.request_errors import TooMany

V1 = "/api/v1"
YAML = {"content-type": "application/yaml"}


def limited(service: MemoryService, *stated: str) -> TestClient:
    service.limits = limits_of(stated)
    return TestClient(by_us(create_app(service)), base_url="http://localhost")  # type: ignore[arg-type]


def test_a_command_is_not_endless(service: MemoryService) -> None:
    client = limited(service, "command_bytes=1k")
    for command in ("x" * 1025, ["x" * 1000, "y" * 100]):
        answer = client.post(f"{V1}/jobs", json={"command": command})
        assert answer.status_code == 422
        assert "(the limit command_bytes)" in answer.json()["error"]["sentence"]
    assert service.known == {}


def test_the_program_of_a_long_quoted_command_is_found_by_its_beginning() -> None:
    assert program_of("python train.py --note '" + "x" * 1_000_000 + "'") == "train.py"


def test_yaml_has_a_limit_of_its_own(service: MemoryService) -> None:
    client = limited(service, "yaml_bytes=1k")
    body = "command: echo\n" + "# note\n" * 1000
    answer = client.post(f"{V1}/jobs", content=body, headers=YAML)
    assert answer.status_code == 413
    assert "(the limit yaml_bytes)" in answer.json()["error"]["sentence"]


@pytest.mark.parametrize(
    ("method", "path", "query", "kind"),
    [
        ("GET", "/api/v1/jobs", b"", "requests"),
        ("POST", "/api/v1/jobs", b"dry_run=true", "submissions"),
        ("GET", "/api/v1/jobs/1/logs", b"tail=5", "requests"),
        ("GET", "/api/v1/jobs/1/logs", b"tail=5&follow=true", "followers"),
        ("GET", "/api/v1/jobs/1/logs", b"foll%6fw=true", "followers"),
        ("GET", "/api/v1/jobs/1/logs", b"tail=5;follow=true", "requests"),
        ("GET", "/api/v1/jobs/1/logs\n", b"follow=1", "followers"),
        ("POST", "/api/v1/jobs/1/logs", b"follow=true", "requests"),
        ("GET", "/api/v1/changes", b"", "followers"),
        ("GET", "/api/v1/changes\n", b"", "followers"),
        ("POST", "/api/v1/jobs/1/ports/80", b"", "forwards"),
        ("GET", "/api/v1/jobs/1/ports/80", b"", "requests"),
        ("GET", "/jobs/changes", b"follow=true", "pages"),
        ("GET", "/", b"", "pages"),
        ("GET", "/healthz", b"", "requests"),
        ("GET", "/api/v1/nothing", b"", "requests"),
        ("GET", "/_nicegui_ws/socket.io/", b"transport=websocket", "dashboards"),
        ("POST", "/api/v1/jobs/1/cancel", b"", "requests"),
    ],
)
def test_what_a_request_counts_as(method: str, path: str, query: bytes, kind: str) -> None:
    assert kind_of({"method": method, "path": path, "query_string": query}) == kind


def test_bodies_of_a_few_users_leave_some_room_for_small_ones_and_for_operators() -> None:
    coming = BodiesComing(replace(Limits(), bodies_bytes=72 << 20))
    bodies = {
        user: Body(coming, user if user != "operator" else None)
        for user in ("ada", "eve", "bob", "operator")
    }
    bodies["ada"].add(bytes(32 << 20))
    with pytest.raises(ApiError, match=r"Bodies of ada .* \(the limit user_bodies_bytes\)") as own:
        bodies["ada"].add(b"x")
    assert (own.value.status, own.value.code) == (429, "over_user_limit")
    bodies["eve"].add(bytes(30 << 20))
    with pytest.raises(ApiError, match=r"\(the limit bodies_bytes\)") as all_:
        bodies["eve"].add(bytes(2 << 20))
    assert all_.value.status == 503
    bodies["eve"].add(bytes(1 << 20))
    bodies["bob"].add(bytes(1 << 20))
    with pytest.raises(ApiError, match=r"\(the limit bodies_bytes\)"):
        bodies["bob"].add(b"x")
    bodies["operator"].add(bytes(8 << 20))


def asking(user: str, role: Role = Role.USER, path: str = "/api/v1/jobs") -> dict[str, Any]:
    caller = Caller(user, role, None, "token")
    state = {"caller": caller}
    return {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "state": state,
        "client": ("192.0.2.1", 1),
    }


class Asked:
    """Limits before an application that answers when it is told to, by a clock that stands."""

    def __init__(self, limits: Limits, *, is_proxied: bool = False) -> None:
        self.free = asyncio.Event()
        self.now_us = 0
        self.app = RequestLimits(
            self.slow, limits, is_proxied=is_proxied, clock=lambda: self.now_us
        )
        self.tasks: list[asyncio.Task[None]] = []

    async def slow(self, scope: Any, receive: Any, send: Any) -> None:
        await self.free.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def begin(self, scope: dict[str, Any]) -> list[dict[str, Any]]:
        said: list[dict[str, Any]] = []

        async def send(message: Any) -> None:
            said.append(message)

        self.tasks.append(asyncio.create_task(self.app(scope, None, send)))  # type: ignore[arg-type]
        for _ in range(3):
            await asyncio.sleep(0)
        return said

    async def end(self) -> None:
        self.free.set()
        await asyncio.gather(*self.tasks)


def test_one_users_requests_leave_room_for_others_and_for_operators() -> None:
    async def play() -> None:
        asked = Asked(replace(Limits(), requests=16, user_requests=14))
        for _ in range(14):
            assert await asked.begin(asking("ada")) == []
        refused = await asked.begin(asking("ada"))
        assert refused[0]["status"] == 429
        assert (b"retry-after", b"1") in refused[0]["headers"]
        said = json.loads(refused[1]["body"])["error"]
        assert said["code"] == "over_user_limit"
        assert "of ada" in said["sentence"]
        assert "(the limit user_requests)" in said["sentence"]
        assert await asked.begin(asking("bob")) == [], "the reserve, for one who has none"
        assert (await asked.begin(asking("bob")))[0]["status"] == 503
        assert await asked.begin(asking("eve", Role.OPERATOR)) == []
        assert (await asked.begin(asking("eve", Role.OPERATOR)))[0]["status"] == 503, "that is all"
        await asked.end()

    asyncio.run(play())


def test_who_asks_too_often_is_told_when_to_ask_again_and_others_are_not() -> None:
    async def play() -> None:
        asked = Asked(replace(Limits(), user_rate=2, user_burst=4))
        asked.free.set()
        answers = [(await asked.begin(asking("ada")))[0]["status"] for _ in range(5)]
        assert answers == [200] * 4 + [429]
        assert (await asked.begin(asking("bob")))[0]["status"] == 200
        for _ in range(10):
            assert (await asked.begin(asking("eve", Role.ADMIN)))[0]["status"] == 200
        assert (await asked.begin(asking("ada", path="/healthz")))[0]["status"] == 200
        asked.now_us = 500_000
        answers = [(await asked.begin(asking("ada")))[0]["status"] for _ in range(2)]
        assert answers == [200, 429]

    asyncio.run(play())


def test_who_shows_nothing_is_counted_by_address_and_not_behind_a_proxy() -> None:
    async def play(is_proxied: bool) -> list[int]:
        asked = Asked(replace(Limits(), user_rate=1, user_burst=2), is_proxied=is_proxied)
        asked.free.set()
        unknown = {**asking(""), "state": {"caller": None}, "path": "/login"}
        answers = [(await asked.begin(unknown))[0]["status"] for _ in range(3)]
        assert (await asked.begin(asking("ada")))[0]["status"] == 200, "a token from there"
        return answers

    assert asyncio.run(play(is_proxied=False)) == [200, 200, 429]
    assert asyncio.run(play(is_proxied=True)) == [200, 200, 200]


def test_a_flood_of_wrong_tokens_is_refused_and_right_ones_are_not(service: MemoryService) -> None:
    service.limits = limits_of(["user_rate=1", "user_burst=3"])
    app = create_app(service)  # type: ignore[arg-type]
    with TestClient(app, base_url="http://localhost") as client:
        wrong = {"Authorization": "Bearer tm_wrong"}
        found = [client.get(f"{V1}/jobs", headers=wrong).status_code for _ in range(5)]
        assert found == [401, 401, 401, 429, 429]
    ours = TestClient(by_us(app), base_url="http://localhost")
    assert [ours.get(f"{V1}/jobs").status_code for _ in range(5)] == [200] * 5


def test_a_flood_of_wrong_tokens_asks_the_store_no_more_often_than_the_limits_say(
    service: MemoryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was right before is looked up all the while; from another address every one is."""
    looked_up = Counter[str]()

    def token(digest: str, found: Any = service.kept.token) -> Any:
        looked_up[digest] += 1
        return found(digest)

    monkeypatch.setattr(service.kept, "token", token)
    limits = replace(Limits(), user_rate=1, user_burst=3)
    now_us = 0
    callers = CallerLookup(service.accounts, Sessions(), limits, clock=lambda: now_us)

    async def user(shown: str, address: str = "192.0.2.1") -> str:
        headers = [(b"authorization", f"Bearer {shown}".encode())]
        scope = {"type": "http", "path": "/healthz", "headers": headers, "client": (address, 1)}
        try:
            caller = await callers.of(scope)
        except TooMany:
            return "refused"
        return "unknown" if caller is None else caller.user

    async def play() -> None:
        nonlocal now_us
        _, right = await service.accounts.create_token("ada", "user")
        _, unused = await service.accounts.create_token("bob", "user")
        assert await user(right) == "ada"
        before = looked_up.total()
        answers = Counter([await user(f"tm_wrong{number}") for number in range(20)])
        assert answers == {"unknown": 3, "refused": 17}
        assert looked_up.total() - before == 3
        assert [await user(right), await user(unused)] == ["ada", "refused"]
        assert await user(unused, "192.0.2.2") == "bob"
        now_us = 1_000_000
        assert [await user("tm_wrong"), await user("tm_wrong")] == ["unknown", "refused"]

    asyncio.run(play())


def test_a_part_of_all_connections_is_for_those_who_have_few() -> None:
    opened = OpenConnections(
        replace(Limits(), connections=16, user_connections=15), is_proxied=False
    )
    ada, bob = (opened.origin(Peer(1, uid, uid), NOWHERE) for uid in (64_001, 64_002))
    for count in range(14):
        assert opened.refusal(ada, count, is_tcp=False) is None
        opened.add(ada, 1)
    refusal = opened.refusal(ada, 14, is_tcp=False)
    assert refusal is not None
    assert refusal.status == 503
    assert opened.refusal(bob, 14, is_tcp=False) is None
    assert opened.origin(Peer(1, 0, 0), NOWHERE) is None, "root is counted with all only"
    assert opened.refusal(None, 15, is_tcp=False) is None
    opened.add(ada, 1)
    own = opened.refusal(ada, 3, is_tcp=False)
    assert own is not None
    assert (own.status, own.code) == (429, "over_user_limit")


class HandedOver(asyncio.Protocol):
    """What a library for WebSockets has the server hand a connection to."""

    def __init__(self, **given: Any) -> None: ...

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.close()


def test_a_connection_that_wants_to_be_a_websocket_is_one_like_others() -> None:
    """It must not be counted for ever, though a library for those is installed."""
    limits = replace(Limits(), user_connections=3)
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body"})

    async def act() -> None:
        config = uvicorn.Config(
            app, http=bounded_protocol(limits), ws=HandedOver, lifespan="off", log_config=None
        )
        config.load()
        state = uvicorn.server.ServerState()

        def protocol() -> asyncio.Protocol:
            return config.http_protocol_class(config=config, server_state=state, app_state={})  # type: ignore[call-arg, return-value]

        loop = asyncio.get_running_loop()
        server = await loop.create_server(protocol, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        lines = "".join(f"{name}: {value}\r\n" for name, value in upgrade.items())
        for _ in range(5):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(f"GET / HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            writer.close()
            await writer.wait_closed()
            while state.connections:  # until the server knows it too
                await asyncio.sleep(0)
        server.close()

    asyncio.run(act())


def test_connections_of_a_proxy_are_nobodys_and_leave_the_reserve() -> None:
    limits = replace(Limits(), connections=16, user_connections=1)
    opened = OpenConnections(limits, is_proxied=True)
    assert opened.origin(None, ("192.0.2.1", 4242)) is None
    assert opened.refusal(None, 13, is_tcp=True) is None
    assert opened.refusal(None, 14, is_tcp=True) is not None


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_connections_within_the_machine_are_their_users(
    family: socket.AddressFamily, host: str
) -> None:
    opened = OpenConnections(Limits(), is_proxied=False)
    with (
        socket.create_server((host, 0), family=family) as listener,
        socket.create_connection(listener.getsockname()[:2]) as client,
    ):
        ends = client.getsockname()[:2], listener.getsockname()[:2]
        assert opened.origin(None, *ends) == f"the Unix user {os.getuid()}"
    elsewhere = ("192.0.2.1", 4242)
    assert opened.origin(None, elsewhere, ends[1]) == "the address 192.0.2.1"


def test_addresses_of_one_ipv6_network_are_one() -> None:
    first, second = (origin_of(None, f"2001:db8::{n}", is_proxied=False) for n in (1, 2))
    assert first == second == "the address 2001:db8::/64"


def test_requests_beyond_the_limit_are_refused_until_others_are_done() -> None:
    async def play() -> None:
        free, done = asyncio.Event(), []

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            await free.wait()
            done.append(scope["path"])

        limits = replace(Limits(), followers=2)
        app = RequestLimits(slow, limits)
        said: list[dict[str, Any]] = []

        async def send(message: Any) -> None:
            said.append(message)

        scope = {"type": "http", "method": "GET", "path": "/api/v1/changes", "query_string": b""}
        two = [asyncio.create_task(app(scope, None, send)) for _ in range(2)]  # type: ignore[arg-type]
        await asyncio.sleep(0)
        await app(scope, None, send)  # type: ignore[arg-type]
        assert said[0]["status"] == 429
        assert "(the limit followers)" in json.loads(said[1]["body"])["error"]["sentence"]
        free.set()
        await asyncio.gather(*two)
        await app(scope, None, send)  # type: ignore[arg-type]
        assert len(done) == 3

    asyncio.run(play())
