"""Open connections that follow a manager's changes, read by one process, until its input is closed.

    FOLLOW_AS="Bearer …" python -m benchmarks.scale_followers PORT COUNT

Prints one line of JSON when all are open, and one at the end: what came.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from trainmaster.engines.local.descriptors import raise_limit

HEAD_END = b"\r\n\r\n"


class Followers:
    def __init__(self, port: int, count: int, token: str) -> None:
        self._port, self._count, self._token = port, count, token
        self.received = self.lost = 0

    async def run(self) -> None:
        began = time.monotonic()
        opened = [await self._open() for _ in range(self._count)]
        print(json.dumps({"opened_s": round(time.monotonic() - began, 2)}), flush=True)
        tasks = [asyncio.create_task(self._read(reader)) for reader, _ in opened]
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        for task in tasks:
            task.cancel()
        print(json.dumps({"received_bytes": self.received, "lost": self.lost}), flush=True)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(
            b"GET /api/v1/changes HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            + f"Authorization: {self._token}\r\n\r\n".encode()
        )
        head = await reader.readuntil(HEAD_END)
        if b" 200 " not in head.partition(b"\r\n")[0]:
            raise RuntimeError(head.decode())
        return reader, writer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while piece := await reader.read(1 << 16):
            self.received += len(piece)
        self.lost += 1


if __name__ == "__main__":
    raise_limit()
    asyncio.run(Followers(int(sys.argv[1]), int(sys.argv[2]), os.environ["FOLLOW_AS"]).run())
