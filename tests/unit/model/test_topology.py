"""The cluster as a tree: shorthand, indices, spans, and descriptions that cannot be."""

from __future__ import annotations

import pytest

from tests.builders import cluster
from trainmaster.model.placement import Slice
from trainmaster.model.topology import NodeSpec, TopologyError, build, parse_shorthand


def test_nodes_by_gpus_are_one_rack() -> None:
    topology = parse_shorthand("15x4")
    assert (len(topology.nodes), topology.gpu_count) == (15, 60)
    assert topology.levels == ("cluster", "rack", "node", "gpu")
    assert {node.domains[1] for node in topology.nodes} == {0}


def test_racks_and_fabrics() -> None:
    racks = parse_shorthand("4x15x4")
    assert (len(racks.nodes), racks.nodes[14].domains[1], racks.nodes[15].domains[1]) == (60, 0, 1)
    fabrics = parse_shorthand("2x2x3x4")
    assert fabrics.levels == ("cluster", "fabric", "rack", "node", "gpu")
    assert [node.domains[1] for node in fabrics.nodes] == [0] * 6 + [1] * 6
    assert len({node.domains[1:3] for node in fabrics.nodes}) == 4


@pytest.mark.parametrize("text", ["4", "4x", "axb", "1x2x3x4x5", "-1x4", "", "2 x 4"])
def test_what_is_not_shorthand(text: str) -> None:
    with pytest.raises(TopologyError, match="is not of the form 15x4"):
        parse_shorthand(text)


@pytest.mark.parametrize("text", ["0x8", "8x0", "4x0x8"])
def test_a_cluster_of_nothing(text: str) -> None:
    with pytest.raises(
        TopologyError, match=f"'{text}' has no GPUs: every number must be at least 1"
    ):
        parse_shorthand(text)


@pytest.mark.parametrize(
    ("node", "gpu", "is_there"),
    [(0, 0, True), (1, 3, True), (1, 1, False), (0, 2, False), (2, 4, False), (1, -1, False)],
)
def test_a_device_is_there_on_its_own_node_only(node: int, gpu: int, is_there: bool) -> None:
    assert (
        parse_shorthand("2x2").has_devices([Slice(0, 1, 1, 0), Slice(node, gpu, 1, 0)]) is is_there
    )


def test_spans() -> None:
    topology = cluster("rack a: n1[4/2] n2[4/2]  rack b: n3[4/2]")
    names = {
        (0,): "gpu", (0, 1): "island", (1, 2): "node", (0, 4): "rack", (0, 8): "cluster",
        (0, 1, 9): "cluster",
    }  # fmt: skip
    for gpus, name in names.items():
        assert topology.levels[topology.span_of_gpus(gpus)] == name, gpus


def test_spans_inside_a_fabric() -> None:
    topology = parse_shorthand("2x2x2x2")
    assert topology.levels[topology.span_of_gpus([0, 4])] == "fabric"
    assert topology.levels[topology.span_of_gpus([0, 8])] == "cluster"


def test_unstated_cpus_and_memory_follow_the_gpus() -> None:
    node = parse_shorthand("1x4").nodes[0]
    assert (node.cpus, node.memory) == (32_000, 256 * 2**30)


def test_descriptions_that_cannot_be() -> None:
    with pytest.raises(TopologyError, match="no nodes"):
        build(("cluster", "node", "gpu"), [])
    with pytest.raises(TopologyError, match="no GPUs"):
        build(("cluster", "node", "gpu"), [NodeSpec("n", 0, (0,))])
    with pytest.raises(TopologyError, match="two nodes of the cluster are called 'n'"):
        build(("cluster", "node", "gpu"), [NodeSpec("n", 1, (0,)), NodeSpec("n", 1, (0,))])


def test_islands_inside_islands() -> None:
    spec = NodeSpec("n", 8, (0,), sockets=2, switches=4)
    topology = build(("cluster", "node", "socket", "pcie", "gpu"), [spec])
    names = {(0, 1): "pcie", (0, 2): "socket", (1, 3): "socket", (3, 4): "node", (6, 7): "pcie"}
    for gpus, name in names.items():
        assert topology.levels[topology.span_of_gpus(gpus)] == name, gpus
    sockets, switches = topology.nodes[0].island_levels
    assert sockets == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert switches == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert topology.nodes[0].islands == sockets + switches


def test_switches_lie_inside_sockets_even_when_nothing_divides_evenly() -> None:
    spec = NodeSpec("n", 6, (0,), sockets=2, switches=4)
    sockets, switches = (
        build(("cluster", "node", "socket", "pcie", "gpu"), [spec]).nodes[0].island_levels
    )
    assert sockets == ((0, 1, 2), (3, 4, 5))
    assert switches == ((0, 1), (2,), (3, 4), (5,))
