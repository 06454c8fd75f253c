"""Parts of GPUs: two halves on one, memory never over-booked, split models on GPUs of their own."""

from __future__ import annotations

from tests.builders import cluster, fraction
from trainmaster.core.occupancy import Occupancy
from trainmaster.model.job import Demand, Part, Shape, gpus
from trainmaster.model.placement import Placement, Role, Sharing
from trainmaster.model.units import GIB
from trainmaster.placement.placers import RELAXING


def place(space: Occupancy, demand: Demand) -> Placement | None:
    placement = RELAXING.shaped(space, demand, demand.nominal, Role.GUARANTEED)
    if placement is not None:
        assert space.refusal(placement, demand) is None
        space.book(placement, demand)
    return placement


def sites(space: Occupancy, *demands: Demand) -> list[tuple[int, ...] | None]:
    found = [place(space, demand) for demand in demands]
    return [None if placement is None else tuple(placement.gpus()) for placement in found]


def test_two_halves_share_a_gpu() -> None:
    assert sites(Occupancy(cluster("1x2")), fraction(0.5), fraction(0.5)) == [(0,), (0,)]


def test_a_half_and_more_than_a_half_do_not() -> None:
    assert sites(Occupancy(cluster("1x2")), fraction(0.5), fraction(0.6)) == [(0,), (1,)]
    assert sites(Occupancy(cluster("1x1")), fraction(0.5), fraction(0.6)) == [(0,), None]


def test_the_fullest_gpu_that_fits_comes_first() -> None:
    assert sites(
        Occupancy(cluster("1x3")), fraction(0.3), fraction(0.8), fraction(0.2), fraction(0.7)
    ) == [(0,), (1,), (1,), (0,)]


def test_memory_is_never_overbooked() -> None:
    fat = fraction(0.2, 10 * GIB)
    assert sites(Occupancy(cluster("1x2")), fat, fat, fat) == [(0,), (1,), None]


def test_unstated_memory_follows_the_share() -> None:
    placement = place(Occupancy(cluster("1x1")), fraction(0.25))
    assert placement is not None
    assert placement.slices[0].memory == 4 * GIB
    assert placement.sharing is Sharing.MPS


def test_modes_do_not_mix_on_a_gpu() -> None:
    timed = fraction(0.3, sharing=Sharing.TIME)
    assert sites(Occupancy(cluster("1x2")), fraction(0.3), timed, timed) == [(0,), (1,), (1,)]


def test_whole_jobs_keep_off_shared_gpus() -> None:
    assert sites(Occupancy(cluster("1x2")), fraction(0.1), gpus(1), gpus(1)) == [(0,), (1,), None]


def test_every_piece_has_a_gpu_of_its_own_near_the_others() -> None:
    space = Occupancy(cluster("2x2"))
    pair = Demand(Shape(2, 300), 2, 2)
    assert sites(space, pair, pair) == [(0, 1), (0, 1)]


def test_parts_of_a_split_keep_their_stage_and_their_memory() -> None:
    split = Shape(2, parts=(Part(300, 2 * GIB), Part(700, 9 * GIB)))
    demand = Demand(Shape(1), 1, 1, splits=(split,), sharing=Sharing.MPS)
    space = Occupancy(cluster("1x2"))
    placement = RELAXING.shaped(space, demand, split, Role.OPPORTUNISTIC)
    assert placement is not None
    assert [(piece.share, piece.memory, piece.stage) for piece in placement.slices] == [
        (300, 2 * GIB, 0),
        (700, 9 * GIB, 1),
    ]
    assert len(set(placement.gpus())) == 2
    assert placement.role is Role.OPPORTUNISTIC


def test_a_gang_of_parts_is_placed_whole_or_not_at_all() -> None:
    assert sites(Occupancy(cluster("1x1")), Demand(Shape(2, 300), 2, 2)) == [None]
