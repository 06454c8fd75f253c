"""A machine that finds its GPUs in another order: a GPU is known by its UUID."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.core.stage import Strings
from tests.unit.core.test_other_slots import gpus_of, on
from trainmaster.model.topology import GpuType, NodeSpec, Topology, build
from trainmaster.model.units import GIB


def gpus(*nodes: tuple[str, str, str], memory: int = 80 * GIB) -> Topology:
    """Name, kind and the UUIDs, one letter each."""
    specs = [
        NodeSpec(
            *(name, len(uuids), (0,), GpuType(kind, memory)),
            memory=64 * GIB,
            uuids=tuple(uuids),
        )
        for name, kind, uuids in nodes
    ]
    return build(("cluster", "node", "gpu"), specs)


def world(*nodes: tuple[str, str, str]) -> Strings:
    return Strings(gpus(*nodes), can_freeze=False)


def test_runs_keep_their_gpus_when_the_order_changes() -> None:
    stage = world(("n0", "H100", "abcd")).running("x", 0, 1).running("y", 3)
    found = on(stage, gpus(("n0", "H100", "dcba")))
    assert (found.lost, gpus_of(found, "x"), gpus_of(found, "y")) == ((), [3, 2], [0])


def test_a_run_whose_gpu_is_gone_is_lost_although_another_has_its_number() -> None:
    stage = world(("n0", "H100", "abc")).running("x", 0).running("y", 2)
    found = on(stage, gpus(("n0", "H100", "bcz")))
    assert [run.job for run in found.lost] == ["x"]
    assert gpus_of(found, "y") == [1]


def test_nodes_follow_their_gpus_when_names_change() -> None:
    """A machine with two kinds is two nodes, and the kind that is found first has the plain name."""
    stage = world(("host", "H100", "ab"), ("host-l4-1", "L4", "c")).running("x", 1).running("y", 2)
    found = on(stage, gpus(("host", "L4", "c"), ("host-h100-1", "H100", "ba")))
    assert (found.lost, gpus_of(found, "x"), gpus_of(found, "y")) == ((), [1], [0])
    placement = found.controller.state.jobs["x"].placement
    assert placement is not None
    assert placement.nodes == (1,)


def test_a_store_that_knows_no_uuids_goes_by_number_and_learns_them() -> None:
    known = gpus(("n0", "H100", "ab"))
    former = replace(known, nodes=tuple(replace(node, uuids=()) for node in known.nodes))
    found = on(Strings(former, can_freeze=False).running("x", 1), known)
    assert (found.lost, gpus_of(found, "x")) == ((), [1])
    assert found.controller.state.topology.uuids == ("a", "b")


def test_another_amount_of_bookable_memory_changes_no_gpu() -> None:
    stage = world(("n0", "H100", "ab")).running("x", 1)
    found = on(stage, gpus(("n0", "H100", "ab"), memory=40 * GIB))
    assert (found.lost, gpus_of(found, "x")) == ((), [1])
