"""Bookings have exact inverses, and the indices always say what the arrays say."""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import cluster, fraction, on
from trainmaster.core.occupancy import Occupancy
from trainmaster.model.job import Demand, Shape, gpus
from trainmaster.model.placement import Placement, Role, Sharing
from trainmaster.model.reasons import Refused
from trainmaster.model.units import GIB, WHOLE
from trainmaster.placement.placers import RELAXING

KEPT = (
    "free_share",
    "free_memory",
    "mode",
    "whole",
    "free_cpus",
    "free_host",
    "by_free",
    "free_gpus",
    "partial",
)
DEMANDS = (
    gpus(1),
    gpus(2),
    gpus(5),
    fraction(0.3),
    fraction(0.5, 5 * GIB),
    fraction(0.5, sharing=Sharing.TIME),
    Demand(Shape(2, memory=GIB), 2, 2, cpus=3_000, host_memory=GIB),
)
MIXED = "rack a: n0[4fast] n1[2fast]   rack b: n2[4slow/2] n3[1slow]"


def books(space: Occupancy) -> dict[str, object]:
    return {name: copy.deepcopy(getattr(space, name)) for name in KEPT}


def recounted(space: Occupancy) -> None:
    """The indices, counted again from the shares."""
    for index, node in enumerate(space.topology.nodes):
        free = [space.free_share[gpu] for gpu in range(node.first_gpu, node.first_gpu + node.gpus)]
        kind = space.node_type[index]
        whole = free.count(WHOLE)
        is_listed = [bool(row >> index & 1) for row in space.by_free[kind]]
        assert is_listed == [
            n == whole and index not in space.closed for n in range(len(is_listed))
        ]
    for kind in range(len(space.topology.types)):
        listed = {gpu: share for share, mask in space.partial[kind].items() for gpu in _bits(mask)}
        assert listed == {
            gpu: share
            for gpu, share in enumerate(space.free_share)
            if 0 < share < WHOLE
            and space.node_type[space.node_of[gpu]] == kind
            and space.node_of[gpu] not in space.closed
        }


def _bits(mask: int) -> list[int]:
    return [index for index in range(mask.bit_length()) if mask >> index & 1]


@given(st.lists(st.tuples(st.sampled_from(DEMANDS), st.booleans()), max_size=25), st.booleans())
def test_booking_and_unbooking_are_exact_inverses(
    moves: list[tuple[Demand, bool]], closes: bool
) -> None:
    """Jobs come and go at random, one node closes on the way; the last to come is the first to go."""
    space = Occupancy(cluster(MIXED))
    undo: list[tuple[Placement, Demand, dict[str, object]]] = []
    for demand, comes in moves:
        if comes or not undo:
            placement = RELAXING.shaped(space, demand, demand.nominal, Role.GUARANTEED)
            if placement is not None:
                assert space.refusal(placement, demand) is None
                undo.append((placement, demand, books(space)))
                space.book(placement, demand)
        else:
            placement, demand, before = undo.pop()
            space.unbook(placement, demand)
            assert books(space) == before
        recounted(space)
    if closes:
        space.close(0)
        recounted(space)
    while undo:
        placement, demand, _ = undo.pop()
        space.unbook(placement, demand)
    space.open(0)
    assert books(space) == books(Occupancy(cluster(MIXED)))


def test_jobs_that_leave_in_another_order_leave_nothing_behind() -> None:
    space = Occupancy(cluster(MIXED))
    fresh = books(space)
    booked = []
    for demand in DEMANDS[:-1]:
        placement = RELAXING.shaped(space, demand, demand.nominal, Role.GUARANTEED)
        assert placement is not None
        space.book(placement, demand)
        booked.append((placement, demand))
    for placement, demand in booked:
        space.unbook(placement, demand)
    assert books(space) == fresh


def test_what_a_node_gives_in_proportion() -> None:
    space = Occupancy(cluster("1x4"))
    space.book(on(space.topology, 0, 1), gpus(2))
    assert (space.free_cpus, space.free_host) == ([16_000], [128 * GIB])
    half = on(space.topology, 2, share=500, memory=GIB, sharing=Sharing.MPS)
    space.book(half, fraction(0.5, GIB))
    assert (space.free_cpus, space.free_host) == ([12_000], [96 * GIB])


def test_a_closed_node_offers_nothing_and_keeps_what_is_booked() -> None:
    space = Occupancy(cluster("2x2"))
    space.book(on(space.topology, 0), gpus(1))
    space.close(0)
    space.close(0)
    assert space.total_free() == 2
    assert space.refusal(on(space.topology, 1), gpus(1)) is Refused.NODE_UNAVAILABLE
    space.unbook(on(space.topology, 0), gpus(1))
    space.open(0)
    assert space.total_free() == 4


def test_reserved_gpus_are_hidden_and_come_back() -> None:
    space = Occupancy(cluster("1x4"))
    fresh = books(space)
    held = on(space.topology, 1, 2).slices
    space.reserve_gpus(held)
    assert space.total_free() == 2
    assert space.refusal(on(space.topology, 1), gpus(1)) is Refused.GPU_TAKEN
    space.unreserve_gpus(held)
    assert books(space) == fresh


def test_cpu_slots_are_only_for_jobs_that_ask_for_them() -> None:
    space = Occupancy(cluster("n0[2] n1[8cpu]"))
    assert [space.topology.types[kind].name for kind in space.kinds_for(gpus(1))] == ["gpu"]
    asked = Demand(Shape(1), 1, 1, gpu_type="cpu")
    assert [space.topology.types[kind].name for kind in space.kinds_for(asked)] == ["cpu"]
    either = Demand(Shape(1), 1, 1, gpu_type="any|cpu")
    assert [space.topology.types[kind].name for kind in space.kinds_for(either)] == ["gpu", "cpu"]
    assert space.topology.training_gpus == 2


def test_types_fastest_first_and_only_those_with_the_memory() -> None:
    space = Occupancy(cluster(MIXED))
    names = [kind.name for kind in space.topology.types]
    assert names == ["fast", "slow"]
    assert space.kinds_for(gpus(1)) == (0, 1)
    assert space.kinds_for(Demand(Shape(1, memory=9 * GIB), 1, 1)) == (0,)
