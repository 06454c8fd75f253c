"""Who goes first: straight lines in time that cross, run out, and are the same after forgetting."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.stage import Strings
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import by_demand
from trainmaster.model import events as e
from trainmaster.model.plan import Rank
from trainmaster.model.units import SECOND


def ranked_jobs(
    world: Strings, ranks: dict[str, Rank] | Callable[[JobRecord], Rank], now: int = 0
) -> RankIndex:
    rank = ranks if callable(ranks) else lambda record: ranks[record.id]
    return world.controller.view.ranked(rank, now, group=by_demand, with_running=True)


def waiting(ranks: RankIndex, now: int) -> str:
    return " ".join(record.id for _, _, record in ranks.candidates(now))


def worst_first(ranks: RankIndex, now: int, count: int) -> str:
    tail = ranks.worst_running(now)
    return " ".join(tail.pop().id for _ in range(count))


def test_level_then_value_then_submission_then_order_of_submission() -> None:
    world = Strings().submit("a").submit("b", 2).submit("c").later(1).submit("d")
    ranks = {"a": Rank(1, 0), "b": Rank(0, 7), "c": Rank(0, 7), "d": Rank(0, 7)}
    assert waiting(ranked_jobs(world, ranks), 0) == "b c d a"


def test_ranks_cross_in_time() -> None:
    world = Strings().submit("slow").submit("fast", 2)
    ranks = ranked_jobs(world, {"slow": Rank(0, 100, rate=-1), "fast": Rank(0, 150, rate=-2)})
    assert waiting(ranks, 49) == "slow fast"
    assert waiting(ranks, 51) == "fast slow"
    assert waiting(ranks, 50) == "slow fast", "a tie goes to the earlier row"


def test_running_jobs_worst_first_also_where_ranks_cross() -> None:
    world = Strings().running("a", 0).running("b", 1).running("c", 2)
    ranks = ranked_jobs(
        world, {"a": Rank(0, 0, rate=2), "b": Rank(0, 10, rate=1), "c": Rank(0, 5, rate=1)}
    )
    assert worst_first(ranks, 1, 3) == "b c a"
    assert worst_first(ranks, 20, 3) == "a b c"


def test_a_job_taken_from_the_tail_can_be_put_back() -> None:
    world = Strings().running("a", 0).running("b", 1)
    tail = ranked_jobs(world, {"a": Rank(0, 1), "b": Rank(0, 2)}).worst_running(0)
    last = tail.pop()
    tail.put_back((0, 2, 0, last.seq), last)
    assert [tail.pop().id, tail.pop().id] == ["b", "a"]


def test_a_group_is_dropped_for_the_pass_only() -> None:
    world = Strings().submit("a1").submit("b", 2).submit("a2")
    ranks = {"a1": Rank(0, 1), "b": Rank(0, 2), "a2": Rank(0, 3)}
    ranks = ranked_jobs(world, ranks)
    candidates = ranks.candidates(0)
    seen = []
    for _, group, record in candidates:
        seen.append(record.id)
        if record.id == "a1":
            candidates.drop(group)
    assert seen == ["a1", "b"]
    assert waiting(ranks, 0) == "a1 b a2"


def test_ranks_run_out_and_are_asked_for_again() -> None:
    world = Strings().submit("a").submit("b")
    asked: list[str] = []

    def rank(record: JobRecord) -> Rank:
        asked.append(record.id)
        return Rank(
            0, 0, until_ms=5 * SECOND if record.id == "a" and asked.count("a") == 1 else None
        )

    ranks = ranked_jobs(world, rank)
    assert (asked, ranks.next_expiry()) == (["a", "b"], 5 * SECOND)
    ranked_jobs(world, rank, 5 * SECOND - 1)
    assert asked == ["a", "b"], "nothing has changed"
    ranks = ranked_jobs(world, rank, 5 * SECOND)
    assert (asked, ranks.next_expiry()) == (["a", "b", "a"], None)


def test_only_changed_jobs_are_ranked_again_and_ended_jobs_are_dropped() -> None:
    world = Strings().submit("a").submit("b").submit("c")
    asked: list[str] = []

    def rank(record: JobRecord) -> Rank:
        asked.append(record.id)
        return Rank(0, record.seq)

    ranked_jobs(world, rank)
    asked.clear()
    world.tell(e.JobWithdrawn("b"))
    world.start("c", 0)
    ranks = ranked_jobs(world, rank)
    assert asked == ["c"]
    assert waiting(ranks, 0) == "a"
    assert worst_first(ranks, 0, 1) == "c"


@given(
    lines=st.lists(
        st.tuples(st.integers(0, 2), st.integers(-20, 20), st.integers(-3, 3), st.integers(1, 3)),
        min_size=1,
        max_size=8,
    ),
    now=st.integers(0, 30),
)
def test_the_order_is_that_of_sorting_all_jobs(
    lines: list[tuple[int, int, int, int]], now: int
) -> None:
    world = Strings()
    ranks = {}
    for index, (level, value, rate, size) in enumerate(lines):
        world.submit(f"j{index}", size)
        ranks[f"j{index}"] = Rank(level, value, rate)

    def place(name: str) -> tuple[int, int, int]:
        rank = ranks[name]
        return rank.level, rank.value + rank.rate * now, world.job(name).seq

    assert waiting(ranked_jobs(world, ranks, now), now).split() == sorted(ranks, key=place)
    world.controller.forget()
    assert waiting(ranked_jobs(world, ranks, now), now).split() == sorted(ranks, key=place)
