"""Without torch, ranks that work in step act on a wish at the same call, however they interleave."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from trainmaster_sdk.rank_consensus import RankConsensus

NEVER = 10_000


def gang(folder: Path, world: int, generation: str = "1-0-2-0") -> list[RankConsensus]:
    return [RankConsensus(folder, "stop", generation, rank, world) for rank in range(world)]


def in_step(ranks: list[RankConsensus], chance: random.Random, wish_after: int) -> list[int]:
    """At which call each acts. Between two calls all meet, so nobody is a whole call ahead.

    The wish reaches each rank at a moment of its own, or rank 0 alone. Who acts leaves for good.
    """
    calls = [0] * len(ranks)
    acted: dict[int, int] = {}
    moments = [wish_after + chance.randrange(3) for _ in ranks]
    if chance.random() < 0.5:
        moments[1:] = [NEVER] * (len(ranks) - 1)
    turn = 0
    while len(acted) < len(ranks):
        assert turn < 1000
        turn += 1
        able = [
            rank
            for rank in range(len(ranks))
            # The exchange after call n needs everybody's call n.
            if rank not in acted and calls[rank] <= min(calls)
        ]
        assert able, f"rank(s) wait for ever in an exchange: {calls}, acted {acted}"
        rank = chance.choice(able)
        calls[rank] += 1
        if ranks[rank].settle(turn > moments[rank]):
            acted[rank] = calls[rank]
            ranks[rank].close()
    return [acted[rank] for rank in range(len(ranks))]


@pytest.mark.parametrize("seed", range(40))
def test_all_leave_at_the_same_call(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    left = in_step(gang(tmp_path, 2 + seed % 3), chance, wish_after=chance.randrange(20))
    assert len(set(left)) == 1


def test_what_an_earlier_gang_agreed_on_is_not_heard(tmp_path: Path) -> None:
    chance = random.Random(1)
    in_step(gang(tmp_path, 2), chance, 0)
    later = gang(tmp_path, 2, "1-1-2-0")
    assert not any(rank.settle(False) for _ in range(10) for rank in later)


def test_a_wish_is_acted_on_once_and_the_next_one_too(tmp_path: Path) -> None:
    leader, other = gang(tmp_path, 2)
    acted = []
    for call in range(1, 13):
        wish = call in (2, 7)
        both = (leader.settle(wish), other.settle(False))
        assert both[0] == both[1]
        acted += [call] if both[0] else []
    assert acted == [4, 9]


def test_when_rank_0_has_ended_the_others_are_free(tmp_path: Path) -> None:
    leader, other = gang(tmp_path, 2)
    leader.settle(False)
    leader.close()
    assert not other.settle(False)
    assert other.settle(True)


def test_a_rank_alone_acts_at_once_and_writes_nothing(tmp_path: Path) -> None:
    (alone,) = gang(tmp_path, 1)
    assert alone.settle(True)
    alone.close()
    assert list(tmp_path.iterdir()) == []
