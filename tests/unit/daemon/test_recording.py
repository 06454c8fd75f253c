"""A recording is read back as the cluster, the queues and the costs that it was made of."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.builders import cluster
from trainmaster.config.cluster import cluster_from
from trainmaster.config.performance import perf_model_from
from trainmaster.config.queues import queues_from, user_limits_from
from trainmaster.core.switch_times import SwitchTimes
from trainmaster.daemon.recording import (
    Present,
    cluster_fields,
    node_changes,
    perf_fields,
    queues_fields,
)
from trainmaster.model import codec
from trainmaster.model import events as e
from trainmaster.model.engine_reports import ClusterNode
from trainmaster.model.queue import Queue
from trainmaster.model.quota import Budget, Period, UserLimits
from trainmaster.model.topology import Topology
from trainmaster.model.units import HOUR, SECOND, WHOLE
from trainmaster.store.rows import Batch, SnapshotRow, StepRow
from trainmaster.store.store import Store


def present(topology: Topology, **others: object) -> Present:
    nobody = frozenset[int]()
    now = Present(topology, nobody, nobody, nobody, (), (), SwitchTimes(), can_freeze=True)
    return replace(now, **others)  # type: ignore[arg-type]


def shown(topology: Topology) -> list[tuple[object, ...]]:
    return [
        (node.name, node.gpus, node.type, node.cpus, node.memory, node.domains, node.islands)
        for node in topology.nodes
    ]


def test_a_cluster_is_read_back_as_it_was() -> None:
    topology = cluster("rack r1: a[4] b[4]   rack r2: c[2slow]")
    read = cluster_from(cluster_fields(present(topology)))
    assert shown(read.topology) == shown(topology)
    slots = cluster("rack r1: vm[3slot]")
    assert shown(cluster_from(cluster_fields(present(slots))).topology) == shown(slots)


def test_nodes_that_were_removed_are_left_out() -> None:
    topology = cluster("rack r1: a[4] b[4]")
    read = cluster_from(cluster_fields(present(topology, forgotten=frozenset({0}))))
    assert [node.name for node in read.topology.nodes] == ["b"]


def test_queues_and_limits_of_users_are_read_back_as_they_were() -> None:
    budget = Budget(5 * HOUR * WHOLE, Period.WEEK)
    queues = (
        Queue("lab", weight=3, guaranteed=2 * WHOLE, maximum=6 * WHOLE, budget=budget),
        Queue("vision", "lab", allow_unpreemptible=False, max_gpus_per_user=1500),
    )
    limits = (UserLimits("ada", max_gpus=4 * WHOLE, max_running=2),)
    fields = queues_fields(queues, limits)
    assert tuple(queues_from(fields).values()) == queues
    assert user_limits_from(fields) == limits
    assert queues_fields((), ()) == {}


def test_switches_cost_what_they_cost_here() -> None:
    times = SwitchTimes.of((2, 3_000, 4, 2_000, 1, 900))
    cost = perf_model_from(perf_fields(times, can_freeze=True, saves=True), "perf").preemption_cost
    assert (cost.start_ms, cost.suspend_ms, cost.resume_ms, cost.freeze_ms) == (
        500,
        1500,
        900,
        1500,
    )
    assert (cost.can_freeze, cost.saves_on_demand, cost.saves_ever) == (True, True, True)
    never = perf_model_from(perf_fields(times, can_freeze=False, saves=False), "perf")
    assert (never.preemption_cost.can_freeze, never.preemption_cost.saves_ever) == (False, False)
    assert never.has_failures
    assert not never.interferes


def test_changes_of_nodes_are_those_of_the_event_log(store: Store) -> None:
    first = cluster("rack r1: a[4] b[4]")
    now = cluster("rack r1: a[4] b[4] c[4]")
    body = json.dumps({"topology": codec.encode(first)})
    store.keep_snapshot(SnapshotRow(0, 0, body))
    new = ClusterNode("c", "10.0.0.3", 4, now.nodes[2].type, 8, 8)
    happened: list[tuple[int, e.Event]] = [
        (5, e.NodeDraining(1)),
        (20, e.NodesAdded((new,))),
        (30, e.NodeUndrained(1)),
        (40, e.NodeLeft(0)),
    ]
    steps = [
        StepRow(seq, at_s * SECOND, codec.dumps((event,)), "[]")
        for seq, (at_s, event) in enumerate(happened, 1)
    ]
    store.append([Batch(step) for step in steps])
    found = list(node_changes(store, present(now, away=frozenset({0})), 10 * SECOND))
    assert found == [
        e.NodeChange(0, e.NodeLeft(2)),
        e.NodeChange(10 * SECOND, e.NodeJoined(2)),
        e.NodeChange(30 * SECOND, e.NodeLeft(0)),
        e.NodeChange(0, e.NodeDraining(1)),
        e.NodeChange(20 * SECOND, e.NodeUndrained(1)),
    ]
    read = cluster_from(cluster_fields(present(now, away=frozenset({0})), found))
    assert len(read.changes) == 5
