"""Connections of the API: how many there may be, and how long the head of a request may take to come."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from trainmaster.api.limit_key import of_user, tcp_origin
from trainmaster.api.peer import ROOT, FromPeer, Peer, ourselves, peer_of
from trainmaster.api.request_limits import OVER, RESERVE, SOON
from trainmaster.api.responses import LATER, error
from trainmaster.api.session_socket import OnlySessions
from trainmaster.api.tcp_peer import NOWHERE, End
from trainmaster.api.upgrade import SCOPE as UPGRADE
from trainmaster.config.limits import Limits
from trainmaster.model.units import SECOND

FEW_CONNECTIONS = 4
"""Who has fewer connections than that may take the last ones."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer before any request."""

    status: int
    sentence: str
    code: str = ""


class OpenConnections:
    """How many connections are open from where; an eighth of all is for those who have few, and operators."""

    def __init__(self, limits: Limits, *, is_proxied: bool) -> None:
        self._limits = limits
        self._is_proxied = is_proxied
        self._of_one: Counter[str] = Counter()

    def origin(self, peer: Peer | None, client: End, server: End = NOWHERE) -> str | None:
        """Where a connection is counted; None: with all others only."""
        if peer is None:
            return tcp_origin(client, server, is_proxied=self._is_proxied)
        return None if peer.uid in (ourselves().uid, ROOT) else of_user(peer.uid)

    def refusal(self, origin: str | None, opened: int, *, is_tcp: bool) -> Refusal | None:
        """Why one more is too many, where so many others are open."""
        limits, own = self._limits, 0 if origin is None else self._of_one[origin]
        if own >= limits.user_connections:
            said = f"{own:,} connections of {origin} are open already (the limit user_connections)"
            return Refusal(429, f"{said}: close some.", OVER)
        has_many = own >= FEW_CONNECTIONS or (origin is None and is_tcp)
        if opened < limits.connections - (limits.connections // RESERVE if has_many else 0):
            return None
        said = f"{opened:,} connections are open already (the limit connections)"
        return Refusal(503, f"{said}: try again later.")

    def add(self, origin: str | None, sign: int) -> None:
        if origin is not None:
            self._of_one[origin] += sign
            if not self._of_one[origin]:
                del self._of_one[origin]


def bounded_protocol(
    limits: Limits, *, is_proxied: bool = False, only_sessions: bool = False
) -> type[H11Protocol]:
    """The HTTP protocol of uvicorn, within these limits; or that of the page process's socket.

    A connection that is upgraded stays with it, so that it is counted until its end.
    """
    opened = OpenConnections(limits, is_proxied=is_proxied)

    class BoundedProtocol(H11Protocol):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            self._deadline: asyncio.TimerHandle | None = None
            """Runs while a request is awaited."""
            self._origin: str | None = None
            """Where it is counted."""
            self._other: asyncio.Transport | None = None
            """Where all goes that comes, once it is upgraded."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            peer, origin = None, None
            if only_sessions:
                self.app = OnlySessions(self.app)
            else:
                peer = peer_of(transport)
                if peer is not None:
                    self.app = FromPeer(self.app, peer)
                origin = opened.origin(peer, self.client or NOWHERE, self.server or NOWHERE)
            is_tcp = peer is None and not only_sessions
            refusal = opened.refusal(origin, len(self.connections) - 1, is_tcp=is_tcp)
            if refusal is not None:
                self._refuse(refusal)
                return
            self._origin = origin
            opened.add(origin, 1)
            self._await_head()

        def data_received(self, data: bytes) -> None:
            if self._other is not None:
                self._other.write(data)
                return
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._stop_waiting()
            elif self._deadline is None:
                self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            opened.add(self._origin, -1)
            self._origin = None
            if self._other is not None:
                self._other.close()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            if self._other is not None:
                self._other.pause_reading()

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._other is not None:
                self._other.resume_reading()

        def shutdown(self) -> None:
            if self._other is None:
                super().shutdown()
            else:
                self.transport.close()

        def _should_upgrade(self) -> bool:
            """The application is asked as for any request, and takes the connection over if it agrees."""
            if self._get_upgrade() is not None:
                cast(dict[str, Any], self.scope)[UPGRADE] = self._upgrade
            return False

        def _upgrade(self, other: asyncio.Transport, answer: bytes) -> asyncio.Transport:
            """Answer so, and pass on what comes from now on, as it is."""
            self.cycle.response_started = self.cycle.response_complete = True
            self._other = other
            self.transport.write(answer)
            other.write(self.conn.trailing_data[0])
            self.flow.resume_reading()
            return self.transport

        def _await_head(self) -> None:
            wait_s = limits.header_deadline / SECOND
            self._deadline = self.loop.call_later(wait_s, self._too_slow, wait_s)

        def _stop_waiting(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _too_slow(self, wait_s: float) -> None:
            said = (
                f"No request came within {wait_s:g} s (the limit header_deadline): send it again."
            )
            self._refuse(Refusal(408, said))

        def _refuse(self, refusal: Refusal) -> None:
            status = refusal.status
            headers = SOON if status == 429 else LATER if status == 503 else {}
            answer = error(status, refusal.sentence, headers, refusal.code)
            head = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()]
            head += [name + b": " + value for name, value in answer.raw_headers]
            head += [b"connection: close", b"", bytes(answer.body)]
            if not self.transport.is_closing():
                self.transport.write(b"\r\n".join(head))
                self.transport.close()

    return BoundedProtocol
