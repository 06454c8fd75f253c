"""What has just happened, for those who watch: a short memory and a bell."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Iterable

from trainmaster.daemon.contract import Change
from trainmaster.store.rows import StoryRow

REMEMBERED = 10_000


class Feed:
    """The last changes, numbered; whoever follows gets each once, in order."""

    def __init__(self) -> None:
        self._changes: deque[Change] = deque(maxlen=REMEMBERED)
        self._last = 0
        self._bell = asyncio.Event()

    def tell(self, stories: Iterable[StoryRow]) -> None:
        for each in stories:
            self.say(each.at_ms, each.what, each.job, json.loads(each.detail_json))
        self._ring()

    def say(
        self, at_ms: int, what: str, job: str | None = None, detail: dict[str, object] | None = None
    ) -> None:
        self._last += 1
        self._changes.append(Change(self._last, at_ms, what, job, detail or {}))

    def _ring(self) -> None:
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()

    async def follow(self, after: int | None = None) -> AsyncIterator[Change]:
        """What happens from now on, or since that one as far as it is remembered."""
        seen = self._last if after is None else after
        while True:
            bell = self._bell
            for change in [each for each in self._changes if each.seq > seen]:
                seen = change.seq
                yield change
            await bell.wait()
