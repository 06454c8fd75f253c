"""One follower and one copy for all windows of a person, and nothing where none is open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from trainmaster.api.web import live_feed
from trainmaster.api.web.api_client import Refused
from trainmaster.api.web.live_feed import LiveFeed


class Api:
    """A manager whose answers count how often they were asked for."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.asked: list[str] = []
        self.followers = 0
        self.takes_s = takes_s
        self.refuses = False
        self.news = asyncio.Event()

    async def get(self, path: str, **query: Any) -> Any:
        self.asked.append(path)
        await asyncio.sleep(self.takes_s)
        if self.refuses:
            raise Refused(422, "invalid", "There is no such state.")
        return {"path": path, "number": len(self.asked), **query}

    async def events(self, path: str) -> AsyncIterator[tuple[str, Any]]:
        self.followers += 1
        try:
            while True:
                await self.news.wait()
                self.news.clear()
                yield "started", {}
        finally:
            self.followers -= 1


def feed(api: Api) -> LiveFeed:
    return LiveFeed(api)  # type: ignore[arg-type]


async def settle(seconds: float = 0.02) -> None:
    await asyncio.sleep(seconds)


def test_windows_of_a_person_share_a_follower_and_an_answer() -> None:
    async def run() -> None:
        api, first, second = Api(), list[Any](), list[Any]()
        shared = feed(api)
        shared.watch("/grid", first.append)
        await settle()
        shared.watch("/grid", second.append)
        await settle()
        assert (api.asked, api.followers) == (["/grid"], 1)
        assert first == second == [{"path": "/grid", "number": 1}]

    asyncio.run(run())


def test_what_is_asked_with_another_query_is_another_answer() -> None:
    async def run() -> None:
        api, seen = Api(), list[Any]()
        shared = feed(api)
        shared.watch("/jobs", seen.append, limit=1)
        shared.watch("/jobs", seen.append, limit=2, user=None)
        await settle()
        assert sorted(each["limit"] for each in seen) == [1, 2]
        assert len(api.asked) == 2

    asyncio.run(run())


def test_where_no_window_is_open_nothing_is_asked() -> None:
    async def run() -> None:
        api = Api()
        shared = feed(api)
        leave = shared.watch("/grid", lambda _: None)
        await settle()
        leave()
        leave()  # a window may close twice
        await settle()
        api.news.set()
        await settle()
        assert (api.asked, api.followers) == (["/grid"], 0)
        shared.watch("/grid", lambda _: None)
        await settle()
        assert (len(api.asked), api.followers) == (2, 1)

    asyncio.run(run())


def test_a_change_is_fetched_and_not_sooner_than_twenty_times_the_last_fetch(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(live_feed, "LEAST_S", 0.0)

    async def run() -> None:
        api, seen = Api(takes_s=0.01), list[float]()
        feed(api).watch("/grid", lambda _: seen.append(time.monotonic()))
        began = time.monotonic()
        while len(seen) < 2 and time.monotonic() - began < 20:
            api.news.set()
            await settle()
        assert seen[1] - seen[0] >= live_feed.TIMES * api.takes_s

    asyncio.run(run())


def test_what_is_refused_is_said_to_the_window() -> None:
    async def run() -> None:
        api, said = Api(), list[str]()
        api.refuses = True
        shared = feed(api)
        shared.watch_trouble(said.append)
        shared.watch("/jobs", lambda _: None)
        await settle()
        assert said == ["", "There is no such state."]

    asyncio.run(run())


def test_a_window_that_fails_leaves_the_others_alone() -> None:
    async def run() -> None:
        api, seen = Api(), list[Any]()

        def fail(_: Any) -> None:
            raise ValueError

        shared = feed(api)
        shared.watch("/grid", fail)
        shared.watch("/grid", seen.append)
        await settle()
        assert len(seen) == 1

    asyncio.run(run())
