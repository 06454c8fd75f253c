"""Clusters and queues from what users write: the values, and one sentence for every mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from trainmaster.config.cluster import cluster_from
from trainmaster.config.queues import queues_from
from trainmaster.config.validation import ConfigError
from trainmaster.config.yaml_file import read_mapping
from trainmaster.model.events import NodeChange, NodeDraining, NodeLeft
from trainmaster.model.queue import Queue
from trainmaster.model.units import GIB


def _read(text: str) -> Any:
    return read_mapping(text, "the file")[0]


CLUSTER = _read("""
types:
  A100: {memory_gib: 80, speed: 1.0, price_per_hour: 3.0}
  V100: {speed: 0.4}
fabrics:
  - racks:
      - name: r1
        nodes: {count: 2, prefix: a, gpus: 8, type: A100, islands: 2, cpus: 64, memory_gib: 1024}
      - nodes: [{name: v, gpus: 4, type: V100}, {name: c, cpu_slots: 16}]
  - racks:
      - nodes: {count: 2, prefix: a, gpus: 8, type: A100}
changes: [{at_s: 60, drain: a1}, {at_s: 1.5, leave: [a2, v]}]
""")

QUEUES = _read("""
queues:
  - {name: all}
  - {name: vision, parent: all, weight: 2, guaranteed_gpus: 1.5, maximum_gpus: 8}
""")


def test_the_tree_and_its_nodes() -> None:
    topology = cluster_from(CLUSTER).topology
    assert topology.levels == ("cluster", "fabric", "rack", "node", "island", "gpu")
    assert [node.name for node in topology.nodes] == ["a0", "a1", "v", "c", "a2", "a3"]
    assert [node.domains for node in topology.nodes[1:5]] == [
        (0, 0, 0, 1),
        (0, 0, 1, 2),
        (0, 0, 1, 3),
        (0, 1, 2, 4),
    ]
    first, slots = topology.nodes[0], topology.nodes[3]
    assert first.islands == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert (first.cpus, first.memory, first.type.memory) == (64_000, 1024 * GIB, 80 * GIB)
    assert (slots.type.name, slots.gpus, slots.cpus) == ("cpu", 16, 16_000)
    assert topology.training_gpus == 36


def test_planned_changes() -> None:
    assert cluster_from(CLUSTER).changes == (
        NodeChange(60_000, NodeDraining(1)),
        NodeChange(1_500, NodeLeft(4)),
        NodeChange(1_500, NodeLeft(2)),
    )


def test_nodes_straight_under_the_top_share_a_rack() -> None:
    topology = cluster_from({"nodes": [{"gpus": 4}, {"gpus": 0}]}).topology
    assert topology.levels == ("cluster", "rack", "node", "gpu")
    assert [(node.name, node.gpus) for node in topology.nodes] == [("n0", 4), ("n1", 0)]


def test_cpu_slots_have_a_speed_of_their_own() -> None:
    types = {"cpu": {"speed": 0.05}}
    nodes = [{"gpus": 4}, {"cpu_slots": 8}]
    topology = cluster_from({"types": types, "nodes": nodes}).topology
    assert [node.type.speed_ppm for node in topology.nodes] == [1_000_000, 50_000]
    with pytest.raises(ConfigError, match="'cpu', which is not among types"):
        cluster_from({"types": types, "nodes": {"gpus": 4, "type": "cpu"}})


def test_queues() -> None:
    assert queues_from(QUEUES) == {
        "all": Queue("all"),
        "vision": Queue("vision", "all", 2, guaranteed=1_500, maximum=8_000),
    }


# -- every mistake is a sentence ---------------------------------------------------------------------

STRANGE: tuple[object, ...] = (
    *(None, -1, 0, 2.5, 1e300, float("nan"), float("inf"), 10**30, True),
    *("", "x", [], {}, [1], [None], [{}], {"a": 1}, {5: 1}),
)

Place = tuple[str | int, ...]


def places(value: Any, here: Place = ()) -> Iterator[Place]:
    yield here
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(each, (*here, key))


def changed(root: Any, place: Place, value: object) -> Any:
    root = deepcopy(root)
    if not place:
        return value
    inside = root
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    return root


@pytest.mark.parametrize(
    ("description", "read"),
    [(CLUSTER, cluster_from), (QUEUES, queues_from)],
    ids=["cluster", "queues"],
)
def test_a_strange_value_anywhere(description: Any, read: Callable[[Any], object]) -> None:
    complaints = []
    for place in places(description):
        for value in STRANGE:
            try:
                read(changed(description, place, value))
            except ConfigError as complaint:
                complaints.append(str(complaint))
    assert len(complaints) > 100
    assert [said for said in complaints if not said.endswith((".", "?")) or "\n" in said] == []
