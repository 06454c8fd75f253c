"""The most recent changes, for clients that watch them."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from trainmaster.daemon.response_models import ChangeRow, plain
from trainmaster.store.rows import StoryRow

REMEMBERED = 10_000
PAGE = 100
"""Changes that a follower is told at once; other tasks run before it is told more."""
PAUSE_S = 0.001
"""For each follower: how long all wait after a change for others to be told with it. To send something to a
thousand of them takes longer than to send it to one, and so grows what is sent at once."""


LATELY = 256
"""Changes that are kept as followers are told them; older ones are made again for each."""


@dataclass(frozen=True, slots=True)
class Told:
    """A change as it is stored."""

    seq: int
    story: StoryRow
    user: str
    """Whose job it is."""


@lru_cache(maxsize=LATELY)
def row_of(told: Told) -> ChangeRow:
    """The change as followers are told it."""
    story, detail = told.story, plain(json.loads(told.story.detail_json))
    return ChangeRow(told.seq, story.at_ms / 1000, story.what, story.job, detail, told.user)


class ChangeFeed:
    """The last changes, numbered; each follower gets every one once, in order."""

    def __init__(self) -> None:
        self._told: deque[Told] = deque(maxlen=REMEMBERED)
        self._last = 0
        self._changed = asyncio.Event()
        self._followers = 0

    def tell(
        self, stories: Iterable[StoryRow], owner_of: Callable[[str], str] = lambda _: ""
    ) -> None:
        numbered = enumerate(stories, self._last + 1)
        self._told.extend(Told(seq, story, owner_of(story.job)) for seq, story in numbered)
        if self._told:
            self._last = self._told[-1].seq
        self._wake_followers()

    def _wake_followers(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    @property
    def changed(self) -> asyncio.Event:
        """Set by the next change."""
        return self._changed

    async def follow(self, after: int | None = None) -> AsyncGenerator[Sequence[ChangeRow]]:
        """What happens from now on, or since that one as far as it is remembered: never an empty list."""
        seen = self._last if after is None else after
        if seen > self._last:  # a number from before a restart: counting began at 1 again
            seen = 0
        self._followers += 1
        try:
            while True:
                changed = self._changed
                news = self._since(seen)
                for begin in range(0, len(news), PAGE):
                    page = news[begin : begin + PAGE]
                    yield [*map(row_of, page)]
                    seen = page[-1].seq
                    await asyncio.sleep(0)
                await changed.wait()
                await asyncio.sleep(self._followers * PAUSE_S)
        finally:
            self._followers -= 1

    def _since(self, seen: int) -> list[Told]:
        """Searched from the end: a follower has mostly missed little."""
        found = list(takewhile(lambda each: each.seq > seen, reversed(self._told)))
        return found[::-1]
