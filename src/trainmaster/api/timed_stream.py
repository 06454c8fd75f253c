"""An answer in pieces that must be taken in time: who does not read keeps nothing for ever."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import StreamingResponse
from starlette.types import Message, Send

LOG = logging.getLogger("trainmaster.api")


class TimedStream(StreamingResponse):
    """Ends, incomplete, where one piece is not taken for so long; what makes the pieces is closed then."""

    def __init__(self, pieces: AsyncGenerator[bytes], silence_s: float, media_type: str) -> None:
        super().__init__(pieces, media_type=media_type)
        self._pieces = pieces
        self._silence_s = silence_s

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(self._silence_s):
                await send(message)

        async with aclosing(self._pieces):
            try:
                await super().stream_response(send_in_time)
            except TimeoutError:
                LOG.warning(
                    "an answer was ended: nothing of it was made or taken for %g s", self._silence_s
                )
