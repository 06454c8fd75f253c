"""Which rank is slower than its peers, and when nobody is: noise, too few times, all alike."""

from __future__ import annotations

from random import Random

import pytest

from trainmaster.engines.local.rank_times import RankTimes
from trainmaster.failures.stragglers import OwnTime, Straggler, held_up_by, straggler

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


def own(*own_ms: float, step_ms: float = 400) -> tuple[OwnTime, ...]:
    return tuple(OwnTime(each, step_ms) for each in own_ms)


QUICK = own(50, 52, 48, 51, 49)
LATE = own(250, 240, 260, 255, 245)


@pytest.mark.parametrize(
    ("times", "ranks", "found"),
    [
        ({0: QUICK, 1: LATE}, 2, Straggler(1, 200, 250, 50)),
        ({0: QUICK, 1: QUICK, 2: LATE}, 3, Straggler(2, 200, 250, 50)),
        ({0: QUICK, 1: LATE}, 3, None),
        ({0: QUICK, 1: LATE[:4]}, 2, None),
        ({0: QUICK, 1: QUICK}, 2, None),
        ({0: LATE}, 1, None),
        # it is late, but that hardly matters
        ({0: QUICK, 1: own(*(each.own_ms for each in LATE), step_ms=4000)}, 2, None),
        ({0: own(*[50] * 5, step_ms=4000), 1: own(*[250] * 5, step_ms=4000)}, 2, None),
        # only now and then
        ({0: QUICK, 1: own(250, 250, 250, 45, 250)}, 2, None),
        # of a long time of all it is a small part
        ({0: own(*[380] * 5), 1: own(*[395] * 5)}, 2, None),
        # they do not wait for each other
        ({0: QUICK, 1: own(*[250] * 5, step_ms=600)}, 2, None),
    ],
)
def test_the_rank_that_the_others_wait_for(
    times: dict[int, tuple[OwnTime, ...]], ranks: int, found: Straggler | None
) -> None:
    assert held_up_by(times, ranks) == found


def test_a_known_one_is_told_until_it_hardly_matters() -> None:
    known = Straggler(1, 200, 250, 50)
    assert held_up_by({0: QUICK, 1: own(*[100] * 5)}, 2) is None
    assert held_up_by({0: QUICK, 1: own(*[100] * 5)}, 2, known) == Straggler(1, 114, 100, 50)
    assert held_up_by({0: QUICK, 1: own(*[70] * 5)}, 2, known) is None


def test_what_ranks_tell_of_themselves_names_the_one_they_wait_for() -> None:
    told: list[object] = []
    times = RankTimes(lambda *said: told.append(said))
    for _ in range(10):
        for rank, ms in ((0, 50), (1, 250)):
            times.take_own({"rank": rank, "ranks": 2, "ms": ms, "step_ms": 400})
        times.take_own({"rank": 0, "ranks": 2, "ms": "long", "step_ms": 400})
        times.take_own({"rank": 7, "ranks": 2, "ms": 1, "step_ms": 400})
        times.take_own({})
    assert told == [("straggler", {"rank": 1, "percent": 200, "own_ms": 250, "peers_ms": 50})]
