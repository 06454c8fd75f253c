"""Answers that are used again."""

from __future__ import annotations

import asyncio
import time

import pytest

from trainmaster.daemon import reused_answer
from trainmaster.daemon.reused_answer import ReusedAnswer, window_key

TOOK_S = 0.02


class Made:
    """When which answers were made."""

    def __init__(self, waits_s: float) -> None:
        self.reused = ReusedAnswer[int](waits_s)
        self.times: list[float] = []

    async def get(self, key: str) -> int:
        async def make() -> int:
            await asyncio.sleep(TOOK_S)
            self.times.append(time.monotonic())
            return len(self.times)

        return await self.reused.get(key, make)


def test_an_answer_is_used_again_and_made_once_for_all_who_ask_at_once() -> None:
    async def check() -> None:
        made = Made(0)
        assert await asyncio.gather(*(made.get("ada") for _ in range(5))) == [1] * 5
        assert await made.get("ada") == 1

    asyncio.run(check())


def test_questions_of_many_share_the_time() -> None:
    async def check() -> None:
        made = Made(60)
        assert sorted(await asyncio.gather(made.get("ada"), made.get("bob"))) == [1, 2]
        assert made.times[1] - made.times[0] >= reused_answer.TIMES * TOOK_S
        await asyncio.sleep(0.01)
        assert await made.get("ada") == 1, "not made while others' time is used, though it is old"

    asyncio.run(check())


def test_nobody_waits_longer_than_the_limit_for_the_answers_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reused_answer, "TIMES", 10_000)

    async def check() -> None:
        made = Made(0.1)
        began = time.monotonic()
        found = await asyncio.gather(*(made.get(name) for name in ("ada", "bob", "cleo")))
        assert sorted(found) == [1, 2, 3]
        assert 0.1 <= time.monotonic() - began < 30

    asyncio.run(check())


def test_what_fails_also_takes_time() -> None:
    async def check() -> None:
        made = Made(60)

        async def fail() -> int:
            await asyncio.sleep(TOOK_S)
            raise ValueError("no")

        began = time.monotonic()
        with pytest.raises(ValueError, match="no"):
            await made.reused.get("ada", fail)
        assert await made.get("ada") == 1
        assert time.monotonic() - began >= reused_answer.TIMES * TOOK_S

    asyncio.run(check())


def test_windows_until_now_that_are_nearly_the_same_are_one_question() -> None:
    month, now = 30 * 86_400_000, 1_800_000_000_000
    since = now - month
    known = window_key(since, None, now)
    assert known == window_key(since + 5_000, None, now + 5_040)
    assert known != window_key(since + 3_600_000, None, now)
    assert known != window_key(since, now, now)
    exact = [window_key(at, until, now) for at in (0, since, since + 1) for until in (now, now + 1)]
    assert len(set(exact)) == len(exact)
