"""A manager on a real cluster: what users do, and what becomes of their jobs when parts of it die."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.live.daemons import LiveDaemon, until
from tests.ray.cluster import RayCluster
from tests.ray.conftest import OWN_CLUSTER

pytestmark = OWN_CLUSTER
FENCE = "10s"
COUNTS = 'echo "rank $RANK of $WORLD_SIZE on $NODE_RANK"; i=0; while sleep 0.1; do i=$((i+1)); echo $i; done'
ENDS = ("succeeded", "failed", "cancelled", "timed_out")


@pytest.fixture
def cluster(small_cluster: RayCluster) -> RayCluster:
    return small_cluster


@pytest.fixture(scope="module")
def manager(
    small_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveDaemon]:
    words = ("--engine", "ray", "--address", small_cluster.address, "--fence", FENCE)
    found = LiveDaemon(tmp_path_factory.mktemp("manager") / "data", *words)
    found.start()
    try:
        found.until_active()
        yield found
    finally:
        found.kill()


@pytest.fixture
def daemon(manager: LiveDaemon) -> Iterator[LiveDaemon]:
    yield manager
    cancel_all(manager)


def cancel_all(daemon: LiveDaemon) -> None:
    jobs = [str(each["id"]) for each in daemon.call("GET", "/api/v1/jobs")["jobs"]]
    for job in jobs:
        if daemon.job(job)["state"] not in ENDS:
            daemon.call("POST", f"/api/v1/jobs/{job}/cancel", {})
            daemon.until_state(job, *ENDS)


def submit(daemon: LiveDaemon, script: str, gpus: int, **more: Any) -> str:
    return daemon.submit(
        command=["sh", "-c", script], gpus=gpus, workdir=str(daemon.folder), ranks="gpu", **more
    )


def nodes(daemon: LiveDaemon) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in daemon.call("GET", "/api/v1/nodes")["nodes"]}


def lines(daemon: LiveDaemon, job: str) -> list[str]:
    try:
        return daemon.log(job).splitlines()
    except HTTPError:  # it has written nothing yet
        return []


def until_counts(daemon: LiveDaemon, job: str, more_than: int = 0) -> int:
    """The last number that its first rank has written, as soon as it is larger."""

    def counted() -> int:
        numbers = [int(each) for each in lines(daemon, job) if each.isdecimal()]
        return numbers[-1] if numbers and numbers[-1] > more_than else 0

    found: int = until(counted, f"job {job} to count beyond {more_than}")
    return found


def story(daemon: LiveDaemon, job: str) -> str:
    said = daemon.call("GET", f"/api/v1/jobs/{job}/story")
    return str(said)


def test_nodes_are_listed_with_their_racks_and_devices(daemon: LiveDaemon) -> None:
    found = nodes(daemon)
    assert set(found) == {"n0", "n1"}
    assert {(len(each["devices"]), each["state"]) for each in found.values()} == {(2, "up")}


def test_a_gang_on_two_nodes_runs_and_its_output_is_here(
    daemon: LiveDaemon, cluster: RayCluster
) -> None:
    job = submit(daemon, 'echo "rank $RANK of $WORLD_SIZE on $NODE_RANK"; sleep 3', 4)
    daemon.until_state(job, "running")
    until(lambda: cluster.taken() == {"n0": 2, "n1": 2}, "Ray to see it taken")
    assert daemon.until_state(job, *ENDS)["state"] == "succeeded"
    said = "".join(
        path.read_text() for path in sorted((daemon.folder / "runs" / job / "1").glob("rank-*.log"))
    )
    assert sorted(said.splitlines()) == [f"rank {rank} of 4 on {rank // 2}" for rank in range(4)]
    until(lambda: cluster.taken() == {"n0": 0, "n1": 0}, "Ray to see it free")


def test_a_gang_is_suspended_in_memory_and_its_devices_are_free_for_all(
    daemon: LiveDaemon, cluster: RayCluster
) -> None:
    job = submit(daemon, COUNTS, 4)
    until_counts(daemon, job)
    daemon.call("POST", f"/api/v1/jobs/{job}/suspend", {})
    daemon.until_state(job, "suspended")
    until(lambda: cluster.taken() == {"n0": 0, "n1": 0}, "Ray to see it free")
    stopped = until_counts(daemon, job)
    daemon.call("POST", f"/api/v1/jobs/{job}/resume", {})
    daemon.until_state(job, "running")
    until_counts(daemon, job, stopped)
    assert sum(each.startswith("rank 0") for each in lines(daemon, job)) == 1  # the same process


def test_a_manager_that_is_killed_finds_its_jobs_again(
    daemon: LiveDaemon, cluster: RayCluster
) -> None:
    job = submit(daemon, COUNTS, 3)
    before = until_counts(daemon, job)
    daemon.kill()
    daemon.start()
    daemon.until_active()
    daemon.until_state(job, "running")
    until_counts(daemon, job, before + 10)
    assert daemon.job(job)["attempt"] == 1
    assert sum(cluster.taken().values()) == 3


def test_jobs_of_a_node_that_dies_start_elsewhere_after_its_fence(
    daemon: LiveDaemon, cluster: RayCluster
) -> None:
    job = submit(daemon, COUNTS, 2)
    until_counts(daemon, job)
    (where,) = daemon.job(job)["nodes"]
    other = ({"n0", "n1"} - {where}).pop()
    cluster.kill_node(where)
    until(lambda: nodes(daemon)[where]["state"] != "up", "the node to be down")
    until(lambda: daemon.job(job)["nodes"] == [other], "it to be on the other node")
    daemon.until_state(job, "running")
    assert daemon.job(job)["attempt"] == 2
    assert where in story(daemon, job)
    cluster.start_node(where)
    until(lambda: nodes(daemon)[where]["state"] == "up", "the node to be back")
