"""A connection that is upgraded to another protocol: from then on bytes go both ways as they come.

Nothing of them is looked at, so that an open page costs the manager little more than copying what it shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

SCOPE = "trainmaster.upgrade"
"""In the scope of a request for an upgrade: what takes the connection over."""
END_OF_HEAD = b"\r\n\r\n"
LONGEST_HEAD = 1 << 14
LINGER_S = 5.0
"""What a browser does not take for so long is dropped."""

TakeOver = Callable[[asyncio.Transport, bytes], asyncio.Transport]
"""Given where to send what comes and the answer to the request; where to send what comes back."""


class FarEnd(asyncio.Protocol):
    """The connection to the server that is asked for the upgrade: the head of its answer, then a pipe."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.head: asyncio.Future[bytes] = loop.create_future()
        """What it answered, up to the end of the head."""
        self.ended: asyncio.Future[None] = loop.create_future()
        self._rest = b""
        self._near: asyncio.Transport | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._near is not None:
            self._near.write(data)
            return
        self._rest += data
        head, end, rest = self._rest.partition(END_OF_HEAD)
        if self.head.done() or (not end and len(self._rest) <= LONGEST_HEAD):
            return
        self._transport.pause_reading()
        self._rest = rest
        self.head.set_result(head + end)

    def join(self, take_over: TakeOver, answer: bytes) -> None:
        """Become a pipe between the two."""
        self._near = take_over(self._transport, answer)
        if self._near.is_closing():
            self._transport.close()
            return
        self._near.write(self._rest)
        self._transport.resume_reading()

    def pause_writing(self) -> None:
        if self._near is not None:
            self._near.pause_reading()

    def resume_writing(self) -> None:
        if self._near is not None:
            self._near.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._near is not None:
            self._near.close()
        if not self.head.done():
            self.head.set_exception(ConnectionResetError("it was closed without an answer"))
        self.ended.set_result(None)

    def end(self) -> None:
        """Close both ends, the near one with what is still to be sent."""
        self._transport.abort()
        if self._near is not None:
            self._near.close()
            asyncio.get_running_loop().call_later(LINGER_S, self._near.abort)
