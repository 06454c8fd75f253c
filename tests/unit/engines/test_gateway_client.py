"""The manager's side of its gateway: it goes on whatever becomes of the process."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from trainmaster.engines.protocol import EngineError
from trainmaster.engines.ray import gateway_client
from trainmaster.engines.ray.gateway_client import Gateway

SETTLED = """
import sys, time
from trainmaster.engines.ray.frames import framed
from trainmaster.engines.ray.gateway_messages import Looked, Nodes
sys.stdout.buffer.write(framed(Nodes(Looked((), (), True))))
"""
GARBAGE = SETTLED + "sys.stdout.buffer.write((3).to_bytes(8, 'big') + b'abc')\n"
STAY = "sys.stdout.buffer.flush()\ntime.sleep(600)\n"
NONE = ""


async def connected(gateways: list[str], monkeypatch: pytest.MonkeyPatch) -> Gateway:
    """With these programs as its gateways one after the other; NONE cannot be started."""
    start, programs = asyncio.create_subprocess_exec, iter(gateways)

    async def started(*words: str, **more: Any) -> asyncio.subprocess.Process:
        program = next(programs)
        if program == NONE:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return await start(sys.executable, "-c", program, **more)

    monkeypatch.setattr(gateway_client.asyncio, "create_subprocess_exec", started)
    monkeypatch.setattr(gateway_client, "has_ray", lambda: True)
    monkeypatch.setattr(gateway_client, "AGAIN_S", (0.05,))
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        link = Gateway(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", "s1")
        await link.connect()
    return link


def test_what_cannot_be_read_and_a_start_that_fails_are_followed_by_another_gateway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def act() -> None:
        link = await connected([GARBAGE + STAY, NONE, SETTLED + STAY], monkeypatch)
        first = link.pid
        async with asyncio.timeout(30):
            while link.pid in (first, None) or link.troubles():
                await asyncio.sleep(0.01)
        await link.close()

    asyncio.run(act())


def test_a_first_gateway_that_cannot_be_started_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(EngineError, match=r"^The gateway to Ray failed: .*unavailable\.$"):
        asyncio.run(connected([NONE], monkeypatch))
