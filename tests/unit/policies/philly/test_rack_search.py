"""Racks of a locality search: which is best, how far a step reaches, where GPUs are gathered."""

from __future__ import annotations

import pytest

from tests.builders import TYPES, a_job, cluster
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import JobRecord
from trainmaster.model.job import Demand, Shape, gpus
from trainmaster.model.placement import Placement, Slice
from trainmaster.model.topology import NodeSpec, Topology, build
from trainmaster.placement.placers import RELAXING, LocalityRule
from trainmaster.policies.philly.rack_search import (
    NO_PLACEMENT,
    RackPlacer,
    RelaxationLevels,
    RelaxationLevelsCache,
    contributors,
    rack_placer,
    servers_to_acquire,
)


def space_with(free: list[list[int]], size: int = 4) -> Occupancy:
    """Racks of servers with so many free GPUs each."""
    racks = "".join(
        f"rack r{r}: " + "".join(f"n{r}{s}[{size}] " for s in range(len(rack)))
        for r, rack in enumerate(free)
    )
    space = Occupancy(cluster(racks))
    for node, left in zip(space.topology.nodes, [n for rack in free for n in rack], strict=True):
        taken = range(node.first_gpu + left, node.first_gpu + size)
        if taken:
            slices = tuple(Slice(node.index, gpu) for gpu in taken)
            space.book(Placement(slices, 0), gpus(size))
    return space


WORKED = [[4, 4, 1, 0], [4, 2, 2, 2], [3, 3, 3, 3]]


def levels(topology: Topology, demand: Demand) -> RelaxationLevels | None:
    space = Occupancy(topology)
    return RelaxationLevelsCache().of(space, space.kinds_for(demand), demand, demand.nominal.count)


def placed(space: Occupancy, count: int, step: int) -> dict[str, int] | None:
    record = JobRecord(a_job("j", count), 0, 0, None, None)
    found = rack_placer(space, RelaxationLevelsCache(), record.demand, step).place(space, record)
    if found is None:
        return None
    names = [space.topology.nodes[piece.node].name for piece in found.slices]
    return {name: names.count(name) for name in names}


@pytest.mark.parametrize(
    ("count", "step", "want"),
    [
        (8, 0, {"n00": 4, "n01": 4}),
        (12, 0, None),
        (12, 1, {"n20": 3, "n21": 3, "n22": 3, "n23": 3}),
        (13, 0, None),
        (13, 1, {"n00": 4, "n01": 4, "n10": 4, "n02": 1}),
        (32, 9, None),
    ],
)
def test_the_worked_example(count: int, step: int, want: dict[str, int] | None) -> None:
    assert placed(space_with(WORKED), count, step) == want


@pytest.mark.parametrize(
    ("rack", "count", "servers", "want"),
    [
        ([4, 4, 1, 0], 8, 2, 2),
        ([4, 2, 2, 2], 8, 2, 0),
        ([4, 2, 2, 2], 6, 2, 4),
        ([3, 3, 3, 3], 12, 4, 4),
        ([3, 3, 3, 3], 12, 3, 0),
        ([4, 2, 1, 0], 2, 1, 2),
        ([4, 2, 1, 0], 7, 9, 3),
    ],
)
def test_servers_that_can_contribute(rack: list[int], count: int, servers: int, want: int) -> None:
    space = space_with([rack])
    assert contributors(space.by_free[0], 0b1111, count, servers) == want


def test_the_rack_with_most_contributors_then_the_fuller_one() -> None:
    assert placed(space_with([[2, 0, 0], [2, 2, 0], [3, 3, 1]]), 2, 0) == {"n10": 2}
    assert placed(space_with([[2, 0, 0], [4, 2, 2], [3, 3, 1]]), 2, 0) == {"n11": 2}


def test_every_step_is_one_server_more_and_the_last_any_gpus() -> None:
    assert levels(cluster("2x4x4"), gpus(8)) == RelaxationLevels(level=1, fewest=2, most=4)
    steps = RelaxationLevels(1, 2, 4)
    assert [steps.servers(step) for step in range(5)] == [2, 3, 4, None, None]
    assert steps.last == 3
    space = space_with(WORKED)
    assert rack_placer(space, RelaxationLevelsCache(), gpus(8), 3) is RELAXING
    assert rack_placer(space, RelaxationLevelsCache(), gpus(8), 2) == RackPlacer(
        LocalityRule.CONSOLIDATED, 2
    )


def test_a_gang_has_no_more_servers_than_gpus() -> None:
    assert levels(cluster("1x39x8"), gpus(2)) == RelaxationLevels(level=1, fewest=1, most=2)


def test_what_no_rack_could_hold_takes_the_domain_around_racks() -> None:
    fabrics = [NodeSpec(f"n{i}", 4, (0, i // 4, i // 2)) for i in range(8)]
    topology = build(("cluster", "fabric", "rack", "node", "gpu"), fabrics)
    assert levels(topology, gpus(8)) == RelaxationLevels(level=2, fewest=2, most=2)
    assert levels(topology, gpus(12)) == RelaxationLevels(level=1, fewest=3, most=4)
    assert levels(topology, gpus(20)) == RelaxationLevels(level=0, fewest=5, most=8)
    assert levels(topology, gpus(33)) is None


def test_hosts_that_carry_less_make_for_more_servers() -> None:
    hungry = Demand(Shape(4), 4, 4, cpus=16_000)
    assert levels(cluster("1x4x4"), hungry) == RelaxationLevels(level=1, fewest=2, most=4)


def test_a_type_of_its_own_has_a_ladder_of_its_own() -> None:
    specs = [NodeSpec(f"n{i}", 4, (0, 0), TYPES["fast" if i else "slow"]) for i in range(3)]
    topology = build(("cluster", "rack", "node", "gpu"), specs)
    assert levels(topology, Demand(Shape(8), 8, 8, gpu_type="fast")) == RelaxationLevels(1, 2, 2)
    assert levels(topology, Demand(Shape(8), 8, 8, gpu_type="slow")) is None


def test_gpus_are_gathered_where_most_servers_have_some() -> None:
    space = space_with(WORKED)
    assert servers_to_acquire(space, RelaxationLevelsCache(), gpus(12), 0) == (8, 9, 10)
    assert servers_to_acquire(space, RelaxationLevelsCache(), gpus(12), 2) == (), "any GPUs will do"
    assert servers_to_acquire(
        space_with([[2, 0], [0, 0]]), RelaxationLevelsCache(), gpus(8), 0
    ) == (0, 1)


def test_a_sleeper_is_placed_nowhere() -> None:
    space = space_with([[4]])
    record = JobRecord(a_job("j", 1), 0, 0, None, None)
    assert NO_PLACEMENT.place(space, record) is None
    assert NO_PLACEMENT.shaped(space, record.demand, record.demand.nominal) is None
