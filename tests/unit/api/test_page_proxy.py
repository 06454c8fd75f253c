"""Browsers are passed on to the process of the pages: what goes on, what does not, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from tests.api_service import MemoryService
from trainmaster.api import access, page_proxy
from trainmaster.api.app import create_app
from trainmaster.api.caller import Caller, Role
from trainmaster.api.connections import bounded_protocol
from trainmaster.api.page_process import PagesAway
from trainmaster.api.sessions import Sessions, name_in
from trainmaster.model.units import SECOND

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nSet-Cookie: a=b\r\nServer: x\r\n\r\nhello"
AGREES = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
    b"Sec-WebSocket-Accept: yes\r\nSet-Cookie: a=b\r\n\r\nfirst"
)
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": "k",
    "Sec-WebSocket-Version": "13",
}
SOCKET = "/_nicegui_ws/socket.io/?transport=websocket"


class FakePages:
    """A process of the pages that notes what it is asked, and gives one answer."""

    def __init__(self, place: Path) -> None:
        self.place = str(place)
        self.answer = HELLO
        self.asked: list[bytes] = []
        self.is_away = False
        self.refused = 0
        self.pid: int | None = 7
        self.ended: list[int | None] = []
        self.echoes = False
        self.closed = asyncio.Event()

    async def connect(self, make: Callable[[], Any]) -> Any:
        if self.is_away:
            self.refused += 1
            raise PagesAway("The page is starting.")
        return await asyncio.get_running_loop().create_unix_connection(make, self.place)

    def end_stuck(self, pid: int | None) -> None:
        self.ended.append(pid)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        if b"chunked" in asked:
            asked += await reader.readuntil(b"0\r\n\r\n")
        self.asked.append(asked)
        writer.write(self.answer)
        while self.echoes and (piece := await reader.read(1000)):
            writer.write(piece)
        writer.close()
        self.closed.set()


class Front:
    """A manager on a port, and a browser that is logged in."""

    def __init__(self, service: MemoryService, pages: FakePages, port: int, cookie: str) -> None:
        self.service, self.pages, self.port = service, pages, port
        self.cookie = f"trainmaster_{port}={cookie}"
        self.name = name_in(cookie)
        self.state: uvicorn.server.ServerState

    async def connect(
        self, path: str = "/", method: str = "GET", body: str = "", **headers: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        told = {"Host": f"127.0.0.1:{self.port}", "Cookie": self.cookie, **headers}
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in told.items())
        writer.write(f"{method} {path} HTTP/1.1\r\n{lines}\r\n{body}".encode())
        return reader, writer

    async def ask(
        self, path: str = "/", method: str = "GET", body: str = "", **headers: str
    ) -> str:
        """The whole answer."""
        headers["Connection"] = f"close, {headers.get('Connection', '')}"
        reader, writer = await self.connect(path, method, body, **headers)
        said = (await reader.read()).decode()
        writer.close()
        return said


@contextlib.asynccontextmanager
async def fronted(service: MemoryService, folder: Path) -> AsyncIterator[Front]:
    pages = FakePages(folder / "p.sock")
    served = await asyncio.start_unix_server(pages.serve, pages.place)
    sessions = Sessions()
    app = create_app(service, sessions=sessions, pages=pages)  # type: ignore[arg-type]
    config = uvicorn.Config(
        app, http=bounded_protocol(service.limits), ws="none", lifespan="off", log_config=None
    )
    config.load()
    state = uvicorn.server.ServerState()

    def protocol() -> asyncio.Protocol:
        return config.http_protocol_class(config=config, server_state=state, app_state={})  # type: ignore[call-arg, return-value]

    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    _, made = await service.accounts.create_token("ada", "user")
    origin = await service.accounts.token_of(made)
    assert origin is not None
    cookie = sessions.begin_as(
        Caller("ada", Role.USER, None, "token", token=origin.id), os.getuid()
    )
    front = Front(service, pages, server.sockets[0].getsockname()[1], cookie)
    front.state = state
    try:
        yield front
    finally:
        server.close()
        served.close()
        for each in list(state.connections):
            each.shutdown()
        while state.connections:
            await asyncio.sleep(0.001)


def play(
    service: MemoryService, folder: Path, act: Callable[[Front], Coroutine[Any, Any, None]]
) -> None:
    async def played() -> None:
        async with asyncio.timeout(30), fronted(service, folder) as front:
            await act(front)

    asyncio.run(played())


def test_a_page_is_asked_for_by_the_name_of_the_session_and_by_nothing_of_the_browser(
    service: MemoryService, tmp_path: Path
) -> None:
    async def act(front: Front) -> None:
        said = await front.ask(
            "/jobs?state=running",
            Trainmaster_Session="another",
            X_Forwarded_Prefix="//evil.example",
            Accept_Language="de",
            Forwarded="for=1",
        )
        assert said.startswith("HTTP/1.1 200 ")
        assert said.endswith("\r\n\r\nhello")
        head = front.pages.asked[0].decode().lower()
        assert head.startswith("get /jobs?state=running http/1.1\r\n")
        assert f"trainmaster-session: {front.name.lower()}\r\n" in head
        assert "accept-language: de" in head
        for other in ("cookie", "another", "forwarded", "evil"):
            assert other not in head
        assert "set-cookie" not in said
        assert "cache-control: no-store" in said
        assert "frame-ancestors 'none'" in said

    play(service, tmp_path, act)


def test_only_files_of_nicegui_are_kept_by_browsers(service: MemoryService, tmp_path: Path) -> None:
    async def act(front: Front) -> None:
        front.pages.answer = HELLO.replace(b"Server: x", b"Cache-Control: public, immutable")
        assert "private, max-age=" in await front.ask("/_nicegui/3.18.0/static/nicegui.js")
        assert "no-store" in await front.ask("/jobs")

    play(service, tmp_path, act)


def test_without_a_session_there_is_a_login_page_that_leads_on(
    service: MemoryService, tmp_path: Path
) -> None:
    async def act(front: Front) -> None:
        for cookie in ("", "trainmaster_1=x", front.cookie[:-1], front.cookie.partition(".")[0]):
            said = await front.ask("/jobs?text=%22%3E", Cookie=cookie)
            assert said.startswith("HTTP/1.1 401 ")
            assert 'name="then" type="hidden" value="/jobs?text=%22%3E"' in said
        assert front.pages.asked == []

    play(service, tmp_path, act)


def test_a_token_begins_a_session_and_a_wrong_one_does_not(
    service: MemoryService, tmp_path: Path
) -> None:
    _, token = asyncio.run(service.accounts.create_token("eve", "viewer"))

    async def act(front: Front) -> None:
        async def log_in(token: str, then: str, **headers: str) -> str:
            body = f"token={token}&then={then}"
            form = {"Content_Type": "application/x-www-form-urlencoded", **headers}
            return await front.ask(
                "/login", "POST", body, Content_Length=str(len(body)), Cookie="", **form
            )

        begun = await log_in(token, "%2Fjobs%3Fuser%3Deve")
        assert begun.startswith("HTTP/1.1 303 ")
        assert "location: /jobs?user=eve\r\n" in begun
        cookie = begun.partition("set-cookie: ")[2].partition(";")[0]
        assert (await front.ask("/", Cookie=cookie)).endswith("hello")
        assert '"role":"viewer"' in await front.ask("/api/v1/caller", Cookie=cookie)
        for then in ("//evil.example", "https://evil.example", "/%5Cevil.example", "%0d%0aX:1", ""):
            assert "location: /\r\n" in await log_in(token, then)
        wrong = await log_in("tm_wrong", "/jobs")
        assert wrong.startswith("HTTP/1.1 401 ")
        assert "This token is not valid" in wrong
        assert "set-cookie" not in wrong
        other = await log_in(token, "/", Origin="http://evil.example")
        assert other.startswith("HTTP/1.1 403 ")
        assert "set-cookie" not in other
        gone = await front.ask("/logout", "POST", Content_Length="0", Cookie=cookie)
        assert gone.startswith("HTTP/1.1 303 ")
        assert (await front.ask("/", Cookie=cookie)).startswith("HTTP/1.1 401 ")

    play(service, tmp_path, act)


def test_wrong_tokens_are_limited_and_a_right_one_is_not_looked_up_among_them(
    service: MemoryService, tmp_path: Path
) -> None:
    async def act(front: Front) -> None:
        body = "token=tm_wrong"
        form = {"Content_Type": "application/x-www-form-urlencoded", "Cookie": ""}
        said = [
            (await front.ask("/login", "POST", body, Content_Length=str(len(body)), **form))[9:12]
            for _ in range(30)
        ]
        assert said[0] == "401"
        assert said[-1] == "429"

    service.limits = replace(service.limits, user_rate=1, user_burst=5)
    play(service, tmp_path, act)


def test_paths_that_may_be_read_in_two_ways_are_not_passed_on(
    service: MemoryService, tmp_path: Path
) -> None:
    async def act(front: Front) -> None:
        for path in ("/a/../b", "/_nicegui/%2e%2e/x", "/a%5Cb", "/a%01", "/a/./b"):
            assert (await front.ask(path)).startswith("HTTP/1.1 400 "), path
        assert (await front.ask("/a%0d%0aX:1")).startswith("HTTP/1.1 404 ")
        for path in ("/api/v1/nothing", "/API%2Fv1", "/healthz"):
            await front.ask(path)
        assert [each.split()[1] for each in front.pages.asked] == [b"/API%2Fv1"]
        assert (await front.ask("http://evil.example/")).startswith("HTTP/1.1 4")

    play(service, tmp_path, act)


def test_a_body_is_framed_anew_and_has_a_limit(service: MemoryService, tmp_path: Path) -> None:
    async def act(front: Front) -> None:
        path = "/_nicegui/client/1/upload/2"
        chunked = {"Transfer_Encoding": "chunked"}
        two = "3\r\nabc\r\n0\r\n\r\n"
        assert (await front.ask(path, "POST", two, **chunked)).endswith("hello")
        assert front.pages.asked[0].endswith(b"\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
        for bad in (
            {"Transfer_Encoding": "chunked, identity"},
            {"Transfer_Encoding": "xchunked"},
            {"Content_Length": "3, 4"},
        ):
            assert (await front.ask(path, "POST", two, **bad))[9:10] in "45"
        both = await front.ask(path, "POST", two, Content_Length="1", **chunked)
        assert not both.endswith("hello") or front.pages.asked[-1].count(b"POST") == 1
        large = await front.ask(path, "POST", "7d1\r\n" + "x" * 2001 + "\r\n0\r\n\r\n", **chunked)
        assert "(the limit body_bytes)" in large
        assert (await front.ask("/jobs", "POST", "", Content_Length="0")).startswith("HTTP/1.1 405")

    service.limits = replace(service.limits, body_bytes=2000)
    play(service, tmp_path, act)


def test_a_websocket_goes_both_ways_is_counted_and_is_uncounted_when_it_ends(
    service: MemoryService, tmp_path: Path
) -> None:
    async def act(front: Front) -> None:
        front.pages.answer, front.pages.echoes = AGREES, True
        for _ in range(3):
            reader, writer = await front.connect(SOCKET, **UPGRADE)
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            assert head.startswith("HTTP/1.1 101 ")
            assert "sec-websocket-accept: yes" in head
            assert "cookie" not in head
            assert await reader.readexactly(5) == b"first"
            for piece in (b"GET / HTTP/1.1\r\n\r\n", bytes(1 << 20)):
                writer.write(piece)
                assert await reader.readexactly(len(piece)) == piece
            assert len(front.state.connections) == 1
            second = (await front.ask(SOCKET, **UPGRADE)).partition("\r\n")[0]
            assert second.startswith("HTTP/1.1 429 ")
            writer.close()
            await front.pages.closed.wait()
            front.pages.closed.clear()
            while front.state.connections or front.state.tasks:
                await asyncio.sleep(0.001)

    service.limits = replace(service.limits, user_dashboards=1)
    play(service, tmp_path, act)


def test_a_websocket_ends_with_the_page_and_with_the_manager(
    service: MemoryService, tmp_path: Path
) -> None:
    async def act(front: Front) -> None:
        front.pages.answer = AGREES
        reader, _ = await front.connect(SOCKET, **UPGRADE)
        assert (await reader.read()).endswith(b"first")
        front.pages.echoes = True
        reader, _ = await front.connect(SOCKET, **UPGRADE)
        await reader.readuntil(b"first")
        for each in list(front.state.connections):
            each.shutdown()
        assert await reader.read() == b""

    play(service, tmp_path, act)


def test_a_websocket_ends_soon_after_its_token_is_revoked(
    service: MemoryService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "RECHECK_S", 0.01)

    async def act(front: Front) -> None:
        front.pages.answer, front.pages.echoes = AGREES, True
        reader, _ = await front.connect(SOCKET, **UPGRADE)
        await reader.readuntil(b"first")
        await asyncio.sleep(0.05)
        assert not reader.at_eof()
        for row in await service.accounts.tokens():
            await service.accounts.revoke_token(row.id)
        assert await reader.read() == b""

    play(service, tmp_path, act)


def test_another_site_opens_no_websocket_and_a_refused_one_is_no_pipe(
    service: MemoryService, tmp_path: Path
) -> None:
    async def act(front: Front) -> None:
        front.pages.answer = AGREES
        for foreign in ("http://evil.example", "null", f"http://127.0.0.1:{front.port + 1}"):
            said = await front.ask(SOCKET, **UPGRADE, Origin=foreign)
            assert said.startswith("HTTP/1.1 403 "), foreign
        assert (await front.ask(SOCKET, **{**UPGRADE, "Host": "evil"})).startswith("HTTP/1.1 400 ")
        assert (await front.ask(SOCKET, **{**UPGRADE, "Cookie": ""})).startswith("HTTP/1.1 401 ")
        assert front.pages.asked == []
        front.pages.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
        own = {"Origin": f"http://127.0.0.1:{front.port}"}
        assert (await front.ask(SOCKET, **UPGRADE, **own)).startswith("HTTP/1.1 400 ")
        assert (await front.ask(SOCKET)).startswith("HTTP/1.1 400 ")

    play(service, tmp_path, act)


def test_while_there_are_no_pages_one_sentence_says_so(
    service: MemoryService, tmp_path: Path
) -> None:
    async def act(front: Front) -> None:
        front.pages.is_away = True
        said = await front.ask("/")
        assert said.startswith("HTTP/1.1 503 ")
        assert "The page is starting." in said
        assert 'http-equiv="refresh" content="1"' in said
        front.pages.is_away = False
        front.pages.answer = b""
        assert "The page has ended while it answered" in await front.ask("/")
        service.store_name = ""
        assert "This manager is a standby" in await front.ask("/")

    play(service, tmp_path, act)


def test_files_of_pages_leave_a_user_its_requests(service: MemoryService, tmp_path: Path) -> None:
    async def act(front: Front) -> None:
        said = [(await front.ask("/_nicegui/x.js"))[9:12] for _ in range(40)]
        assert said[:10] == ["200"] * 10
        assert "429" in said
        assert (await front.ask("/api/v1/jobs")).startswith("HTTP/1.1 200 ")

    service.limits = replace(service.limits, user_rate=1, user_burst=10)
    play(service, tmp_path, act)


def test_a_file_is_asked_for_again_until_the_process_is_back(
    service: MemoryService, tmp_path: Path
) -> None:
    """A browser asks once for the files of a page: where one is missing, the page stays blank."""

    async def act(front: Front) -> None:
        front.pages.answer = b""
        asking = asyncio.create_task(front.ask("/_nicegui/x.js"))
        while not front.pages.asked:
            await asyncio.sleep(0.01)
        front.pages.is_away = True
        while not front.pages.refused:
            await asyncio.sleep(0.01)
        front.pages.is_away, front.pages.answer = False, HELLO
        assert (await asking).startswith("HTTP/1.1 200 ")

    play(service, tmp_path, act)


def test_a_file_is_not_asked_for_again_for_a_browser_that_is_gone(
    service: MemoryService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_proxy, "FILE_WAIT_S", 1000.0)

    async def act(front: Front) -> None:
        front.pages.is_away = True
        _, writer = await front.connect("/_nicegui/x.js")
        while front.pages.refused < 2:
            await asyncio.sleep(0.01)
        writer.close()
        while front.state.tasks:
            await asyncio.sleep(0.01)

    play(service, tmp_path, act)


def test_a_process_that_answers_nobody_is_ended(
    service: MemoryService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_proxy, "ANSWER_S", 0.05)

    async def act(front: Front) -> None:
        front.pages.answer, front.pages.echoes = b"", True
        for path, headers in (("/", {}), ("/_nicegui/x.js", {}), (SOCKET, UPGRADE)):
            said = await front.ask(path, **headers)
            assert said.startswith("HTTP/1.1 504 ")
            assert "did not answer in time: it is started again" in said
        assert front.pages.ended == [7, 7, 7]

    play(service, tmp_path, act)


def test_a_browser_that_sends_slowly_ends_no_process(
    service: MemoryService, tmp_path: Path
) -> None:
    async def act(front: Front) -> None:
        reader, _ = await front.connect(
            "/_nicegui/client/1/upload/2", "POST", "3\r\nab", Transfer_Encoding="chunked"
        )
        assert b" 504 " in await reader.readline()
        assert front.pages.ended == []

    service.limits = replace(service.limits, body_deadline=SECOND // 10)
    play(service, tmp_path, act)
