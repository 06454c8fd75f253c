"""Answers that are used again for a while: however many ask, making them takes a small part of the time."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")
TIMES = 20
"""For so many times as long as it took to make one, it is used again: 5 % of the time goes into them."""
REMEMBERED = 64


class ReusedAnswer(Generic[T]):
    """Answers by who asks, each made anew when it is too old."""

    def __init__(self) -> None:
        self._made: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        began = time.monotonic()
        known = self._made.get(key)
        if known is not None and began < known[0]:
            return known[1]
        found = await make()
        now = time.monotonic()
        self._made[key] = now + TIMES * (now - began), found
        self._made.move_to_end(key)
        while len(self._made) > REMEMBERED:
            self._made.popitem(last=False)
        return found
