"""Optimus' placement rule: evenly on the fewest machines, the roomiest first."""

from __future__ import annotations

import pytest

from tests.builders import cluster, on
from trainmaster.core.occupancy import Occupancy
from trainmaster.model.job import Demand, Shape, gpus
from trainmaster.model.placement import Role
from trainmaster.policies.optimus.even_spread import evenly, place_evenly


def test_the_worked_example() -> None:
    """2 parameter servers and 4 workers: all on one machine, or (1, 2) on each of two."""
    assert evenly([6, 6, 6], servers=2, workers=4) == [(2, 4)]
    assert evenly([3, 3, 3], servers=2, workers=4) == [(1, 2), (1, 2)]


@pytest.mark.parametrize(
    ("rooms", "workers", "want"),
    [
        ([4, 4], 3, [(0, 3)]),
        ([2, 2, 2], 5, [(0, 2), (0, 2), (0, 1)]),
        ([3, 3], 4, [(0, 2), (0, 2)]),
        ([3, 1], 4, None),
        ([1, 1], 3, None),
        ([], 1, None),
    ],
)
def test_workers_alone(rooms: list[int], workers: int, want: list[tuple[int, int]] | None) -> None:
    assert evenly(rooms, 0, workers) == want


def placed(text: str, taken: tuple[int, ...], count: int, demand: Demand | None = None) -> object:
    topology = cluster(text)
    space = Occupancy(topology)
    if taken:
        space.book(on(topology, *taken), gpus(len(taken)))
    found = place_evenly(space, demand or gpus(count), count, Role.GUARANTEED)
    return None if found is None else tuple(found.gpus())


def test_the_emptiest_node_is_taken_first() -> None:
    assert placed("2x4", (0,), 1) == (4,)


def test_halves_instead_of_most_and_a_rest() -> None:
    assert placed("2x4", (0, 4), 4) == (1, 2, 5, 6)


def test_what_cannot_be_even_is_left_to_others() -> None:
    assert placed("2x4", (0, 4, 5, 6), 4) is None
    assert placed("2x4", (), 9) is None


def test_one_type_before_a_mixture() -> None:
    assert placed("a[2fast] b[3slow] c[2fast]", (), 4) == (0, 1, 5, 6)


def test_hosts_must_carry_it() -> None:
    thirsty = Demand(Shape(4), 4, 4, cpus=16_000)
    assert placed("2x4", (), 4, thirsty) == (0, 1, 4, 5)
