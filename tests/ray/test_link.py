"""The link to a real cluster: nodes, calls, and what becomes of both when parts of the cluster die."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.live.daemons import until
from tests.ray.cluster import RayCluster, kill
from tests.ray.conftest import OWN_CLUSTER
from tests.ray.linked import Linked
from trainmaster.engines.protocol import EngineError
from trainmaster.engines.ray.node_link import (
    NodeFound,
    NodeGone,
    NodeSilent,
    NotReserved,
    Unreachable,
)
from trainmaster.model.job import Run
from trainmaster.model.topology import SLOT_TYPE

pytestmark = OWN_CLUSTER
ONE, TWO = Run("1", 1), Run("2", 1)


@pytest.fixture(scope="module")
def cluster(wide_cluster: RayCluster) -> RayCluster:
    return wide_cluster


@pytest.fixture(scope="module")
def link(cluster: RayCluster) -> Iterator[Linked]:
    with Linked.to(cluster.address) as linked:
        yield linked


def test_nodes_are_found_with_their_devices_and_racks(link: Linked) -> None:
    nodes = {each.name: each for each in link.gateway.nodes}
    assert set(nodes) == {"n0", "n1"}  # and not the head, which has no devices
    assert [nodes[name].domains for name in ("n0", "n1")] == [(("rack", "r0"),), (("rack", "r1"),)]
    assert {(each.gpus, each.type.name, each.cpus) for each in nodes.values()} == {
        (4, SLOT_TYPE, 4000)
    }
    assert nodes["n0"].host != nodes["n1"].host


def test_calls_reach_their_node_and_answers_and_exceptions_come_back(
    link: Linked, cluster: RayCluster
) -> None:
    assert link.call("n1", "echo", Run("7", 2), None) == (Run("7", 2), None)
    with pytest.raises(LookupError, match="not here"):
        link.call("n0", "fail", "not here")
    for name in ("n0", "n1"):
        folder, pid = link.call(name, "place")
        assert folder.endswith(f"/s1/{name}")
        assert cluster.node_of(pid) == name


def test_programs_get_the_raylets_environment_and_not_that_of_rays_tasks(link: Linked) -> None:
    found = link.call("n0", "environ")
    assert "OMP_NUM_THREADS" not in found
    assert "CUDA_VISIBLE_DEVICES" not in found


def test_what_a_run_holds_is_taken_for_everybody_and_given_back(
    link: Linked, cluster: RayCluster
) -> None:
    link.reserve(ONE, {"n0": 2, "n1": 1}, {"n0": 1500})
    link.reserve(ONE, {"n0": 2, "n1": 1}, {"n0": 1500})  # once more changes nothing
    assert link.reserved() == {ONE: {"n0": 2000, "n1": 1000}}
    until(lambda: cluster.taken() == {"n0": 2, "n1": 1}, "Ray to see it")
    link.reserve(ONE, {"n0": 4})
    until(lambda: cluster.taken() == {"n0": 4, "n1": 0}, "Ray to see the change")
    link.reserve(ONE, {"n0": 1})
    until(lambda: cluster.taken() == {"n0": 1, "n1": 0}, "Ray to see that it shrank")
    link.reserve(ONE, {})
    link.reserve(ONE, {})
    assert link.reserved() == {}
    until(lambda: cluster.taken() == {"n0": 0, "n1": 0}, "Ray to see that it is free")


def test_what_others_hold_is_told_and_is_not_ours_to_reserve(
    link: Linked, cluster: RayCluster
) -> None:
    with Linked.to(cluster.address, "s2") as other:
        other.reserve(TWO, {"n1": 3})
        until(lambda: link.taken("n1") == 3, "it to be told")
        link.reserve(ONE, {"n0": 4, "n1": 1})
        with pytest.raises(NotReserved, match=r"needs 1 GPUs.*0 free"):
            link.reserve(ONE, {"n0": 4, "n1": 2})
        assert link.reserved() == {ONE: {"n0": 4000, "n1": 1000}}
        until(lambda: other.taken("n0") == 4, "ours to be told to the other")
        assert link.taken("n0") == 0
        other.reserve(TWO, {})
        link.reserve(ONE, {})
        until(lambda: link.taken("n1") == 0, "it to be told that they are free")


def test_reservations_outlive_a_manager(link: Linked, cluster: RayCluster) -> None:
    with Linked.to(cluster.address, "s3") as first:
        first.reserve(ONE, {"n0": 1})
    with Linked.to(cluster.address, "s3") as second:
        assert second.reserved() == {ONE: {"n0": 1000}}
        second.reserve(ONE, {})
        assert second.reserved() == {}


def test_a_gateway_that_ends_is_started_again_and_the_launchers_go_on(link: Linked) -> None:
    _, launcher = link.call("n0", "place")
    found = len(link.said(NodeFound, "n0"))
    assert link.gateway.pid is not None
    kill(link.gateway.pid)
    assert link.until_called("n0", "place")[1] == launcher
    assert len(link.said(NodeFound, "n0")) == found
    assert link.said(NodeSilent, "n0") == []


def test_a_launcher_that_is_killed_is_started_again_on_its_node(link: Linked) -> None:
    found = len(link.said(NodeFound, "n0"))
    _, launcher = link.call("n0", "place")
    os.kill(launcher, signal.SIGKILL)
    with pytest.raises(Unreachable):
        link.call("n0", "wait", 60)
    link.until_said(NodeFound, "n0", found + 1)
    assert link.until_called("n0", "place")[1] != launcher
    assert link.said(NodeSilent, "n0") == []


def test_a_raylet_that_is_killed_is_silent_then_gone_and_may_come_back_and_so_is_what_nobody_knows(
    link: Linked, cluster: RayCluster
) -> None:
    with pytest.raises(Unreachable):
        link.call("nowhere", "echo")
    assert "no node of this name" in link.until_said(NodeSilent, "nowhere").why
    incarnation = link.said(NodeFound, "n1")[-1].incarnation
    found = len(link.said(NodeFound, "n1"))
    cluster.kill_raylet("n1")
    silent = link.until_said(NodeSilent, "n1")
    assert silent.incarnation == incarnation
    assert "dead" in silent.why
    with pytest.raises(Unreachable):
        link.call("n1", "echo")
    assert link.said(NodeGone, "n1") == []
    link.until_said(NodeGone, "n1")
    link.until_said(NodeGone, "nowhere")
    cluster.start_node("n1")
    again = link.until_said(NodeFound, "n1", found + 1)
    assert again.incarnation != incarnation
    assert link.until_called("n1", "echo", 1) == (1,)


def test_a_raylet_that_is_back_within_the_fence_is_not_gone(cluster: RayCluster) -> None:
    with Linked.to(
        cluster.address, "s4", fence_s=600.0
    ) as link:  # Ray may be slow on a busy machine
        link.reserve(ONE, {"n1": 2})
        cluster.kill_raylet("n1")
        cluster.start_node("n1")
        link.until_said(NodeFound, "n1", 2)
        link.reserve(ONE, {"n1": 2})  # on the new one
        assert link.reserved() == {ONE: {"n1": 2000}}
        until(lambda: cluster.taken().get("n1") == 2, "Ray to see it")
        link.reserve(ONE, {})
        until(lambda: cluster.taken().get("n1") == 0, "nothing to stay taken")
        assert link.said(NodeGone, "n1") == []


def test_the_head_may_be_away_and_calls_go_on(link: Linked, cluster: RayCluster) -> None:
    with cluster.frozen_head():
        until(link.gateway.troubles, "it to be said")
        assert link.call("n0", "echo", 1) == (1,)
    until(lambda: not link.gateway.troubles(), "it to be over")


def test_the_head_may_be_killed_and_come_back(link: Linked, cluster: RayCluster) -> None:
    found, silent = len(link.said(NodeFound, "n0")), len(link.said(NodeSilent, "n0"))
    link.reserve(ONE, {"n0": 2})
    cluster.kill_head()
    until(link.gateway.troubles, "it to be said")
    cluster.start_head()
    until(lambda: not link.gateway.troubles(), "it to be over")
    assert link.until_called("n0", "echo", 2) == (2,)
    assert link.reserved() == {ONE: {"n0": 2000}}
    link.reserve(ONE, {})
    assert (len(link.said(NodeFound, "n0")), len(link.said(NodeSilent, "n0"))) == (found, silent)


def test_an_address_where_nobody_listens_is_one_sentence() -> None:
    with (
        pytest.raises(EngineError, match=r"^No Ray cluster answers at 127\.0\.0\.1:9\b.*\.$"),
        Linked.to("127.0.0.1:9"),
    ):
        pass
