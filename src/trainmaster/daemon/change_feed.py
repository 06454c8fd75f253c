"""The most recent changes, for clients that watch them."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import takewhile

from trainmaster.daemon.response_models import ChangeRow, plain
from trainmaster.store.rows import StoryRow

REMEMBERED = 10_000


class ChangeFeed:
    """The last changes, numbered; each follower gets every one once, in order."""

    def __init__(self) -> None:
        self._stories: deque[tuple[int, StoryRow, str]] = deque(maxlen=REMEMBERED)
        """Numbered, with the users whose jobs they are of."""
        self._last = 0
        self._changed = asyncio.Event()

    def tell(
        self, stories: Iterable[StoryRow], owner_of: Callable[[str], str] = lambda _: ""
    ) -> None:
        numbered = enumerate(stories, self._last + 1)
        self._stories.extend((seq, story, owner_of(story.job)) for seq, story in numbered)
        if self._stories:
            self._last = self._stories[-1][0]
        self._wake_followers()

    def _wake_followers(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    @property
    def changed(self) -> asyncio.Event:
        """Set by the next change."""
        return self._changed

    async def follow(self, after: int | None = None) -> AsyncIterator[ChangeRow]:
        """What happens from now on, or since that one as far as it is remembered."""
        seen = self._last if after is None else after
        if seen > self._last:  # a number from before a restart: counting began at 1 again
            seen = 0
        while True:
            changed = self._changed
            for seq, story, user in self._since(seen):
                seen = seq
                detail = plain(json.loads(story.detail_json))
                yield ChangeRow(seq, story.at_ms / 1000, story.what, story.job, detail, user)
            await changed.wait()

    def _since(self, seen: int) -> list[tuple[int, StoryRow, str]]:
        """Searched from the end: a follower has mostly missed little."""
        found = list(takewhile(lambda each: each[0] > seen, reversed(self._stories)))
        return found[::-1]
