"""Answers that are used again for a while: however many ask, making them takes a small part of the time."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
TIMES = 20
"""For so many times as long as it took to make one, it is used again: 5 % of the time goes into them."""
REMEMBERED = 64
WAITS_S = 15.0


@dataclass(frozen=True, slots=True)
class _Made(Generic[T]):
    at_s: float
    until_s: float
    answer: T


class ReusedAnswer(Generic[T]):
    """Answers by what is asked, each made anew when it is too old, and one at a time.

    With `waits_s` all of them share the time: after one was made, `TIMES` as long passes before the next,
    also of another question, but nobody waits longer than that for another's, or gets an older one for it.
    `may_keep` says which are small enough to be remembered.
    """

    def __init__(
        self, waits_s: float = 0.0, may_keep: Callable[[T], bool] = lambda _: True
    ) -> None:
        self._waits_s = waits_s
        self._may_keep = may_keep
        self._made: OrderedDict[Hashable, _Made[T]] = OrderedDict()
        self._making = asyncio.Lock()
        self._free_s = 0.0
        """From when on the next may be made."""

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        asked = time.monotonic()
        known = self._made.get(key)
        if known is not None:
            is_busy = self._making.locked() or asked < self._free_s
            if asked < known.until_s or (is_busy and asked < known.at_s + self._waits_s):
                return known.answer
        async with self._making:
            pause = min(self._free_s, asked + self._waits_s) - time.monotonic()
            if pause > 0:
                await asyncio.sleep(pause)
            known = self._made.get(key)  # as another has made it meanwhile
            if known is not None and time.monotonic() < known.until_s:
                return known.answer
            return await self._make(key, make)

    async def _make(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        began = time.monotonic()
        try:
            answer = await make()
        finally:
            now = time.monotonic()
            self._free_s = now + TIMES * (now - began)
        if not self._may_keep(answer):
            return answer
        self._made[key] = _Made(now, self._free_s, answer)
        self._made.move_to_end(key)
        while len(self._made) > REMEMBERED:
            self._made.popitem(last=False)
        return answer


def window_key(since_ms: int | None, until_ms: int | None, now: int) -> Hashable:
    """Of a question about a window: until now, it is that of windows that begin nearly at the same time.

    They begin within a 1,000th of its length, as of pages that ask for the last month; others are exact.
    """
    if until_ms is not None or not since_ms:
        return since_ms, until_ms
    step = 1 << max(0, ((now - since_ms) // 1000).bit_length() - 1)
    return since_ms // step, step
