"""Places that users share: one user, or a few together, leave some to others."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from trainmaster.daemon.places import (
    PlaceLimits,
    Places,
    Shortage,
    Turns,
    first_out,
    half_each,
)


def test_one_user_has_a_part_and_two_leave_the_reserve() -> None:
    places = Places(PlaceLimits(16, 10, few=2))
    places.take("ada", 10)
    assert places.shortage("ada") is Shortage.OWN
    assert places.shortage("eve", 4) is None
    assert places.shortage("eve", 5) is Shortage.ALL, "two are kept for those who have few"
    places.take("eve", 4)
    assert places.shortage("bob", 2) is None
    assert places.shortage("bob", 3) is Shortage.ALL
    assert places.shortage(None, 2) is None, "operators have no part of their own"
    places.take("bob", 2)
    assert places.shortage(None) is Shortage.ALL
    places.give_back("ada", 10)
    assert places.shortage("ada", 8) is None


def test_a_single_place_is_for_everybody() -> None:
    assert half_each(1) == PlaceLimits(1, 1)
    assert Places(half_each(1)).shortage("ada") is None


class Work:
    """Users who take turns, and end each when the test says so."""

    def __init__(self, limits: PlaceLimits) -> None:
        self.turns = Turns(limits)
        self.tasks: list[asyncio.Task[None]] = []
        self.running: list[tuple[str | None, asyncio.Event]] = []

    async def begin(self, *users: str | None) -> None:
        for who in users:
            self.tasks.append(asyncio.create_task(self._work(who)))
            await _settled()

    async def _work(self, who: str | None) -> None:
        async with self.turns.turn(who):
            end = asyncio.Event()
            self.running.append((who, end))
            await end.wait()

    async def end(self, who: str | None) -> None:
        place = next(each for each in self.running if each[0] == who)
        self.running.remove(place)
        place[1].set()
        await _settled()

    def users(self) -> list[str | None]:
        return [who for who, _ in self.running]


async def _settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_one_user_has_half_of_all_turns_and_the_last_is_for_who_has_none() -> None:
    async def play() -> None:
        work = Work(half_each(4))
        await work.begin("ada", "ada", "ada", "eve", "eve")
        assert work.users() == ["ada", "ada", "eve"]
        await work.begin("bob")
        assert work.users() == ["ada", "ada", "eve", "bob"]
        await work.end("eve")
        assert work.users() == ["ada", "ada", "bob", "eve"]
        await work.end("bob")
        await work.begin(None, None)
        assert work.users() == ["ada", "ada", "eve", None], "an operator takes the last as well"

    asyncio.run(play())


def test_who_has_fewer_turns_goes_before_those_who_waited_longer() -> None:
    async def play() -> None:
        work = Work(PlaceLimits(8, 8))
        await work.begin(*["ada"] * 5, "eve", "eve", "ada", "eve")
        assert work.users() == ["ada"] * 5 + ["eve"] * 2
        await work.end("ada")
        assert work.users() == ["ada"] * 4 + ["eve"] * 3

    asyncio.run(play())


def test_of_users_who_have_none_the_one_that_was_served_the_longest_ago_is_next() -> None:
    async def play() -> list[str]:
        turns, order = Turns(PlaceLimits(1, 1)), list[str]()

        async def work(who: str) -> None:
            async with turns.turn(who):
                order.append(who)
                await asyncio.sleep(0)

        await asyncio.gather(*(work(who) for who in ("ada", "ada", "ada", "eve", "bob")))
        return order

    assert asyncio.run(play()) == ["ada", "eve", "bob", "ada", "ada"]


def test_who_stops_waiting_takes_no_turn_with_it() -> None:
    async def play() -> None:
        turns = Turns(PlaceLimits(1, 1))
        async with AsyncExitStack() as held:
            await held.enter_async_context(turns.turn("ada"))
            waits = [asyncio.create_task(turns.turn("bob").__aenter__()) for _ in range(2)]
            await asyncio.sleep(0)
            waits[0].cancel()
            await asyncio.wait({waits[0]})
        waits[1].cancel()  # it has just been given the turn
        await asyncio.wait({waits[1]})
        async with asyncio.timeout(10), turns.turn("eve"):
            pass

    asyncio.run(play())


def test_the_oldest_of_whoever_has_the_most_goes_first() -> None:
    assert first_out(["ada", "eve", "bob", "eve"]) == 1
    assert first_out(["ada", "bob"]) == 0
