"""Who watches gets each change once, in order."""

from __future__ import annotations

import asyncio

from trainmaster.daemon.change_feed import PAGE, ChangeFeed
from trainmaster.daemon.response_models import ChangeRow
from trainmaster.store.rows import StoryRow


def told(what: str) -> StoryRow:
    return StoryRow("1", 5, 1, what, '{"n":1}')


def test_changes_come_once_in_order_and_from_where_one_stopped() -> None:
    async def scenario() -> None:
        feed = ChangeFeed()
        feed.tell([told("a"), told("b")])
        feed.tell([])
        watching = feed.follow(after=1)
        seen: list[ChangeRow] = [*await anext(watching)]
        feed.tell([told("c"), told("d")])
        seen += await anext(watching)
        assert [(each.seq, each.what) for each in seen] == [(2, "b"), (3, "c"), (4, "d")]
        assert seen[0].detail == {"n": 1}

    asyncio.run(scenario())


def test_who_comes_late_gets_what_happens_from_then_on() -> None:
    async def scenario() -> None:
        feed = ChangeFeed()
        feed.tell([told("before")])
        watching = asyncio.create_task(anext(feed.follow()))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        feed.tell([told("after")])
        assert [each.what for each in await watching] == ["after"]

    asyncio.run(scenario())


def test_what_comes_shortly_after_is_told_with_it_and_much_in_pages() -> None:
    async def scenario() -> None:
        feed = ChangeFeed()
        watching = asyncio.create_task(anext(feed.follow()))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        feed.tell([told("one")])
        feed.tell([told("another")])
        assert [each.what for each in await watching] == ["one", "another"]
        feed.tell([told("many")] * (2 * PAGE))
        late = feed.follow(after=2)
        assert [len(await anext(late)), len(await anext(late))] == [PAGE, PAGE]

    asyncio.run(scenario())
