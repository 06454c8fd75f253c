"""Open dashboards without a browser: they load the first page, follow its WebSocket and answer as a tab does.

    TOKEN=… python -m benchmarks.dashboard_tabs URL COUNT

Prints one line of JSON when all are open, and one when its input is closed: what came.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
import uuid

import httpx
from websockets.asyncio.client import ClientConnection, connect

CLIENT = re.compile(r"'client_id': '([0-9a-f-]+)'|\"client_id\": ?\"([0-9a-f-]+)\"")
ACK_S = 3.0
PATIENCE_S = 120.0


class Tabs:
    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._token = token
        self.messages = self.bytes = self.lost = 0

    async def run(self, count: int) -> None:
        began = time.monotonic()
        opened = [await self._open() for _ in range(count)]
        print(json.dumps({"opened_s": round(time.monotonic() - began, 2)}), flush=True)
        tasks = [asyncio.create_task(self._follow(*each)) for each in opened]
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        for task in tasks:
            task.cancel()
        print(json.dumps({"messages": self.messages, "bytes": self.bytes, "lost": self.lost}))

    async def _open(self) -> tuple[str, ClientConnection]:
        """With a session of its own, as another person: pages of one session share what they ask."""
        async with httpx.AsyncClient(timeout=PATIENCE_S) as asking:
            begun = await asking.post(f"{self._url}/login", data={"token": self._token})
            shown = {"Cookie": begun.headers["set-cookie"].partition(";")[0]}
            page = await asking.get(self._url, headers=shown)
        found = CLIENT.search(page.text)
        if page.status_code != 200 or found is None:
            raise RuntimeError(f"{page.status_code}: {page.text[:300]}")
        client = found[1] or found[2]
        query = (
            f"EIO=4&transport=websocket&client_id={client}&tab_id={uuid.uuid4()}"
            f"&document_id={uuid.uuid4()}&next_message_id=0&implicit_handshake=true"
        )
        line = await connect(
            f"{self._url.replace('http', 'ws', 1)}/_nicegui_ws/socket.io/?{query}",
            additional_headers=shown,
            max_size=None,
            ping_interval=None,
            open_timeout=PATIENCE_S,
        )
        assert str(await line.recv()).startswith("0")
        await line.send("40")
        assert str(await line.recv()).startswith("40")
        return client, line

    async def _follow(self, client: str, line: ClientConnection) -> None:
        acking = asyncio.create_task(self._acknowledge(client, line))
        try:
            async for piece in line:
                self.bytes += len(piece)
                if piece == "2":
                    await line.send("3")
                else:
                    self.messages += 1
        finally:
            acking.cancel()
        self.lost += 1

    async def _acknowledge(self, client: str, line: ClientConnection) -> None:
        while True:
            await asyncio.sleep(ACK_S)
            said = {"client_id": client, "next_message_id": self.messages}
            await line.send(f"42{json.dumps(['ack', said])}")


if __name__ == "__main__":
    asyncio.run(Tabs(sys.argv[1], os.environ["TOKEN"]).run(int(sys.argv[2])))
