"""The socket that the daemon listens on."""

from __future__ import annotations

import asyncio
import socket

from trainmaster.api.server import listening


def test_answers_are_not_held_back_for_more() -> None:
    """Nagle's algorithm would make every answer of a connection that stays open 40 ms late."""

    async def nodelay() -> int:
        found = asyncio.get_running_loop().create_future()

        def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            sock = writer.get_extra_info("socket")
            found.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        sock = listening("127.0.0.1", 0)
        async with await asyncio.start_server(met, sock=sock):
            _, writer = await asyncio.open_connection(*sock.getsockname())
            answer = await found
            writer.close()
            return int(answer)

    assert asyncio.run(nodelay())
