"""A TCP connection inside one HTTP request: its body goes to the job, the answer's body comes from there.

Both flow at the same time. The end of the request's body closes the job's input and leaves its output open.
"""

from __future__ import annotations

import asyncio
import contextlib

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from trainmaster.daemon.job_ports import PortConnection

PIECE = 1 << 16
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Connection": "close"}


class Tunnel(Response):
    """Answers with what comes from the job, while the request brings what goes there."""

    media_type = "application/octet-stream"

    def __init__(self, connection: PortConnection) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._connection = connection

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        up = asyncio.create_task(self._up(receive))
        down = asyncio.create_task(self._down(send))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
            self._connection.writer.close()
            with contextlib.suppress(OSError):
                await self._connection.writer.wait_closed()

    async def _up(self, receive: Receive) -> None:
        """To the job, until the client goes away."""
        writer = self._connection.writer
        while (message := await receive())["type"] != "http.disconnect":
            with contextlib.suppress(OSError):  # the job has closed: its output says so
                if message.get("body"):
                    writer.write(message["body"])
                    await writer.drain()
                if not message.get("more_body", False) and writer.can_write_eof():
                    writer.write_eof()

    async def _down(self, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        while True:
            try:
                piece = await self._connection.reader.read(PIECE)
            except OSError:
                piece = b""
            await send({"type": "http.response.body", "body": piece, "more_body": bool(piece)})
            if not piece:
                return
