"""Keeps what open pages show up to date: a follower of `/changes` and a copy of the answers for each session.

All windows of a browser share them. After a change the answers are fetched again, and at the latest after a
while; never sooner than 20 times as long as the last fetch took, or 15 s, so that the manager spends some 5 %
of its time on a session at most. Where no window is open nothing is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

import httpx

from trainmaster.api.web.api_client import ApiClient, Refused
from trainmaster.api.web.viewer import Viewer

LOG = logging.getLogger("trainmaster.web")
TIMES = 20
MOST_S = 15.0
"""Longest pause: a fetch is slow where the machine is busy with other work."""
LEAST_S = 0.3
"""Between two fetches of the same answer."""
AT_LEAST_EVERY_S = 5.0
"""What no change is told of, such as utilisation, is fetched as often as that."""
AGAIN_S = 2.0
"""Before a manager that does not answer is asked again."""
Query = tuple[tuple[str, Any], ...]
Show = Callable[[Any], Awaitable[None] | None]


@dataclass(slots=True, eq=False)
class _Answer:
    path: str
    query: Query
    value: Any = None
    is_there: bool = False
    is_old: bool = True
    fetched_s: float = 0.0
    shows: list[Show] = field(default_factory=list)

    @property
    def wanted_s(self) -> float:
        return self.fetched_s + (LEAST_S if self.is_old else AT_LEAST_EVERY_S)


class LiveFeed:
    """Of one person."""

    def __init__(self, api: ApiClient) -> None:
        self.api = api
        self.trouble = ""
        """What was refused; empty where answers come."""
        self._answers: dict[tuple[str, Query], _Answer] = {}
        self._woken = asyncio.Event()
        self._working: asyncio.Task[None] | None = None
        self._free_s = 0.0
        """When answers may be fetched again; the first of a kind is fetched at once."""
        self._troubled: list[Callable[[str], None]] = []

    def watch(self, path: str, show: Show, **query: Any) -> Callable[[], None]:
        """Call `show` with each new answer until the returned function is called."""
        key = path, _sorted(query)
        answer = self._answers.setdefault(key, _Answer(*key))
        answer.shows.append(show)
        if answer.is_there:
            _call(show, answer.value)
        self._work()

        def leave() -> None:
            with contextlib.suppress(ValueError):
                answer.shows.remove(show)
            if not answer.shows:
                self._answers.pop(key, None)
            if not self._answers and self._working is not None:
                self._working.cancel()
                self._working = None

        return leave

    def watch_trouble(self, show: Callable[[str], None]) -> Callable[[], None]:
        """Call `show` with what the manager refuses, and with an empty text when it answers again."""
        self._troubled.append(show)
        show(self.trouble)
        return lambda: self._troubled.remove(show) if show in self._troubled else None

    def refresh(self) -> None:
        """Something was changed by the person: fetch again."""
        for answer in self._answers.values():
            answer.is_old = True
        self._woken.set()

    def _work(self) -> None:
        self._woken.set()
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._keep_up())

    async def _keep_up(self) -> None:
        following = asyncio.create_task(self._follow())
        try:
            while True:
                self._woken.clear()
                now = time.monotonic()
                due = [each for each in self._answers.values() if self._due_s(each) <= now]
                if due:
                    await asyncio.gather(*map(self._fetch, due))
                    took_s = time.monotonic() - now
                    self._free_s = max(self._free_s, time.monotonic() + min(MOST_S, TIMES * took_s))
                next_s = min(map(self._due_s, self._answers.values()), default=now + 1)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), max(0.01, next_s - time.monotonic()))
        finally:
            following.cancel()

    def _due_s(self, answer: _Answer) -> float:
        return max(answer.wanted_s, self._free_s) if answer.is_there else answer.wanted_s

    async def _fetch(self, answer: _Answer) -> None:
        answer.is_old = False
        try:
            value = await self.api.get(answer.path, **dict(answer.query))
        except Refused as refusal:
            answer.fetched_s, answer.is_old = time.monotonic() + AGAIN_S, True
            self._say(str(refusal) if refusal.status else "")  # the frame says that nobody answers
            return
        answer.fetched_s = time.monotonic()
        self._say("")
        is_same = answer.is_there and value == answer.value
        answer.value, answer.is_there = value, True
        for show in () if is_same else list(answer.shows):
            _call(show, value)

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(Refused, httpx.HTTPError):
                async for _ in self.api.events("/changes"):
                    self.refresh()
            await asyncio.sleep(AGAIN_S)

    def _say(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            for show in list(self._troubled):
                show(trouble)


_SHOWING: set[asyncio.Future[None]] = set()
"""Kept until they are done: the event loop does not."""


def _call(show: Show, value: Any) -> None:
    """A window that fails to show something leaves the others alone."""
    try:
        shown = show(value)
    except Exception:
        LOG.exception("a page could not show what is new")
        return
    if shown is not None:
        task = asyncio.ensure_future(_finish(shown))
        _SHOWING.add(task)
        task.add_done_callback(_SHOWING.discard)


async def _finish(shown: Awaitable[None]) -> None:
    try:
        await shown
    except Exception:
        LOG.exception("a page could not show what is new")


def _sorted(query: dict[str, Any]) -> Query:
    return tuple(sorted((name, value) for name, value in query.items() if value is not None))


_FEEDS: WeakValueDictionary[tuple[str, str], LiveFeed] = WeakValueDictionary()
"""By session and role: windows of another session of the same person outlive the end of this one."""


def feed_of(viewer: Viewer) -> LiveFeed:
    """The one that all windows of this browser share."""
    key = viewer.api.session, viewer.role
    feed = _FEEDS.get(key)
    if feed is None:
        feed = _FEEDS[key] = LiveFeed(viewer.api)
    return feed
