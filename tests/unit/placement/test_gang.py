"""Whole GPUs: the best fit, the fewest nodes, the innermost domain; concrete GPUs inside islands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import (
    a_policy,
    a_scenario,
    cluster,
    finishes,
    on,
    outcome_of,
    traced,
)
from tests.policies.cases import where
from trainmaster.core.occupancy import Occupancy
from trainmaster.model.job import Demand, Shape, gpus
from trainmaster.model.placement import Placement, Role
from trainmaster.model.topology import NodeSpec, build
from trainmaster.model.units import GIB
from trainmaster.placement.placers import CONSOLIDATED, RELAXING, SPREAD, Placer, ever_fits


def placed(
    text: str, taken: dict[str, int], size: int | Demand, placer: Placer
) -> tuple[Occupancy, Placement | None]:
    """Place a job where so many GPUs of each node are already taken."""
    topology = cluster(text)
    space = Occupancy(topology)
    for name, number in taken.items():
        node = topology.node_by_name[name]
        space.book(on(topology, *range(node.first_gpu, node.first_gpu + number)), gpus(number))
    demand = gpus(size) if isinstance(size, int) else size
    return space, placer.shaped(space, demand, demand.nominal, Role.GUARANTEED)


CASES = {
    "the fullest node that fits": ("n1[4] n2[4]", {"n2": 2}, 2, RELAXING, "n2:2"),
    "the lowest number of equals": ("n1[4] n2[4]", {}, 2, RELAXING, "n1:2"),
    "an empty node for a whole one": ("n1[4] n2[4]", {"n1": 1}, 4, RELAXING, "n2"),
    "the fewest nodes": ("n1[4] n2[4] n3[2] n4[2]", {}, 6, RELAXING, "n1 n3"),
    "the rest goes where it fits best": ("n1[4] n2[4] n3[4]", {"n3": 2}, 6, RELAXING, "n1 n3:2"),
    "one rack before the cluster": (
        "rack a: n1[4] n2[4]  rack b: n3[4] n4[4]", {"n1": 1}, 8, RELAXING, "n3 n4",
    ),
    "of two racks the fuller one": (
        "rack a: n1[4] n2[4] n3[4]  rack b: n4[4] n5[4]", {}, 8, RELAXING, "n4 n5",
    ),
    "several racks where one is not enough": (
        "rack a: n1[4]  rack b: n2[4]  rack c: n3[2]", {}, 8, RELAXING, "n1 n2",
    ),
    "spread over what is free": ("n1[4] n2[4]", {"n1": 2, "n2": 3}, 3, RELAXING, "n1:2 n2:1"),
    "consolidated does not spread": ("n1[4] n2[4]", {"n1": 2, "n2": 3}, 3, CONSOLIDATED, None),
    "consolidated on two when it must be two": ("n1[4] n2[4] n3[4]", {"n1": 1}, 8, CONSOLIDATED, "n2 n3"),
    "consolidated on no more than must be": ("n1[4] n2[4] n3[4]", {"n1": 1, "n2": 1}, 8, CONSOLIDATED, None),
    "spread takes the fullest nodes": ("n1[4] n2[4] n3[4]", {"n1": 3, "n2": 2}, 4, SPREAD, "n1:1 n2:2 n3:1"),
    "spread keeps a single GPU's best fit": ("n1[4] n2[4]", {"n2": 3}, 1, SPREAD, "n2:1"),
    "too much is too much": ("n1[4] n2[4]", {"n1": 1}, 8, RELAXING, None),
    "the fastest type first": ("n1[4slow] n2[4fast]", {}, 2, RELAXING, "n2:2"),
    "the slower type where the fast one is full": ("n1[4slow] n2[4fast]", {"n2": 3}, 2, RELAXING, "n1:2"),
    "types are mixed last": ("n1[4slow] n2[4fast]", {}, 6, RELAXING, "n1 n2:2"),
    "consolidated on the fewest of unequal nodes": ("n1[4] n2[1] n3[1]", {}, 6, CONSOLIDATED, "n1 n2 n3"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "taken", "size", "placer", "want"), CASES.values(), ids=CASES)
def test_where(
    text: str, taken: dict[str, int], size: int, placer: Placer, want: str | None
) -> None:
    space, placement = placed(text, taken, size, placer)
    assert (None if placement is None else where(placement.slices, space.topology)) == want
    if placement is not None:
        assert space.refusal(placement, gpus(size)) is None
        assert placement.span == space.topology.span_of_gpus(list(placement.gpus()))


WARM = {
    "of equals one that has its files": ("n1[4] n2[4] n3[4]", {}, 2, ("n2",), "n2:2"),
    "a better fit goes before it": ("n1[4] n2[4] n3[4]", {"n1": 2}, 2, ("n2",), "n1:2"),
    "a whole gang on them": ("n1[4] n2[4] n3[4] n4[4]", {}, 8, ("n2", "n4"), "n2 n4"),
    "not at the price of a wider span": (
        "rack a: n1[4] n2[4]  rack b: n3[4] n4[4]", {"n1": 1}, 8, ("n1", "n2"), "n3 n4",
    ),
    "of equal racks the one with more of them": (
        "rack a: n1[4] n2[4]  rack b: n3[4] n4[4]", {}, 8, ("n1", "n3", "n4"), "n3 n4",
    ),
    "not a slower type": ("n1[4fast] n2[4slow]", {}, 2, ("n2",), "n1:2"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "taken", "size", "warm", "want"), WARM.values(), ids=WARM)
def test_nodes_that_have_its_files_go_first_where_all_else_is_equal(
    text: str, taken: dict[str, int], size: int, warm: tuple[str, ...], want: str
) -> None:
    nodes = tuple(cluster(text).node_by_name[name].index for name in warm)
    space, placement = placed(text, taken, replace(gpus(size), warm=nodes), RELAXING)
    assert placement is not None
    assert where(placement.slices, space.topology) == want


def test_a_named_type_is_insisted_on() -> None:
    demand = Demand(Shape(2), 2, 2, gpu_type="slow")
    space, placement = placed("n1[4fast] n2[4slow]", {}, demand, RELAXING)
    assert placement is not None
    assert where(placement.slices, space.topology) == "n2:2"


def test_gpus_of_one_island_where_possible() -> None:
    topology = cluster("n1[8/2]")
    space = Occupancy(topology)
    space.book(on(topology, 0), gpus(1))
    assert tuple(RELAXING.shaped(space, gpus(3), Shape(3), Role.GUARANTEED).gpus()) == (1, 2, 3)  # type: ignore[union-attr]
    four = RELAXING.shaped(space, gpus(4), Shape(4), Role.GUARANTEED)
    assert four is not None
    assert tuple(four.gpus()) == (4, 5, 6, 7)
    assert topology.levels[four.span] == "island"
    five = RELAXING.shaped(space, gpus(5), Shape(5), Role.GUARANTEED)
    assert five is not None
    assert topology.levels[five.span] == "node"


def test_the_innermost_island_that_holds_it() -> None:
    spec = NodeSpec("n", 8, (0,), sockets=2, switches=4)
    topology = build(("cluster", "node", "socket", "pcie", "gpu"), [spec])
    space = Occupancy(topology)
    space.book(on(topology, 0, 2), gpus(2))
    for count, chosen, span in ((2, (4, 5), "pcie"), (3, (4, 5, 6), "socket"), (5, None, "node")):
        found = RELAXING.shaped(space, gpus(count), Shape(count), Role.GUARANTEED)
        assert found is not None
        assert topology.levels[found.span] == span
        assert chosen is None or tuple(found.gpus()) == chosen


def test_nodes_without_host_memory_are_passed_by() -> None:
    topology = cluster("n1[4] n2[4]")
    space = Occupancy(topology)
    greedy = Demand(Shape(1), 1, 1, host_memory=250 * GIB)
    space.book(on(topology, 0), greedy)
    small = RELAXING.shaped(space, gpus(1), Shape(1), Role.GUARANTEED)
    assert small is not None
    assert small.nodes == (1,)


def test_a_job_that_needs_more_host_memory_per_gpu_is_spread_thinner() -> None:
    """Two nodes of 4 GPUs and 256 GiB hold four GPUs with 100 GiB each, two by two."""
    demand = Demand(Shape(4), 4, 4, host_memory=100 * GIB)
    space, placement = placed("n1[4] n2[4]", {}, demand, RELAXING)
    assert placement is not None
    assert where(placement.slices, space.topology) == "n1:2 n2:2"


def test_ever_fits_asks_the_empty_cluster() -> None:
    space = Occupancy(cluster("2x4"))
    assert ever_fits(space, gpus(8))
    assert not ever_fits(space, gpus(9))
    assert not ever_fits(space, Demand(Shape(1), 1, 1, gpu_type="h100"))
    assert not ever_fits(space, Demand(Shape(1, memory=17 * GIB), 1, 1))


def test_a_gang_that_needs_much_host_memory_is_consolidated_as_far_as_that_goes() -> None:
    """256 GiB carry two GPUs of 90 GiB each: three need two nodes, and yarn-cs must know."""
    hungry = Demand(Shape(3), 3, 3, host_memory=90 * GIB)
    result = outcome_of(a_scenario([traced("hungry", hungry, 10)], "2x4"), a_policy("yarn-cs"))
    assert finishes(result) == {"hungry": 10}
