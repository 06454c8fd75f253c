"""Token buckets: how often each of many may do something, with some at once after a pause."""

from __future__ import annotations

from collections import OrderedDict

from trainmaster.model.units import SECOND

MOST = 10_000
"""Buckets that are kept; the one that was used the longest ago is full again, or is forgotten."""


class TokenBuckets:
    """A bucket for each name: `rate` tokens come into it every second, and it holds `burst` of them.

    A bucket is the time at which it will be full, so that one that is not known is full.
    """

    def __init__(self, rate: int, burst: int) -> None:
        self._each = max(1, SECOND * 1000 // rate)
        """Microseconds until the next token."""
        self._room = burst * self._each
        self._full_at: OrderedDict[str, int] = OrderedDict()

    def take(self, name: str, now_us: int, tokens: int = 1) -> int:
        """Take a token, or some; 0, or the microseconds until there are so many, and nothing is taken."""
        full_at = max(self._full_at.pop(name, now_us), now_us)
        taken = tokens * self._each
        wait = full_at + taken - self._room - now_us
        self._full_at[name] = full_at if wait > 0 else full_at + taken
        while len(self._full_at) > MOST:
            self._full_at.popitem(last=False)
        return max(0, wait)

    def wait(self, name: str, now_us: int) -> int:
        """The microseconds until there is a token; nothing is taken."""
        return max(0, self._full_at.get(name, now_us) + self._each - self._room - now_us)
