"""Places that all users share: each gets a part of them at most, and a reserve is for those who have few.

Places are turns or bytes. Operators have no part of their own: they take places while there are any. Of what
is only kept, such as sessions, whoever has the most loses the oldest (longest queue drop).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
from itertools import count

RESERVE = 8
"""One of so many places is kept for operators and for users who have few: one at least, if there are two."""


class Shortage(Enum):
    """Why there is no place."""

    OWN = auto()
    """The user has its part."""
    ALL = auto()
    """The others are taken, or kept for those who have few."""


@dataclass(frozen=True, slots=True)
class PlaceLimits:
    """How many places there are, how many one user may have, and how many are few."""

    most: int
    of_one: int
    few: int = 1

    @property
    def reserve(self) -> int:
        return 0 if self.most == 1 else max(1, self.most // RESERVE)


def half_each(most: int) -> PlaceLimits:
    """One user may have half of them."""
    return PlaceLimits(most, max(1, most // 2))


class Places:
    """How many are taken, and by whom."""

    def __init__(self, limits: PlaceLimits) -> None:
        self._limits = limits
        self._taken = 0
        self._of_one: Counter[str] = Counter()

    def taken_by(self, who: str | None) -> int:
        """None: an operator, who is not counted."""
        return 0 if who is None else self._of_one[who]

    def shortage(self, who: str | None, amount: int = 1) -> Shortage | None:
        """Why so many more are not to be had; None where they are."""
        own, limits = self.taken_by(who) + amount, self._limits
        if who is not None and own > limits.of_one:
            return Shortage.OWN
        may_take_last = who is None or own <= limits.few
        free = limits.most - self._taken - (0 if may_take_last else limits.reserve)
        return None if amount <= free else Shortage.ALL

    def take(self, who: str | None, amount: int = 1) -> None:
        self._taken += amount
        if who is not None:
            self._of_one[who] += amount

    def give_back(self, who: str | None, amount: int = 1) -> None:
        self._taken -= amount
        if who is not None:
            self._of_one[who] -= amount
            if not self._of_one[who]:
                del self._of_one[who]


class Turns:
    """Places that are waited for. Who has the fewest is next, and of those who was served the longest ago."""

    def __init__(self, limits: PlaceLimits) -> None:
        self._places = Places(limits)
        self._waiting: list[tuple[str | None, asyncio.Future[None]]] = []
        self._numbers = count(1)
        self._served: dict[str | None, int] = {}
        """The last turn of everybody who has one or waits for one."""

    @asynccontextmanager
    async def turn(self, who: str | None) -> AsyncIterator[None]:
        await self._wait(who)
        try:
            yield
        finally:
            self._end(who)

    async def _wait(self, who: str | None) -> None:
        place = (who, asyncio.get_running_loop().create_future())
        self._waiting.append(place)
        self._admit()
        try:
            await place[1]
        except BaseException:
            if place in self._waiting:
                self._waiting.remove(place)
            else:  # it was given a turn just as it was cancelled
                self._end(who)
            raise

    def _end(self, who: str | None) -> None:
        self._places.give_back(who)
        self._admit()

    def _admit(self) -> None:
        while (place := self._next()) is not None:
            who, waiting = place
            self._waiting.remove(place)
            self._places.take(who)
            self._served[who] = next(self._numbers)
            waiting.set_result(None)
        waiting_now = {who for who, _ in self._waiting}
        self._served = {
            who: number
            for who, number in self._served.items()
            if who in waiting_now or self._places.taken_by(who)
        }

    def _next(self) -> tuple[str | None, asyncio.Future[None]] | None:
        free = (
            each
            for each in self._waiting
            if not each[1].done() and self._places.shortage(each[0]) is None
        )
        return min(free, key=self._rank, default=None)

    def _rank(self, place: tuple[str | None, asyncio.Future[None]]) -> tuple[int, int]:
        who = place[0]
        return self._places.taken_by(who), self._served.get(who, 0)


def first_out(owners: Sequence[str]) -> int:
    """Which one goes where there are too many, the oldest first: the oldest of whoever has the most."""
    counts = Counter(owners)
    most = max(counts.values())
    return next(index for index, owner in enumerate(owners) if counts[owner] == most)
