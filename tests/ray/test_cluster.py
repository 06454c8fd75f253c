"""The cluster that the other tests stand on: what it kills is dead for Ray, and what comes back is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.ray.cluster import HEAD, RayCluster, marked, program_of, two_racks
from tests.ray.conftest import OWN_CLUSTER

pytestmark = OWN_CLUSTER


@pytest.fixture(scope="module")
def cluster(wide_cluster: RayCluster) -> RayCluster:
    return wide_cluster


def test_nodes_have_addresses_labels_and_devices_of_their_own(cluster: RayCluster) -> None:
    rows = {row["name"]: row for row in cluster.truth.ask() if row["alive"]}
    assert set(rows) == {HEAD, "n0", "n1"}
    assert len({row["host"] for row in rows.values()}) == 3
    assert [rows[name]["labels"]["rack"] for name in ("n0", "n1")] == ["r0", "r1"]
    assert [rows[name]["gpus"] for name in (HEAD, "n0", "n1")] == [0, 4, 4]
    assert cluster.taken() == {"n0": 0, "n1": 0}


def test_a_node_that_is_killed_is_dead_and_leaves_nothing_and_may_return(
    cluster: RayCluster,
) -> None:
    assert {"raylet"} <= {program_of(pid) for pid in cluster.pids("n1")}
    others = set(cluster.pids("n0"))
    cluster.kill_node("n1")
    cluster.until_gone("n1")
    assert cluster.pids("n1") == []
    assert others <= set(cluster.pids("n0"))
    cluster.start_node("n1")
    assert cluster.alive() == {"n0", "n1"}


def test_the_head_is_frozen_and_killed_and_comes_back(cluster: RayCluster) -> None:
    with cluster.frozen_head():
        assert cluster.gcs()
    assert cluster.alive() == {"n0", "n1"}
    cluster.kill_head()
    cluster.start_head()
    cluster.until_answers()


def test_nothing_of_a_cluster_is_left_when_it_is_closed(tmp_path: Path) -> None:
    with RayCluster.running(*two_racks(1)) as another:
        assert another.pids("n0")
        session = another.session
    assert marked(session) == []
    assert not os.path.exists(another.folder)
