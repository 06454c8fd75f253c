"""Connections of the API: how many there may be, and how long the head of a request may take to come."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from trainmaster.api.peer import FromPeer, peer_of
from trainmaster.api.responses import error
from trainmaster.config.limits import Limits
from trainmaster.model.units import SECOND


def bounded_protocol(limits: Limits) -> type[H11Protocol]:
    """The HTTP protocol of uvicorn, within these limits."""

    class BoundedProtocol(H11Protocol):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            self._deadline: asyncio.TimerHandle | None = None
            """Runs while a request is awaited."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            peer = peer_of(transport)
            if peer is not None:
                self.app = FromPeer(self.app, peer)
            if len(self.connections) > limits.connections:
                most = f"{limits.connections:,} connections are open already"
                self._refuse(503, f"{most} (the limit connections): try again later.")
            else:
                self._await_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._stop_waiting()
            elif self._deadline is None:
                self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _await_head(self) -> None:
            wait_s = limits.header_deadline / SECOND
            self._deadline = self.loop.call_later(wait_s, self._too_slow, wait_s)

        def _stop_waiting(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _too_slow(self, wait_s: float) -> None:
            self._refuse(
                408,
                f"No request came within {wait_s:g} s (the limit header_deadline): send it again.",
            )

        def _refuse(self, status: int, sentence: str) -> None:
            answer = error(status, sentence)
            head = [f"HTTP/1.1 {status} {'Busy' if status == 503 else 'Too Slow'}".encode()]
            head += [name + b": " + value for name, value in answer.raw_headers]
            head += [b"connection: close", b"", bytes(answer.body)]
            if not self.transport.is_closing():
                self.transport.write(b"\r\n".join(head))
                self.transport.close()

    return BoundedProtocol
