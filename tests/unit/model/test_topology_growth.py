"""A topology that grows: indices never change, and a node that comes back is the node that went."""

from __future__ import annotations

import pytest

from trainmaster.model.engine_reports import ClusterNode
from trainmaster.model.topology import CPU_TYPE, SLOT_TYPE, GpuType, Topology
from trainmaster.model.topology_growth import forgotten, grown, has_other_devices, topology_of
from trainmaster.model.units import GIB

H100 = GpuType("H100", 80 * GIB)


def a_node(name: str, gpus: int = 4, type_: GpuType = H100, *, rack: str = "") -> ClusterNode:
    domains = (("rack", rack),) if rack else ()
    return ClusterNode(name, "10.0.0.1", gpus, type_, 64_000, 512 * GIB, domains=domains)


def types(topology: Topology) -> list[tuple[str, int]]:
    return [(node.type.name, node.type.memory // GIB) for node in topology.nodes]


def racks(topology: Topology) -> list[int]:
    return [node.domains[topology.levels.index("rack")] for node in topology.nodes]


def test_a_cluster_of_nothing_can_grow() -> None:
    empty = topology_of(())
    assert (empty.gpu_count, empty.levels) == (0, ("cluster", "rack", "node", "gpu"))
    assert grown(empty, [a_node("n1")]) == topology_of([a_node("n1")])


def test_new_nodes_come_last_whatever_they_are_called() -> None:
    before = topology_of([a_node("n5"), a_node("n7", 2)])
    after = grown(before, [a_node("n1", 8), a_node("n6")])
    assert after.nodes[:2] == before.nodes
    assert [(each.name, each.index, each.first_gpu) for each in after.nodes] == [
        ("n5", 0, 0),
        ("n7", 1, 4),
        ("n1", 2, 6),
        ("n6", 3, 14),
    ]
    assert after.node_of_gpu[6] == after.node_of_gpu[13] == 2


def test_all_at_once_is_the_same_as_one_by_one() -> None:
    nodes = [a_node("n1", rack="a"), a_node("n2", rack="b"), a_node("n3", 2, rack="a")]
    step_by_step = topology_of(nodes[:1])
    for node in nodes:
        step_by_step = grown(step_by_step, [node])
    assert step_by_step == topology_of(nodes)


def test_a_node_that_comes_back_is_the_same_with_what_is_new_of_it() -> None:
    before = topology_of([a_node("n1"), a_node("n2")])
    back = ClusterNode("n1", "10.0.0.9", 4, H100, 32_000, 256 * GIB, uuids=("a", "b", "c", "d"))
    after = grown(before, [back])
    assert (after.nodes[0].index, after.nodes[0].memory) == (0, 256 * GIB)
    assert after.nodes[0].uuids == ("a", "b", "c", "d")
    assert after.nodes[1] == before.nodes[1]


def test_racks_keep_their_numbers_and_those_that_say_nothing_are_together() -> None:
    before = topology_of([a_node("n1", rack="b"), a_node("n2", rack="a"), a_node("n3")])
    after = grown(before, [a_node("n4"), a_node("n5", rack="a"), a_node("n6", rack="c")])
    assert racks(after) == [0, 1, 2, 2, 1, 3]


def test_racks_of_one_name_in_two_zones_are_two() -> None:
    def at(name: str, zone: str, rack: str) -> ClusterNode:
        domains = (("zone", zone), ("rack", rack))
        return ClusterNode(name, "h", 1, H100, 1000, GIB, domains=domains)

    topology = topology_of([at("n1", "x", "r1"), at("n2", "y", "r1"), at("n3", "x", "r1")])
    assert topology.levels == ("cluster", "zone", "rack", "node", "gpu")
    assert racks(topology) == [0, 1, 0]
    assert topology.levels[topology.span_of_nodes((0, 1))] == "cluster"
    assert topology.levels[topology.span_of_nodes((0, 2))] == "rack"
    assert topology.names_around(topology.nodes[1]) == {"zone": "y", "rack": "r1"}


def test_a_node_that_does_not_say_where_it_is_has_no_names_around_it() -> None:
    topology = topology_of([a_node("n1", rack="a"), a_node("n2")])
    around = [topology.names_around(node) for node in topology.nodes]
    assert around == [{"rack": "a"}, {}]


def test_levels_stay_when_a_later_node_names_others() -> None:
    before = topology_of([a_node("n1", rack="a")])
    later = ClusterNode("n2", "h", 4, H100, 1000, GIB, domains=(("zone", "x"), ("rack", "a")))
    after = grown(before, [later])
    assert after.levels == before.levels
    assert racks(after) == [0, 0]


@pytest.mark.parametrize(
    ("memory", "known_as"),
    [
        (80 * GIB, ("H100", 80)),
        (80 * GIB + GIB // 2, ("H100", 80)),
        (79 * GIB, ("H100-79GiB", 79)),
        (96 * GIB, ("H100-96GiB", 96)),
    ],
)
def test_types_of_one_name_have_one_memory_size(memory: int, known_as: tuple[str, int]) -> None:
    topology = topology_of([a_node("n1"), a_node("n2", 4, GpuType("H100", memory))])
    assert types(topology) == [("H100", 80), known_as]
    again = grown(topology, [a_node("n3", 4, GpuType("H100", memory))])
    assert types(again)[2] == known_as


@pytest.mark.parametrize("name", [SLOT_TYPE, CPU_TYPE])
def test_slots_are_alike(name: str) -> None:
    topology = topology_of(
        [a_node("n1", 4, GpuType(name, GIB)), a_node("n2", 4, GpuType(name, GIB // 2))]
    )
    assert len(topology.types) == 1


def test_a_node_with_other_devices_is_new_once_the_old_one_is_forgotten() -> None:
    before = topology_of([a_node("n1", 4), a_node("n2")])
    back = a_node("n1", 8)
    assert has_other_devices(before, back)
    assert not has_other_devices(before, a_node("n1", 4))
    assert not has_other_devices(before, a_node("n3"))
    assert grown(before, [back]) == before
    after = grown(forgotten(before, 0), [back])
    assert [(each.name, each.gpus, each.first_gpu) for each in after.nodes] == [
        ("n1~0", 4, 0),
        ("n2", 4, 4),
        ("n1", 8, 8),
    ]
