"""Passes browsers on to the process of the pages, once it is known who looks.

A request comes here through the same checks as one for the API: host, site, session, role, limits, audit.
Only headers that are named here go on in either direction, and each request is written again with a
connection of its own, so that no two ends can disagree about where it stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from html import escape
from urllib.parse import quote, urlsplit

import h11
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from trainmaster.api.access import SOCKETS
from trainmaster.api.caller import Caller
from trainmaster.api.headers import SESSION_HEADER
from trainmaster.api.identity import cookie_in
from trainmaster.api.login_page import sheet
from trainmaster.api.page_process import PageProcess, PagesAway
from trainmaster.api.responses import error
from trainmaster.api.sessions import name_in
from trainmaster.api.upgrade import SCOPE as UPGRADE
from trainmaster.api.upgrade import FarEnd, TakeOver
from trainmaster.daemon.daemon import Daemon
from trainmaster.model.units import SECOND
from trainmaster.text.formatting import size

ASKED = frozenset(
    b"accept accept-encoding accept-language content-type if-modified-since if-none-match range"
    b" sec-fetch-dest user-agent".split()
)
ASKED_TO_UPGRADE = ASKED | frozenset(
    b"sec-websocket-extensions sec-websocket-key sec-websocket-protocol sec-websocket-version".split()
)
ANSWERED = frozenset(
    b"accept-ranges cache-control content-disposition content-encoding content-length content-range"
    b" content-type etag last-modified location retry-after vary".split()
)
UPGRADED = frozenset(
    b"sec-websocket-accept sec-websocket-extensions sec-websocket-protocol".split()
)
UPGRADES = [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
FILES = b"/_nicegui/"
"""The paths of scripts and styles, whose names have the version of NiceGUI: browsers may keep them."""
POLICY = "; ".join(
    (
        "default-src 'self'",
        # NiceGUI builds each page by a script inside it, and its Vue compiles templates in the browser.
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "frame-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
}
KEPT = b"private, max-age=31536000, immutable"
PIECE = 1 << 16
ANSWER_S = 60.0
"""How long a page may take to begin its answer."""
FILE_WAIT_S = 8.0
"""How long a file of a page is asked for again where the process of the pages is away."""
AGAIN_S = 0.2
NO_PAGE = "This manager was started without its page (`trainmaster up --no-page`)."
ENDED = "The page has ended while it answered: it is started again."
STANDBY = "This manager is a standby: another one leads. Its page is at the address of that one."
NOT_A_SESSION = (
    "Pages are for browsers that are logged in: `trainmaster token link` prints a link that opens"
    " them."
)


class _Stuck(Exception):
    """The process of the pages lives, and answers nobody."""


class PageProxy:
    """The application behind all paths that are not the manager's own."""

    def __init__(self, manager: Daemon, pages: PageProcess | None) -> None:
        self._manager = manager
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller: Caller = scope["state"]["caller"]
        cookie = cookie_in(Headers(scope=scope), scope)
        answer: Response | None
        if not self._manager.store_name:
            answer = notice(STANDBY)
        elif caller.via != "link" or cookie is None:
            answer = error(403, NOT_A_SESSION, code="not_allowed")
        elif self._pages is None:
            answer = notice(NO_PAGE, 404)
        elif not _is_plain(scope["path"]):
            answer = error(400, "This path is not passed on.")
        else:
            answer = await self._passed(self._pages, name_in(cookie), scope, receive, send)
        if answer is not None:
            await answer(scope, receive, send)

    async def _passed(
        self, pages: PageProcess, session: str, scope: Scope, receive: Receive, send: Send
    ) -> Response | None:
        """None: it is answered.

        Files are asked for again for a while, since a page that misses one stays blank in the browser.
        """
        asked = _request(scope, session)
        is_file = asked.method == b"GET" and asked.target.startswith(FILES)
        latest = time.monotonic() + (FILE_WAIT_S if is_file else 0.0)
        while True:
            process = pages.pid
            try:
                if not scope["path"].startswith(SOCKETS):
                    return await self._exchange(pages, asked, receive, send)
                if UPGRADE not in scope:
                    return error(400, "This path is for WebSockets.")
                return await _upgraded(pages, asked, scope[UPGRADE])
            except _Stuck:
                pages.end_stuck(process)
                return notice("The page did not answer in time: it is started again.", 504)
            except TimeoutError:
                return notice("The request did not come in time.", 504)
            except (PagesAway, OSError, h11.RemoteProtocolError) as away:
                if time.monotonic() >= latest:
                    return notice(str(away) if isinstance(away, PagesAway) else ENDED, again_s=1)
            if await _is_gone(receive, AGAIN_S):
                return None

    async def _exchange(
        self, pages: PageProcess, asked: h11.Request, receive: Receive, send: Send
    ) -> Response | None:
        """One request and its answer, by a connection of its own."""
        reader = asyncio.StreamReader(PIECE)
        transport, protocol = await pages.connect(lambda: asyncio.StreamReaderProtocol(reader))
        writer = asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())
        far, is_begun = h11.Connection(h11.CLIENT), False
        try:
            async with asyncio.timeout(self._manager.limits.body_deadline / SECOND):
                refusal = await self._send(far, asked, writer, receive)
            if refusal is not None:
                return refusal
            async with _answered_soon():
                event = await _next(far, reader)
            while not isinstance(event, h11.EndOfMessage):
                if isinstance(event, h11.Response):
                    is_begun = True
                    head = {"status": event.status_code, "headers": _answered(asked, event)}
                    await send({"type": "http.response.start", **head})
                elif isinstance(event, h11.Data):
                    piece = {"body": bytes(event.data), "more_body": True}
                    await send({"type": "http.response.body", **piece})
                event = await _next(far, reader)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (OSError, h11.RemoteProtocolError):
            if not is_begun:
                raise
        finally:
            transport.abort()
        return None

    async def _send(
        self,
        far: h11.Connection,
        asked: h11.Request,
        writer: asyncio.StreamWriter,
        receive: Receive,
    ) -> Response | None:
        """Pass the request on with its body; or why not."""
        writer.write(far.send(asked) or b"")
        has_more, size_now = asked.method == b"POST", 0
        while has_more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionResetError
            piece, has_more = message.get("body", b""), message.get("more_body", False)
            size_now += len(piece)
            if size_now > self._manager.limits.body_bytes:
                most = size(self._manager.limits.body_bytes)
                return error(413, f"The body is larger than {most} (the limit body_bytes).")
            writer.write(far.send(h11.Data(piece)) or b"")
            await writer.drain()
        writer.write(far.send(h11.EndOfMessage()) or b"")
        await writer.drain()
        return None


@contextlib.asynccontextmanager
async def _answered_soon() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(ANSWER_S):
            yield
    except TimeoutError:
        raise _Stuck from None


async def _is_gone(receive: Receive, within_s: float) -> bool:
    """Whether the browser of a request without a body gives up before that."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while (await receive())["type"] != "http.disconnect":
                pass
            return True
    return False


async def _next(far: h11.Connection, reader: asyncio.StreamReader) -> h11.Event:
    while not isinstance(event := far.next_event(), h11.Event):
        far.receive_data(await reader.read(PIECE))
    return event


async def _upgraded(pages: PageProcess, asked: h11.Request, take_over: TakeOver) -> Response | None:
    """Two connections as one, until either ends."""
    transport, far_end = await pages.connect(FarEnd)
    far = h11.Connection(h11.CLIENT)
    try:
        transport.write(far.send(asked) or b"")
        async with _answered_soon():
            far.receive_data(await far_end.head)
        event = far.next_event()
        if not isinstance(event, h11.InformationalResponse) or event.status_code != 101:
            return error(400, "The page does not take this WebSocket.")
        kept = [(name, value) for name, value in event.headers if name in UPGRADED]
        head = [name + b": " + value for name, value in (*kept, *UPGRADES)]
        far_end.join(
            take_over, b"\r\n".join((b"HTTP/1.1 101 Switching Protocols", *head, b"", b""))
        )
        await far_end.ended
    finally:
        far_end.end()
    return None


def _request(scope: Scope, session: str) -> h11.Request:
    """What the process of the pages is asked."""
    is_upgrade = scope["path"].startswith(SOCKETS)
    allowed = ASKED_TO_UPGRADE if is_upgrade else ASKED
    kept = [(name, value) for name, value in scope["headers"] if name in allowed]
    framing = UPGRADES if is_upgrade else [(b"connection", b"close")]
    if scope["method"] == "POST":
        framing = [*framing, (b"transfer-encoding", b"chunked")]
    ours = [(b"host", b"localhost"), (SESSION_HEADER.encode(), session.encode()), *framing]
    target: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    return h11.Request(method=scope["method"], target=target, headers=[*ours, *kept])


def _answered(asked: h11.Request, event: h11.Response) -> list[tuple[bytes, bytes]]:
    """What the browser is told."""
    kept = {name: value for name, value in event.headers if name in ANSWERED}
    is_file = asked.target.startswith(FILES) and b"immutable" in kept.get(b"cache-control", b"")
    kept[b"cache-control"] = KEPT if is_file else b"no-store"
    if b"location" in kept:  # of this site, whatever it was called there
        parts = urlsplit(kept[b"location"])
        kept[b"location"] = (
            b"/" + parts.path.lstrip(b"/") + (b"?" + parts.query if parts.query else b"")
        )
    return [*kept.items(), *HEADERS.items()]


def _is_plain(path: str) -> bool:
    """Whether all who read it mean the same by it."""
    is_odd = "\\" in path or any(ord(each) < 0x20 or each == "\x7f" for each in path)
    return not is_odd and not {".", ".."}.intersection(path.split("/"))


def notice(said: str, status: int = 503, again_s: int = 5) -> Response:
    """A page of one sentence, which loads itself again."""
    return sheet(f"<p>{escape(said)}</p>", status=status, again_s=again_s)
