"""Servers that keep to jobs of one size: heights, affinities, and where the next job goes."""

from __future__ import annotations

import pytest

from tests.builders import cluster
from trainmaster.core.occupancy import Occupancy
from trainmaster.model.job import gpus
from trainmaster.model.placement import Role
from trainmaster.model.topology import Topology
from trainmaster.placement.gang import placement_of
from trainmaster.policies.gandiva.affinity import (
    LoadHeap,
    Servers,
    free_server,
)


def hosting(topology: Topology, *jobs: tuple[str, int]) -> tuple[Occupancy, Servers]:
    """The cluster with a running job of so many GPUs on each of these nodes."""
    space, servers = Occupancy(topology), Servers(topology)
    for name, size in jobs:
        node, demand = topology.node_by_name[name].index, gpus(size)
        placement = placement_of(space, [(node, size)], demand.nominal, Role.GUARANTEED)
        space.book(placement, demand)
        servers.add(((node, size),), size)
    return space, servers


def chosen(topology: Topology, size: int, *jobs: tuple[str, int]) -> str | None:
    space, servers = hosting(topology, *jobs)
    node = free_server(space, servers, gpus(size), size)
    return None if node is None else topology.nodes[node].name


X_AND_Y = (("x", 4), *[("y", 1)] * 4)
"""X hosts a job of four GPUs and has four free; Y hosts four of one GPU and has eight free."""


@pytest.mark.parametrize(
    ("size", "words", "want"),
    [
        (4, "x[8] y[12] z[8]", "x"),
        (2, "x[8] y[12] z[8]", "z"),
        (2, "x[8] y[12]", "y"),
        (1, "x[8] y[12] z[8]", "y"),
        (9, "x[8] y[12] z[8]", None),
    ],
)
def test_own_affinity_then_none_then_the_less_loaded_of_another(
    size: int, words: str, want: str | None
) -> None:
    assert chosen(cluster(words), size, *X_AND_Y) == want


def test_an_empty_server_gets_the_affinity_of_its_first_job_and_loses_it_with_its_last() -> None:
    topology = cluster("2x8")
    servers = Servers(topology)
    servers.add(((0, 2),), 2)
    assert (servers.affinity(0), servers.affinity(1)) == (2, 0)
    assert servers.with_affinity(2) == 0b01
    assert servers.with_affinity(0) == 0b10
    servers.remove(((0, 2),), 2)
    assert servers.affinity(0) == 0


def test_affinity_follows_the_gpus_and_strays_are_known() -> None:
    servers = Servers(cluster("1x8"))
    servers.add(((0, 4),), 4)
    servers.add(((0, 1),), 1)
    assert servers.affinity(0) == 4
    assert list(servers.off_affinity()) == [(1, 0b1)]
    servers.remove(((0, 4),), 4)
    assert servers.affinity(0) == 1
    assert list(servers.off_affinity()) == []


def test_of_its_affinity_the_least_loaded_server_is_over_subscribed() -> None:
    topology = cluster("a[2] b[2] c[2]")
    space, servers = hosting(topology, ("a", 1), ("a", 1), ("b", 1), ("b", 1), ("c", 2))
    servers.add(((0, 1),), 1)  # a third waits for its turn on a
    own = servers.with_affinity(1)

    def least_loaded(size: int) -> int | None:
        return LoadHeap(space, servers, gpus(size), size, own).least_loaded()

    assert least_loaded(1) == 1
    assert least_loaded(3) is None
    choice = LoadHeap(space, servers, gpus(1), 1, own)
    servers.add(((1, 2),), 1)
    assert choice.least_loaded() == 0  # as loads are by now
    space.close(0)
    assert least_loaded(1) == 1
