"""Nodes that come are used at once; a forgotten one counts no more, and no index ever changes."""

from __future__ import annotations

from tests.builders import a_policy, on
from tests.unit.core.stage import Strings
from trainmaster.core.lifecycle import Phase
from trainmaster.core.snapshot import restored, snapshot_of
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.engine_reports import ClusterNode
from trainmaster.model.job import Run, gpus
from trainmaster.model.topology import CPU_TYPE, GpuType
from trainmaster.model.topology_growth import topology_of
from trainmaster.model.units import GIB
from trainmaster.placement.placers import ever_fits


def a_node(name: str, gpus: int = 2, kind: str = "gpu", memory: int = 64 * GIB) -> ClusterNode:
    return ClusterNode(name, "host", gpus, GpuType(kind), 8_000, memory)


def grown_stage(*nodes: ClusterNode) -> Strings:
    return Strings(topology_of(nodes))


def added(stage: Strings, *nodes: ClusterNode) -> Strings:
    stage.tell(e.NodesAdded(nodes))
    stage.topology = stage.state.topology
    return stage


def test_a_new_node_takes_jobs_beside_what_runs() -> None:
    stage = grown_stage(a_node("n1")).running("x", 0, 1).submit("y", 2)
    added(stage, a_node("n2"))
    assert stage.state.occupancy.total_free() == 2
    assert stage.plan(a.Start("y", stage.on(2, 3)))
    assert stage.phase("x") is Phase.RUNNING


def test_a_cluster_may_begin_with_nothing() -> None:
    stage = added(grown_stage().submit("x"), a_node("n1"))
    assert stage.plan(a.Start("x", stage.on(0)))


def test_a_type_that_was_not_there_can_be_asked_for() -> None:
    stage = added(grown_stage(a_node("n1")), a_node("n2", 4, CPU_TYPE))
    assert stage.state.occupancy.total_free() == 6
    assert stage.controller.view.topology.training_gpus == 2


def test_a_node_that_is_back_with_other_memory_is_open_and_keeps_its_index() -> None:
    stage = grown_stage(a_node("n1"), a_node("n2"))
    stage.tell(e.NodeLeft(0))
    assert stage.state.occupancy.total_free() == 2
    added(stage, a_node("n1", memory=32 * GIB))
    assert stage.state.occupancy.total_free() == 4
    assert stage.state.occupancy.free_host[0] == 32 * GIB


def test_a_drain_stays_when_the_node_returns() -> None:
    stage = grown_stage(a_node("n1"))
    stage.tell(e.NodeDraining(0), e.NodeLeft(0))
    added(stage, a_node("n1", memory=32 * GIB))
    assert stage.state.draining == {0}
    assert stage.state.occupancy.total_free() == 0
    stage.tell(e.NodeUndrained(0))
    assert stage.state.occupancy.total_free() == 2


def test_events_of_one_step_may_speak_of_its_new_nodes() -> None:
    stage = grown_stage(a_node("n1"))
    stage.tell(e.NodesAdded((a_node("n2"), a_node("n3"))), e.NodeDraining(1), e.NodeLeft(2))
    assert stage.state.occupancy.total_free() == 2


def test_a_forgotten_node_counts_no_more_and_leaves_its_name() -> None:
    stage = grown_stage(a_node("n1", 8), a_node("n2")).submit("x", 1)
    stage.tell(e.NodeDraining(0), e.GpuSetAside(0, 3), e.NodeForgotten(0))
    state = stage.state
    assert (state.forgotten, state.draining, state.gpus_aside) == ({0}, set(), {})
    assert not ever_fits(state.occupancy, gpus(8), is_moldable=False)
    stage.tell(e.NodeJoined(0), e.GpuSetAside(0, 1), e.NodeUndrained(0))
    assert (state.gpus_aside, state.occupancy.total_free()) == ({}, 2)
    added(stage, a_node("n1", 4))
    assert [(node.name, node.first_gpu) for node in state.topology.nodes] == [
        ("n1~0", 0),
        ("n2", 8),
        ("n1", 10),
    ]
    assert state.occupancy.total_free() == 6


def test_a_start_on_a_node_that_is_forgotten_is_revoked() -> None:
    stage = grown_stage(a_node("n1"), a_node("n2")).running("x", 0).submit("y")
    stage.plan(a.Suspend("x"), a.Start("y", stage.on(0)))
    stage.tell(e.NodeForgotten(0))
    assert stage.phase("y") is Phase.PENDING
    stage.tell(e.RunLost(Run("x", 1)))
    assert stage.plan(a.Start("y", on(stage.state.topology, 2)))


def test_what_was_forgotten_stays_so_in_a_snapshot() -> None:
    stage = grown_stage(a_node("n1"), a_node("n2"))
    stage.tell(e.NodeForgotten(1))
    topology = stage.state.topology
    back = restored(snapshot_of(stage.controller), topology, a_policy("fifo"), can_freeze=False)
    assert back.controller.state.forgotten == {1}
    assert back.controller.state.occupancy.total_free() == 2
