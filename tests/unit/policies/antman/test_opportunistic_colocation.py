"""Guaranteed and opportunistic placements on the same GPUs."""

from __future__ import annotations

import pytest

from tests.builders import a_job, cluster, fraction, on
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import JobRecord
from trainmaster.model.job import Demand, Part, Shape, gpus
from trainmaster.model.placement import Role, Sharing
from trainmaster.model.profile import Profile
from trainmaster.model.units import GIB, MIB, NOMINAL, WHOLE
from trainmaster.policies.antman.opportunistic_colocation import (
    SpareCycles,
    place_guaranteed,
    unguaranteed,
)

LIMIT = 800_000


def a_record(demand: Demand, *, busy: float | None = None) -> JobRecord:
    used = None if busy is None else round(busy * NOMINAL)
    return JobRecord(a_job("j", demand, gpu_util_ppm=used), 0, 0, None, None)


def sized(count: int, gib: int) -> Demand:
    return Demand(Shape(count, memory=gib * GIB), count, count)


def taken(topology: str, *devices: int, gib: int = 4, role: Role = Role.GUARANTEED) -> Occupancy:
    """A cluster with one run on each of these GPUs."""
    space = Occupancy(cluster(topology))
    for gpu in devices:
        kind = {"sharing": Sharing.TIME, "role": role}
        space.book(on(space.topology, gpu, memory=gib * GIB, **kind), gpus(1))
    return space


def test_a_guaranteed_run_shares_by_turns_and_books_its_memory() -> None:
    space = Occupancy(cluster("1x2"))
    placement = place_guaranteed(space, a_record(sized(2, 5)), WHOLE)
    assert placement is not None
    assert (placement.sharing, placement.role) == (Sharing.TIME, Role.GUARANTEED)
    assert [(p.gpu, p.share, p.memory) for p in placement.slices] == [
        (0, WHOLE, 5 * GIB),
        (1, WHOLE, 5 * GIB),
    ]


def test_unstated_memory_is_all_of_the_gpu() -> None:
    space = Occupancy(cluster("1x1"))
    placement = place_guaranteed(space, a_record(gpus(1)), WHOLE)
    assert placement is not None
    assert placement.slices[0].memory == 16 * GIB


def test_measured_memory_and_utilisation_are_as_good_as_stated_ones() -> None:
    space = taken("1x1", 0, gib=8)
    guest = a_record(gpus(1))
    unknown = SpareCycles(space, lambda gpu: 0, LIMIT).place(guest)
    assert unknown is not None
    assert unknown.slices[0].memory == 4 * GIB, "a quarter of the GPU's until it is measured"
    guest.profile = Profile(gpu_util_ppm=250_000, gpu_memory=5 * GIB)
    placement = SpareCycles(space, lambda gpu: 0, LIMIT).place(guest)
    assert placement is not None
    assert [(piece.share, piece.memory) for piece in placement.slices] == [(250, 5632 * MIB)]


def test_a_peak_near_the_end_of_the_memory_still_finds_a_gpu() -> None:
    record = a_record(gpus(1))
    record.profile = Profile(gpu_memory=15 * GIB)
    placement = place_guaranteed(Occupancy(cluster("1x1")), record, WHOLE // 2)
    assert placement is not None
    assert placement.slices[0].memory == 16 * GIB


def test_a_fraction_takes_its_part_of_the_guarantee_and_of_the_memory() -> None:
    placement = place_guaranteed(Occupancy(cluster("1x1")), a_record(fraction(0.25)), WHOLE)
    assert placement is not None
    assert (placement.slices[0].share, placement.slices[0].memory) == (WHOLE // 4, 4 * GIB)


def test_parts_of_a_split_keep_their_own_memory() -> None:
    shape = Shape(2, parts=(Part(300, GIB), Part(500, 3 * GIB)))
    placement = place_guaranteed(Occupancy(cluster("1x2")), a_record(Demand(shape, 2, 2)), WHOLE)
    assert placement is not None
    assert [(p.stage, p.share, p.memory) for p in placement.slices] == [
        (0, WHOLE, GIB),
        (1, WHOLE, 3 * GIB),
    ]


def test_two_may_share_where_that_is_allowed() -> None:
    space = Occupancy(cluster("1x1"))
    record = a_record(sized(1, 5))
    for _ in range(2):
        placement = place_guaranteed(space, record, WHOLE // 2)
        assert placement is not None
        space.book(placement, record.demand)
    assert place_guaranteed(space, record, WHOLE // 2) is None
    assert space.free_memory == [6 * GIB]


def test_gpus_without_a_guaranteed_run_are_those_idle_or_used_by_opportunists() -> None:
    space = taken("1x4", 1)
    opportunist = on(space.topology, 2, memory=GIB, sharing=Sharing.TIME, role=Role.OPPORTUNISTIC)
    space.book(opportunist, gpus(1))
    space.reserve_gpus([space.whole_slices[3]], open_to_spare=True)
    assert [piece.gpu for piece in unguaranteed(space, gpus(4), 4)] == [0, 2]
    assert [piece.gpu for piece in unguaranteed(space, gpus(4), 1)] == [0]


@pytest.mark.parametrize(
    ("busy", "chosen"),
    [([700_000, 300_000], [1]), ([300_000, 700_000], [0]), ([800_000, 900_000], None)],
)
def test_the_least_busy_gpu_below_the_limit(busy: list[int], chosen: list[int] | None) -> None:
    spare = SpareCycles(taken("1x2", 0, 1), lambda gpu: busy[gpu], LIMIT)
    placement = spare.place(a_record(sized(1, 4), busy=0.3))
    assert chosen == (None if placement is None else [*placement.gpus()])


def test_what_an_opportunist_books_is_what_it_keeps_busy() -> None:
    spare = SpareCycles(taken("1x1", 0), lambda gpu: 300_000, LIMIT)
    known, unknown = a_record(sized(1, 4), busy=0.3), a_record(sized(1, 4))
    shares = [spare.place(known), spare.place(unknown)]
    assert [placement.total_share for placement in shares if placement] == [300, WHOLE]


def test_a_gpu_that_was_joined_is_busier() -> None:
    space = taken("1x1", 0)
    spare = SpareCycles(space, lambda gpu: 300_000, LIMIT)
    record = a_record(sized(1, 1), busy=0.3)
    for _ in range(2):
        placement = spare.place(record)
        assert placement is not None
        space.book(placement, record.demand)
        spare.note(record, placement)
    assert spare.place(record) is None, "0.3 + 0.3 + 0.3"


def test_memory_modes_reservations_and_closed_nodes_are_respected() -> None:
    record = a_record(sized(1, 4), busy=0.1)
    assert SpareCycles(taken("1x1", 0, gib=13), lambda gpu: 0, LIMIT).place(record) is None
    exclusive = Occupancy(cluster("1x1"))
    exclusive.book(on(exclusive.topology, 0), gpus(1))
    assert SpareCycles(exclusive, lambda gpu: 0, LIMIT).place(record) is None
    space = Occupancy(cluster("2x1"))
    space.reserve_gpus([space.whole_slices[0]])
    space.close(1)
    assert SpareCycles(space, lambda gpu: 0, LIMIT).place(record) is None
    space.unreserve_gpus([space.whole_slices[0]])
    space.reserve_gpus([space.whole_slices[0]], open_to_spare=True)
    assert SpareCycles(space, lambda gpu: 0, LIMIT).place(record) is not None


def test_a_gang_needs_a_gpu_for_each_piece() -> None:
    spare = SpareCycles(taken("1x2", 0, 1), lambda gpu: 0, LIMIT)
    assert spare.place(a_record(sized(3, 1))) is None
    placement = spare.place(a_record(sized(2, 1)))
    assert placement is not None
    assert sorted(placement.gpus()) == [0, 1]
