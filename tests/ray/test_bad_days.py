"""Bad days of a cluster, with a real manager: nothing is lost, nothing runs twice, and the story tells.

That nothing runs twice is judged by what ranks themselves write (`beats.py`), once all jobs have ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.live.daemons import LiveDaemon, until
from tests.ray.cluster import RayCluster
from tests.ray.conftest import OWN_CLUSTER
from tests.ray.managed import Managed

pytestmark = OWN_CLUSTER
FENCE_S = 12
LONG_FENCE = "10m"


@pytest.fixture(scope="module")
def site(small_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managed]:
    folder = tmp_path_factory.mktemp("days")
    with Managed.running(small_cluster, folder, f"{FENCE_S}s") as site:
        yield site


@pytest.fixture(scope="module")
def other(small_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managed]:
    """Another store on the same cluster."""
    with Managed.running(small_cluster, tmp_path_factory.mktemp("other"), LONG_FENCE) as site:
        yield site


def test_what_was_ordered_while_the_head_was_away_comes_to_pass(
    site: Managed, small_cluster: RayCluster
) -> None:
    gang = site.submit(3)
    site.until_beats(gang, 3)
    early = site.submit(1)  # it may or may not be launched before the head is gone
    small_cluster.kill_head()
    site.do(gang, "suspend")
    site.until_still(gang)
    late = site.submit(1)
    until(lambda: "Ray" in str(site.daemon.call("GET", "/api/v1/status")), "it to be said")
    assert site.attempts(late) == []
    small_cluster.start_head()
    small_cluster.until_answers()
    for job in (early, late):
        site.until_beats(job, 1)
    site.finish(early, late)
    site.do(gang, "resume")
    site.until_beats(gang, 3)
    assert [site.attempts(job) for job in (gang, early, late)] == [[1], [1], [1]]
    site.finish(gang)
    site.until_taken(n0=0, n1=0)


def test_a_head_that_hangs_for_less_than_the_fence_costs_nothing(
    site: Managed, small_cluster: RayCluster
) -> None:
    gang, unwanted = site.submit(2), site.submit(1)
    site.until_beats(gang, 2)
    site.until_beats(unwanted, 1)
    with small_cluster.frozen_head():
        late = site.submit(1)
        site.do(unwanted, "cancel")
        site.until_still(unwanted)
        site.until_beats(gang, 2)
        assert site.attempts(late) == []
    site.until_beats(late, 1)
    site.daemon.until_state(unwanted, "cancelled")
    site.until_beats(gang, 2)
    assert [site.attempts(job) for job in (gang, late)] == [[1], [1]]
    site.finish(gang, late)


def test_a_raylet_that_hangs_for_a_moment_costs_nothing(
    site: Managed, small_cluster: RayCluster
) -> None:
    gang = site.submit(4)
    site.until_beats(gang, 4)
    with small_cluster.frozen_raylet("n1"):
        time.sleep(0.7)
        site.until_beats(gang, 4)
    site.until_beats(gang, 4)
    assert site.node_states()["n1"] == "up"
    assert site.attempts(gang) == [1]
    site.finish(gang)


def test_jobs_of_a_raylet_that_hangs_end_there_before_they_start_elsewhere(
    site: Managed, small_cluster: RayCluster
) -> None:
    """Its processes go on until the fence ends them."""
    job = site.submit(2)
    site.until_beats(job, 2)
    where = site.node_of(job)
    with small_cluster.frozen_raylet(where):
        frozen_s = time.monotonic()
        again_s = site.until_beats(job, 2, attempt=2)
    assert site.node_of(job) != where
    assert again_s - frozen_s > FENCE_S
    assert where in site.story(job)
    small_cluster.kill_node(where)
    small_cluster.until_gone(where)
    small_cluster.start_node(where)
    site.until_up(where)
    site.finish(job)


def test_two_stores_on_one_cluster_leave_each_other_alone(
    site: Managed, other: Managed, small_cluster: RayCluster
) -> None:
    mine, theirs = site.submit(2), other.submit(2)
    site.until_beats(mine, 2)
    other.until_beats(theirs, 2)
    assert site.node_of(mine) != other.node_of(theirs)
    site.until_taken(n0=2, n1=2)
    waiting = other.submit(2)
    other.daemon.kill()  # and what it finds again is its own
    other.start()
    other.until_beats(theirs, 2)
    assert other.attempts(waiting) == []
    site.finish(mine)
    other.until_beats(waiting, 2)
    other.finish(theirs, waiting)
    assert [site.attempts(mine), other.attempts(theirs), other.attempts(waiting)] == [[1], [1], [1]]
    site.until_taken(n0=0, n1=0)


def test_jobs_of_a_raylet_that_is_back_within_the_fence_go_on(
    other: Managed, small_cluster: RayCluster
) -> None:
    gang = other.submit(4)
    other.until_beats(gang, 4)
    small_cluster.kill_raylet("n1")
    small_cluster.start_node("n1")
    other.until_up("n1")
    other.until_beats(gang, 4)
    assert other.attempts(gang) == [1]
    other.until_taken(n0=2, n1=2)
    other.finish(gang)
    other.until_taken(n0=0, n1=0)


def test_a_node_that_is_back_under_another_name_ends_what_ran_under_the_old_one_at_once(
    other: Managed, small_cluster: RayCluster
) -> None:
    job = other.submit(2)
    other.until_beats(job, 2)
    where = other.node_of(job)
    small_cluster.kill_raylet(where)
    small_cluster.start_node(where, called="m1")
    other.until_beats(job, 2, attempt=2)  # long before the fence has passed
    assert "m1" in other.story(job)
    other.finish(job)
    small_cluster.kill_node("m1")
    small_cluster.until_gone("m1")
    small_cluster.start_node(where)
    other.until_up(where)


def test_a_second_manager_of_a_folder_stands_by_until_the_first_is_killed(site: Managed) -> None:
    gang = site.submit(3)
    site.until_beats(gang, 3)
    first = site.daemon
    second = LiveDaemon(first.folder, *first.arguments)
    second.start()
    try:
        until(lambda: ", a standby: " in (first.folder / "out.txt").read_text(), "it to stand by")
        waiting = site.submit(2)
        first.kill()
        second.until_active()
        site.daemon = second
    except BaseException:
        second.kill()
        raise
    site.until_beats(gang, 3)
    assert (site.attempts(gang), site.attempts(waiting)) == ([1], [])
    site.finish(gang)
    site.until_beats(waiting, 2)
    site.finish(waiting)
