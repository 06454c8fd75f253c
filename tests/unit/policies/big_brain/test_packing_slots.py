"""Slots for whole jobs, and corners for halves."""

from __future__ import annotations

import pytest

from tests.builders import a_job, cluster, on
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import JobRecord
from trainmaster.model.job import Demand, Part, Shape, gpus
from trainmaster.model.placement import Sharing
from trainmaster.model.units import GIB, WHOLE
from trainmaster.policies.big_brain.packing_slots import CORNER, place_halves, place_in_slot, slot

TIME = Sharing.TIME


def sized(gib: int) -> Demand:
    return Demand(Shape(1, memory=gib * GIB), 1, 1)


def whole(gib: int) -> JobRecord:
    return JobRecord(a_job("j", sized(gib)), 0, 0, None, None)


def anywhere(gpu: int) -> bool:
    return True


@pytest.mark.parametrize("factor", [1, 2, 3, 4, 48])
def test_as_many_slots_as_the_factor_and_a_corner(factor: int) -> None:
    share = slot(factor, splits=True)
    assert share >= 1
    assert factor * share + CORNER <= WHOLE
    assert factor * slot(factor, splits=False) <= WHOLE


def test_idle_gpus_first_then_the_emptiest() -> None:
    space = Occupancy(cluster("1x3"))
    space.book(on(space.topology, 0, share=600, memory=GIB, sharing=TIME), gpus(1))
    space.book(on(space.topology, 1, share=300, memory=GIB, sharing=TIME), gpus(1))
    chosen = []
    for _ in range(3):
        placement = place_in_slot(space, whole(2), 300, TIME, anywhere)
        assert placement is not None
        space.book(placement, gpus(1))
        chosen.append(placement.slices[0].gpu)
    assert chosen == [2, 1, 2]


def test_a_gpu_that_is_not_open_or_shared_in_another_mode_is_passed_over() -> None:
    space = Occupancy(cluster("1x2"))
    space.book(on(space.topology, 0, share=300, memory=GIB, sharing=TIME), gpus(1))
    space.book(on(space.topology, 1, share=300, memory=GIB, sharing=Sharing.MPS), gpus(1))
    assert place_in_slot(space, whole(2), 300, TIME, lambda gpu: False) is None
    found = place_in_slot(space, whole(2), 300, TIME, anywhere)
    assert found is not None
    assert found.slices[0].gpu == 0


def test_memory_is_never_overbooked() -> None:
    space = Occupancy(cluster("1x1"))
    space.book(on(space.topology, 0, share=100, memory=10 * GIB, sharing=TIME), gpus(1))
    assert place_in_slot(space, whole(7), 100, TIME, anywhere) is None
    assert place_in_slot(space, whole(6), 100, TIME, anywhere) is not None


def with_free(*gib: int, topology: str) -> Occupancy:
    """GPUs with just that much memory left."""
    space = Occupancy(cluster(topology))
    for gpu, free in enumerate(gib):
        held = (16 - free) * GIB
        space.book(on(space.topology, gpu, share=500, memory=held, sharing=TIME), gpus(1))
    return space


def test_the_larger_part_goes_where_more_memory_is_free() -> None:
    split = Shape(2, parts=(Part(500, 2 * GIB), Part(500, 5 * GIB)))
    found = place_halves(with_free(6, 3, topology="1x2"), sized(7), split, TIME, anywhere)
    assert found is not None
    assert [(p.gpu, p.memory, p.stage) for p in found.slices] == [(1, 2 * GIB, 0), (0, 5 * GIB, 1)]


def test_halves_stay_on_one_node_where_they_can() -> None:
    split = Shape(2, parts=(Part(500, GIB),) * 2)
    found = place_halves(with_free(4, 0, 4, 4, topology="2x2"), sized(2), split, TIME, anywhere)
    assert found is not None
    assert found.nodes == (1,)
    apart = place_halves(with_free(4, 0, 4, 0, topology="2x2"), sized(2), split, TIME, anywhere)
    assert apart is not None
    assert apart.nodes == (0, 1)


def test_one_gpu_is_not_enough_for_two_halves() -> None:
    split = Shape(2, parts=(Part(500, GIB),) * 2)
    assert place_halves(with_free(8, topology="1x1"), sized(2), split, TIME, anywhere) is None
