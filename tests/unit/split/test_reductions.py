"""Colocation and fusion: fewer things to place."""

from __future__ import annotations

from tests.unit.split.graphs import G5, UNIT, devices, random_graph
from trainmaster.split.colocation import colocated
from trainmaster.split.devices import Link
from trainmaster.split.fusion import fused
from trainmaster.split.graph import Edge, ModelGraph, Operator
from trainmaster.split.m_etf import m_etf


def test_an_operator_with_one_consumer_joins_it() -> None:
    assert [each.group for each in colocated(G5).operators] == [None, "B", "B", "B", "B"]


def test_groups_are_no_larger_than_is_said() -> None:
    groups = [each.group for each in colocated(G5, most_memory=2).operators]
    assert max(groups.count(name) for name in groups if name) == 2


def test_stated_groups_are_kept() -> None:
    graph = ModelGraph(tuple(Operator(name, 1, group="g") for name in "ab"))
    assert [each.group for each in colocated(graph).operators] == ["g", "g"]


def test_fusion_adds_times_and_takes_the_larger_temporary() -> None:
    graph = ModelGraph(
        (
            Operator("a", 2, temporary=5, output=1, persistent=3, group="g"),
            Operator("b", 3, temporary=4, output=7, persistent=1, group="g"),
        ),
        (Edge("a", "b", 9),),
    )
    made, inside = fused(graph)
    assert made.operators == (Operator("a+b", 5, 5, 7, 4, "g"),)
    assert not made.edges
    assert inside == {"a+b": ("a", "b")}


def test_an_edge_that_could_close_a_cycle_is_not_fused() -> None:
    """a -> c directly and through x: a and c as one would read x, which reads them."""
    names = "a", "c"
    graph = ModelGraph(
        (*(Operator(name, 1, group="g") for name in names), Operator("x", 1)),
        (Edge("a", "c", 1), Edge("a", "x", 1), Edge("x", "c", 1)),
    )
    assert fused(graph)[0].operators == graph.operators


def test_fused_graphs_have_the_same_work_and_no_cycles() -> None:
    for seed in range(30):
        graph = colocated(random_graph(30, seed), most_memory=20)
        made, inside = fused(graph)
        assert sum(made.times()) == sum(graph.times())
        assert sorted(name for names in inside.values() for name in names) == sorted(graph.index)
        assert len(made.operators) < len(graph.operators)
        room = devices(10_000, 10_000)
        assert m_etf(made, room, UNIT).makespan <= sum(graph.times())


def test_the_cost_of_a_transfer() -> None:
    """Baechi's line: 0.0001754 us a byte and 134 us, here in microseconds."""
    assert Link(0.0001754, 134).time(4 << 20) == 870
