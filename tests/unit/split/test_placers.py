"""m-TOPO, m-ETF and m-SCT: the worked examples, and what holds on every graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from tests.unit.split.graphs import G5, UNIT, devices, random_graph
from trainmaster.cli.support.model_splits import too_much_received
from trainmaster.split.devices import Device, Link, PlacementError
from trainmaster.split.exact import exact
from trainmaster.split.graph import Edge, GraphError, ModelGraph, Operator
from trainmaster.split.m_etf import m_etf
from trainmaster.split.m_sct import favourite_children, m_sct, relaxation
from trainmaster.split.m_topo import m_topo
from trainmaster.split.schedule import Schedule

PLACERS = (m_topo, m_etf, m_sct)
Placer = Callable[[ModelGraph, Sequence[Device], Link], Schedule]
FREE = Link()


def said(schedule: Schedule) -> str:
    steps = sorted(schedule.steps, key=lambda each: each.operator)
    return " ".join(f"{each.operator}{each.device}@{each.start}-{each.end}" for each in steps)


def test_m_etf_sends_c_to_the_other_device() -> None:
    made = m_etf(G5, devices(10, 10), UNIT)
    assert said(made) == "A0@0-2 B0@2-5 C1@3-7 D0@5-7 E0@9-10"
    assert made.makespan == 10
    assert [(each.operator, each.start, each.end) for each in made.transfers] == [
        ("A", 2, 3),
        ("C", 7, 9),
    ]


def test_m_etf_obeys_memory() -> None:
    assert said(m_etf(G5, devices(3, 3), UNIT)) == "A0@0-2 B0@2-5 C1@3-7 D0@5-7 E1@9-10"


@pytest.mark.parametrize("placer", PLACERS)
def test_devices_that_are_too_small_are_refused(placer: Placer) -> None:
    with pytest.raises(PlacementError, match=r"use more devices|larger"):
        placer(G5, devices(2, 2), UNIT)


def test_m_topo_fills_one_device_after_the_other() -> None:
    made = m_topo(G5, devices(10, 10), UNIT)
    assert [made.device_of[each] for each in "ABCDE"] == [0, 0, 0, 1, 1]
    assert made.makespan == 12


def test_m_topo_fills_unequal_devices_until_they_are_full() -> None:
    made = m_topo(G5, devices(4, 1), UNIT)
    assert [made.device_of[each] for each in "ABCDE"] == [0, 0, 0, 0, 1]


def test_the_linear_program_of_m_sct() -> None:
    bound, parts = relaxation(G5, UNIT)
    assert bound == pytest.approx(9)
    assert parts[2] == pytest.approx(0)
    assert parts[3] + parts[4] == pytest.approx(1)


def test_the_best_schedule_takes_9() -> None:
    assert exact(G5, devices(10, 10), UNIT).makespan == 9


def test_one_device_takes_as_long_as_all_operators() -> None:
    for placer in (*PLACERS, exact):
        assert placer(G5, devices(10), UNIT).makespan == 12


def test_an_operator_that_fits_nowhere_is_named() -> None:
    graph = ModelGraph((Operator("attention", 1, persistent=12 << 30),))
    with pytest.raises(PlacementError) as refusal:
        m_etf(graph, [Device("a", 8 << 30)], UNIT)
    assert str(refusal.value) == (
        "The operator attention needs 12.0 GiB, and the largest device has 8.0 GiB: use a larger device, or"
        " split it further."
    )


def test_no_devices_are_refused() -> None:
    with pytest.raises(PlacementError, match="name at least one"):
        m_etf(G5, [], UNIT)


def test_a_device_that_waits_for_a_favourite_leaves_others_to_the_next() -> None:
    """When B ends at 12 both C and E could start. m-ETF starts C, which is first in the order; m-SCT starts
    E, B's favourite, and C goes to the other device, which its input reaches at 14."""
    graph = ModelGraph(
        tuple(Operator(name, time) for name, time in zip("ABCDE", (4, 8, 1, 4, 3), strict=True)),
        tuple(Edge(*ends, 2) for ends in ("AB", "BC", "AD", "BE")),
    )
    assert favourite_children(graph, UNIT)[1] == 4
    assert said(m_etf(graph, devices(9, 9), UNIT)) == "A0@0-4 B0@4-12 C0@12-13 D1@6-10 E0@13-16"
    assert said(m_sct(graph, devices(9, 9), UNIT)) == "A0@0-4 B0@4-12 C1@14-15 D1@6-10 E0@12-15"


def test_each_operator_is_the_favourite_of_one() -> None:
    for seed in range(30):
        graph = random_graph(12, seed)
        found = favourite_children(graph, UNIT, threshold=0.6)
        chosen = [each for each in found if each is not None]
        assert len(chosen) == len(set(chosen))
        for parent, child in enumerate(found):
            assert child is None or child in [number for number, _ in graph.outgoing[parent]]


def test_a_tensor_is_sent_once_to_each_device() -> None:
    graph = ModelGraph(
        (
            Operator("A", 1, persistent=9),
            Operator("B", 9, persistent=9),
            Operator("C", 9, persistent=1),
        ),
        (Edge("A", "B", 4), Edge("A", "C", 4)),
    )
    made = m_etf(graph, devices(9, 10), UNIT)
    assert [made.device_of[each] for each in "ABC"] == [0, 1, 1]
    assert len(made.transfers) == 1
    two = ModelGraph(graph.operators, (Edge("A", "B", 4), Edge("A", "C", 4, tensor=1)))
    assert len(m_etf(two, devices(9, 10), UNIT).transfers) == 2


def test_devices_without_room_for_what_they_are_sent_are_named() -> None:
    graph = ModelGraph(
        (Operator("A", 1, persistent=9), Operator("B", 9, persistent=9)), (Edge("A", "B", 4),)
    )
    made = m_etf(graph, devices(9, 12), UNIT)
    assert (made.peaks, made.received) == ((9, 9), (0, 4))
    assert too_much_received(made, devices(9, 12)) == [
        "d1 is sent 4 bytes a step, which is not counted as used, and has room for 3 bytes of it"
    ]
    roomy = devices(9, 13)
    assert too_much_received(m_etf(graph, roomy, UNIT), roomy) == []


def test_streams_of_a_gpu_receive_into_its_one_memory() -> None:
    graph = ModelGraph(
        (
            Operator("A", 1, persistent=9),
            Operator("B", 9, persistent=4),
            Operator("C", 9, persistent=4),
        ),
        (Edge("A", "B", 4), Edge("A", "C", 5, tensor=1)),
    )
    streams = [Device("d0", 9), Device("g/0", 10, gpu="g"), Device("g/1", 10, gpu="g")]
    assert m_etf(graph, streams, UNIT).received == (0, 9, 9)


def test_one_tensor_at_a_time_uses_a_channel() -> None:
    graph = ModelGraph(
        (
            Operator("A", 1, persistent=1),
            Operator("B", 1, persistent=1),
            Operator("C", 1, persistent=1),
        ),
        (Edge("A", "B", 3, 1), Edge("A", "C", 3, 2)),
    )
    made = m_etf(graph, devices(1, 1, 1), UNIT)
    assert sorted((each.start, each.end) for each in made.transfers) == [(1, 4), (4, 7)]


def test_outputs_make_room_when_they_have_been_read() -> None:
    graph = ModelGraph(
        (Operator("A", 1, output=2), Operator("B", 1, output=1), Operator("C", 1, output=2)),
        (Edge("A", "B"), Edge("B", "C")),
    )
    assert said(m_etf(graph, devices(3), FREE)) == "A0@0-1 B0@1-2 C0@2-3"
    with pytest.raises(PlacementError):
        m_etf(graph, devices(2), FREE)


def test_a_group_is_on_one_device_and_reserved_as_a_whole() -> None:
    graph = ModelGraph(
        (
            Operator("A", 1, persistent=2, group="g"),
            Operator("B", 1, persistent=1),
            Operator("C", 1, persistent=2, group="g"),
        ),
    )
    for placer in PLACERS:
        made = placer(graph, devices(4, 4), FREE)
        assert made.device_of["A"] == made.device_of["C"]
    with pytest.raises(PlacementError, match="with its colocation group g"):
        m_etf(graph, devices(3, 3), FREE)


def test_virtual_devices_of_a_gpu_share_its_memory_and_send_nothing() -> None:
    streams = [Device("s0", 5, gpu="g"), Device("s1", 5, gpu="g")]
    made = m_etf(G5, streams, UNIT)
    assert not made.transfers
    assert made.makespan == 8
    assert made.peaks == (5, 5)
    with pytest.raises(PlacementError):
        m_etf(G5, [Device("s0", 4, gpu="g"), Device("s1", 4, gpu="g")], UNIT)


def test_slower_devices_take_longer() -> None:
    assert m_etf(G5, [Device("half", 9, speed=500_000)], UNIT).makespan == 24


@pytest.mark.parametrize("seed", range(40))
def test_every_schedule_can_be_carried_out(seed: int) -> None:
    graph = random_graph(7, seed)
    room = sum(each.memory for each in graph.operators)
    given = devices(room, room) if seed % 2 else devices(room * 2 // 3, room * 2 // 3)
    best = exact(graph, given, UNIT)
    for placer in PLACERS:
        try:
            made = placer(graph, given, UNIT)
        except PlacementError:
            assert not seed % 2
            continue
        check(made, graph, given, UNIT)
        assert made.makespan >= best.makespan
    check(best, graph, given, UNIT)


def test_a_large_graph_can_be_carried_out() -> None:
    graph = random_graph(300, 1)
    given = devices(*[sum(each.memory for each in graph.operators) // 2] * 3)
    for placer in PLACERS:
        check(placer(graph, given, UNIT), graph, given, UNIT)


def check(made: Schedule, graph: ModelGraph, given: Sequence[Device], link: Link) -> None:
    """One operator at a time on each device and one tensor on each channel; inputs there before they are
    read; memory within the limit, found by walking through all that is taken and given back."""
    steps = {each.operator: each for each in made.steps}
    assert len(steps) == len(made.steps) == len(graph.operators)
    for device in range(len(given)):
        _apart([(each.start, each.end) for each in made.steps if each.device == device])
        _apart([(each.start, each.end) for each in made.transfers if each.source == device])
        _apart([(each.start, each.end) for each in made.transfers if each.target == device])
    for edge in graph.edges:
        source, target = steps[edge.source], steps[edge.target]
        if source.device == target.device:
            assert source.end <= target.start
            continue
        assert any(
            each.operator == edge.source
            and each.target == target.device
            and source.end <= each.start
            and each.end <= target.start
            and each.end - each.start == link.time(edge.size)
            for each in made.transfers
        )
    for device, each in enumerate(given):
        assert _peak(made, graph, device) <= made.peaks[device] <= each.memory


def _apart(spans: list[tuple[int, int]]) -> None:
    spans.sort()
    assert all(one[1] <= next[0] for one, next in pairwise(spans))


def _peak(made: Schedule, graph: ModelGraph, device: int) -> int:
    steps = {each.operator: each for each in made.steps}
    changes: list[tuple[int, int, int]] = []
    """(time, given back before taken, bytes)."""
    for number, operator in enumerate(graph.operators):
        step = steps[operator.name]
        if step.device != device:
            continue
        readers = [graph.operators[child].name for child, _ in graph.outgoing[number]]
        until = max((steps[name].end for name in readers), default=step.end)
        changes += [(step.start, 1, operator.memory), (step.end, 0, -operator.temporary)]
        changes.append((until, 0, -operator.output))
    used = peak = 0
    for _, _, amount in sorted(changes):
        used += amount
        peak = max(peak, used)
    return peak


def test_graphs_with_faults_are_refused() -> None:
    a, b = Operator("a", 1), Operator("b", 1)
    faults = [
        (lambda: ModelGraph(()), "no operators"),
        (lambda: ModelGraph((a, a)), "named 'a'"),
        (lambda: ModelGraph((a, Operator("b", None))), "operator b has no cost"),
        (lambda: ModelGraph((a,), (Edge("a", "c"),)), "'c'"),
        (lambda: ModelGraph((a, b), (Edge("a", "b"), Edge("b", "a"))), "a -> b -> a|b -> a -> b"),
        (lambda: ModelGraph((Operator("a", -1),)), "negative time"),
        (lambda: exact(random_graph(13, 0), devices(99), UNIT), "at most 12"),
    ]
    for make, words in faults:
        with pytest.raises(GraphError, match=words):
            make()
