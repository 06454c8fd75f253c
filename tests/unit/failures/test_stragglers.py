"""Which rank is slower than its peers, and when nobody is: noise, too few times, all alike."""

from __future__ import annotations

from random import Random

import pytest

from trainmaster.engines.local.rank_times import RankTimes
from trainmaster.failures.stragglers import Straggler, straggler

USUAL = (100.0, 101.0, 99.0, 100.0, 102.0)
SLOW = (150.0, 149.0, 155.0, 150.0, 151.0)


@pytest.mark.parametrize(
    ("times", "found"),
    [
        ({0: USUAL, 1: USUAL, 2: SLOW, 3: USUAL}, Straggler(2, 150)),
        ({0: USUAL, 1: SLOW}, Straggler(1, 150)),
        ({0: USUAL, 1: USUAL}, None),
        ({0: USUAL, 1: SLOW[:4]}, None),
        ({0: USUAL}, None),
        ({0: USUAL, 1: (300.0, 90.0, 300.0, 300.0, 300.0)}, None),
        ({0: SLOW, 1: SLOW, 2: USUAL}, None),
        ({0: (0.0,) * 5, 1: (0.0,) * 5}, None),
    ],
    ids=[
        *("one of four", "one of two", "alike", "too few times", "alone"),
        *("sometimes as fast as its peers", "one is faster", "nothing was measured"),
    ],
)
def test_stragglers(times: dict[int, tuple[float, ...]], found: Straggler | None) -> None:
    assert straggler(times) == found


def test_one_that_is_known_stays_it_until_it_is_nearly_as_fast() -> None:
    known = Straggler(1, 150)
    assert straggler({0: USUAL, 1: (120.0,) * 5}) is None
    assert straggler({0: USUAL, 1: (120.0,) * 5}, known) == Straggler(1, 120)
    assert straggler({0: USUAL, 1: (110.0,) * 5}, known) is None


def test_noise_of_a_fifth_accuses_nobody() -> None:
    chance = Random(7)
    told: list[object] = []
    times = RankTimes(lambda *said: told.append(said))
    for _ in range(500):
        for rank in range(8):
            times.take(rank, 100 * chance.uniform(0.8, 1.2))
    assert not told


def test_news_is_told_once_and_nonsense_is_left_out() -> None:
    told: list[object] = []
    times = RankTimes(lambda *said: told.append(said))
    for number in range(20):
        for rank in range(3):
            times.take(rank, 200 + number / 10 if rank == 1 else 100 + number / 10)
        times.take(7, "fast")
        times.take(7, None)
        times.take(7, -1)
        times.take(7, True)
    assert told == [("straggler", {"rank": 1, "percent": 200})]
    for number in range(20):
        for rank in range(3):
            times.take(rank, 100 + number / 10)
    assert told[-1] == ("straggler", {})
    assert len(told) <= 4, "as it becomes faster it may be told again"


def test_the_same_time_told_twice_counts_once() -> None:
    told: list[object] = []
    times = RankTimes(lambda *said: told.append(said))
    for _ in range(20):
        times.take(0, 100.0)
        times.take(1, 200.0)
    assert not told
