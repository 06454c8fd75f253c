"""The manager's side of its gateway: it goes on whatever becomes of the process."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import pytest

from trainmaster.engines.protocol import EngineError
from trainmaster.engines.ray import gateway_client
from trainmaster.engines.ray.gateway_client import Gateway
from trainmaster.engines.ray.node_link import Unreachable

SETTLED = """
import sys, time
from trainmaster.engines.ray.frames import framed
from trainmaster.engines.ray.gateway_messages import Looked, Nodes
sys.stdout.buffer.write(framed(Nodes(Looked((), (), True))))
"""
GARBAGE = SETTLED + "sys.stdout.buffer.write((3).to_bytes(8, 'big') + b'abc')\n"
SILENT = SETTLED + "sys.stdout.buffer.write(framed(Nodes(None, is_answered=False)))\n"
STAY = "sys.stdout.buffer.flush()\ntime.sleep(600)\n"
NONE = ""


def use(gateways: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """These programs as its gateways one after the other; NONE cannot be started."""
    start, programs = asyncio.create_subprocess_exec, iter(gateways)

    async def started(*words: str, **more: Any) -> asyncio.subprocess.Process:
        program = next(programs)
        if program == NONE:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return await start(sys.executable, "-c", program, **more)

    monkeypatch.setattr(gateway_client.asyncio, "create_subprocess_exec", started)
    monkeypatch.setattr(gateway_client, "has_ray", lambda: True)
    monkeypatch.setattr(gateway_client, "AGAIN_S", (0.05, 0.05))


async def connected(gateways: list[str], monkeypatch: pytest.MonkeyPatch) -> Gateway:
    """With these programs as its gateways."""
    use(gateways, monkeypatch)
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


async def until_troubles(link: Gateway, *words: str) -> None:
    """Until there is one trouble with these words; none of them: until there is none."""
    async with asyncio.timeout(30):
        while not (link.troubles() and all(each in link.troubles()[0] for each in words)):
            if not (words or link.troubles()):
                return
            await asyncio.sleep(0.01)


def test_a_head_that_does_not_answer_is_named_with_the_time_at_which_jobs_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def act() -> None:
        link = await connected([SILENT + STAY], monkeypatch)
        await until_troubles(link, link.address, "does not answer since", "Jobs end at")
        monkeypatch.setattr(gateway_client.time, "time", lambda: float(1 << 40))
        await until_troubles(link, link.address, "Jobs have ended at")
        await link.close()

    asyncio.run(act())


def test_a_head_that_was_there_before_may_be_away_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def act() -> None:
        use([SETTLED + STAY], monkeypatch)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        link = Gateway(f"127.0.0.1:{port}", "s1")
        with pytest.raises(EngineError, match="No Ray cluster answers"):
            await link.connect()
        await link.connect(may_be_away=True)
        assert link.nodes == ()
        await until_troubles(link, link.address, "since this manager started", "away for 1m")
        with pytest.raises(Unreachable):
            await link.reserved()
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port)
        async with server:
            await asyncio.wait_for(link.settled(), 30)
        await until_troubles(link)
        await link.close()

    asyncio.run(act())
