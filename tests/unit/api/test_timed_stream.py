"""Answers in pieces that nobody takes are ended, and give back what they hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from starlette.types import Message

from trainmaster.api.timed_stream import TimedStream


def played(taken: int, silence_s: float, *, is_made: bool = True) -> tuple[list[bytes], list[str]]:
    """What was sent to a client that takes so many pieces of three, and what became of their maker."""
    sent: list[bytes] = []
    fate: list[str] = []

    async def pieces() -> AsyncGenerator[bytes]:
        try:
            for each in (b"a", b"b", b"c"):
                if not is_made and each == b"c":
                    raise TimeoutError
                yield each
        finally:
            fate.append("closed")

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            if len(sent) == taken:
                await asyncio.Event().wait()
            sent.append(message["body"])

    async def play() -> None:
        answer = TimedStream(pieces(), silence_s, "application/x-tar")
        await answer({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)
        assert fate == ["closed"]

    asyncio.run(asyncio.wait_for(play(), 60))
    return sent, fate


def test_who_reads_gets_all_of_it() -> None:
    assert played(taken=9, silence_s=60)[0] == [b"a", b"b", b"c", b""]


def test_what_is_not_taken_is_ended_without_its_end() -> None:
    assert played(taken=1, silence_s=0.05)[0] == [b"a"]


def test_what_is_not_made_is_ended_without_its_end() -> None:
    assert played(taken=9, silence_s=60, is_made=False)[0] == [b"a", b"b"]
