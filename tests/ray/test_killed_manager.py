"""The manager is killed at each step of an order; the next one goes on, and nothing runs twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.live.daemons import until
from tests.ray.cluster import RayCluster
from tests.ray.conftest import OWN_CLUSTER
from tests.ray.managed import Managed

pytestmark = OWN_CLUSTER
ALL = 4
"""Ranks of a gang that has all GPUs of both nodes."""
NEVER = "journal never"
LAUNCHING = ("journal opened", "reserve", "journal launched", "call Launch 1", "journal started")
FREEZING = ("before call Freeze 1", "call Freeze 1", "journal frozen")
THAWING = ("reserve", "call Thaw 1", "journal thawed")
ENDING = ("call Kill 1", "journal ended")


@pytest.fixture(scope="module")
def site(small_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managed]:
    with Managed.running(small_cluster, tmp_path_factory.mktemp("killed"), "60s") as site:
        yield site


def kill_at_each(
    site: Managed, points: tuple[str, ...], order: Callable[[], None], check: Callable[[], None]
) -> None:
    """Give an order to a manager that dies at a point; what the next one made of it is checked, and the
    next order given to that."""
    site.daemon.kill()
    site.start_dying(points[0])
    for following in (*points[1:], NEVER):
        site.armed.touch()
        with suppress(OSError):  # it may die before it answers
            order()
        until(lambda: site.daemon.process and site.daemon.process.poll(), "the manager to die")
        site.armed.unlink()
        site.start_dying(following)
        check()


def newest(site: Managed) -> str:
    return max(site.states(), key=int)


def run_on(site: Managed, job: str) -> None:
    """It runs, in its first attempt, and Ray knows what it has."""
    site.until_beats(job, ALL)
    site.daemon.until_state(job, "running")
    assert site.daemon.job(job)["attempt"] == 1
    site.until_taken(n0=2, n1=2)


def test_while_it_launches(site: Managed) -> None:
    def check() -> None:
        run_on(site, newest(site))
        site.finish(newest(site))
        site.until_taken(n0=0, n1=0)

    kill_at_each(site, LAUNCHING, lambda: str(site.submit(ALL)) and None, check)


def test_while_it_suspends_and_resumes(site: Managed) -> None:
    job = site.submit(ALL)
    site.until_beats(job, ALL)

    def stands_still() -> None:
        site.daemon.until_state(job, "suspended")
        site.until_still(job)
        site.until_taken(n0=0, n1=0)

    def check_frozen() -> None:
        stands_still()
        site.do(job, "resume")
        run_on(site, job)

    def check_thawed() -> None:
        run_on(site, job)
        site.do(job, "suspend")
        stands_still()

    kill_at_each(site, FREEZING, lambda: site.do(job, "suspend"), check_frozen)
    site.do(job, "suspend")
    stands_still()
    kill_at_each(site, THAWING, lambda: site.do(job, "resume"), check_thawed)
    site.finish(job)


def test_while_it_ends_a_job(site: Managed) -> None:
    jobs = [site.submit(ALL)]
    site.until_beats(jobs[-1], ALL)

    def check() -> None:
        site.daemon.until_state(jobs[-1], "cancelled")
        site.until_still(jobs[-1])
        site.until_taken(n0=0, n1=0)
        jobs.append(site.submit(ALL))
        site.until_beats(jobs[-1], ALL)

    kill_at_each(site, ENDING, lambda: site.do(jobs[-1], "cancel"), check)
