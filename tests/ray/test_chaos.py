"""A short chaos run with fixed seed, and whether what is wrong is found: `make chaos-ray` is the long one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.live.daemons import LiveDaemon
from tests.ray import chaos_records as records
from tests.ray.booking import SETTLE_S, BookingWatch, booking_of, reserved_of
from tests.ray.chaos import Plan, perform
from tests.ray.cluster import Truth
from tests.ray.conftest import OWN_CLUSTER

SHORT = Plan(jobs=10, at_first=8, faults=5, pause_s=(0.5, 3.0), length=0.4)


@OWN_CLUSTER
def test_no_job_is_lost_or_runs_twice_and_ray_agrees(tmp_path: Path) -> None:
    verdict = perform(tmp_path / "run", "max-min", 3, SHORT, print)
    assert verdict.jobs == SHORT.jobs
    assert verdict.processes >= SHORT.jobs
    assert verdict.watch.compared > 0
    assert not verdict.findings


# -- what processes write ----------------------------------------------------------------------------------


def wrote(folder: Path, name: str, *lines: str, job: str = "1") -> None:
    """The file of one process: <attempt>-<rank>of<world>-<generation>-<pid>."""
    place = folder / job
    place.mkdir(exist_ok=True)
    (place / name).write_text("".join(f"{line}\n" for line in lines))


def of_job(folder: Path, job: str = "1") -> list[records.Process]:
    return records.read(folder)[job]


def test_an_attempt_that_begins_before_the_one_before_has_ended_is_found(tmp_path: Path) -> None:
    wrote(tmp_path, "1-0of1-80-7", "begin 100 0", "beat 300 4")
    wrote(tmp_path, "2-0of1-81-8", "begin 301 0", "beat 500 4")
    assert records.twice_at_once(of_job(tmp_path)) == []
    wrote(tmp_path, "2-0of1-81-8", "begin 300 0", "beat 500 4")
    (found,) = records.twice_at_once(of_job(tmp_path))
    assert "1.1 (process 7" in found
    assert "1.2 (process 8" in found


def test_ranks_of_one_gang_run_at_once_and_those_of_two_do_not(tmp_path: Path) -> None:
    for rank in (0, 1):
        wrote(tmp_path, f"1-{rank}of2-80-{rank + 5}", "begin 100 0", "beat 300 4")
    assert records.twice_at_once(of_job(tmp_path)) == []
    wrote(tmp_path, "1-0of1-81-9", "begin 200 0")  # it was resized, and is there twice
    assert len(records.twice_at_once(of_job(tmp_path))) == 2
    wrote(tmp_path, "1-0of1-81-9", "begin 400 0")
    wrote(tmp_path, "1-1of2-80-10", "begin 300 0")  # one rank was launched twice
    assert len(records.twice_at_once(of_job(tmp_path))) == 1


@pytest.mark.parametrize(("begin", "is_lost"), [(0, True), (10, False), (20, False), (30, True)])
def test_a_step_before_the_last_checkpoint_is_lost(
    tmp_path: Path, begin: int, is_lost: bool
) -> None:
    """Of one that was being written as the process died nobody knows whether it is whole."""
    lines = ("begin 100 0", "saving 150 10", "saved 160 10", "saving 250 20", "beat 260 20")
    wrote(tmp_path, "1-0of1-80-7", *lines)
    wrote(tmp_path, "1-1of2-80-6", "begin 100 0")
    wrote(tmp_path, "2-0of1-81-8", f"begin 300 {begin}", f"beat 400 {begin + 5}")
    assert bool(records.steps_lost(of_job(tmp_path))) == is_lost


def test_a_checkpoint_that_was_used_does_not_get_lost_either(tmp_path: Path) -> None:
    wrote(tmp_path, "1-0of1-80-7", "begin 100 0", "saved 160 10", "saving 250 20")
    wrote(tmp_path, "2-0of1-81-8", "begin 300 20")
    wrote(tmp_path, "3-0of1-82-9", "begin 400 10")
    assert len(records.steps_lost(of_job(tmp_path))) == 1


def test_ranks_at_other_steps_and_a_missing_end_are_found(tmp_path: Path) -> None:
    wrote(tmp_path, "1-0of2-80-7", "begin 100 0", "UNLIKE 200 4")
    wrote(tmp_path, "1-1of2-80-8", "begin 100 0", "ends 200 5")
    assert len(records.unlike(of_job(tmp_path))) == 1
    assert not records.has_ended(of_job(tmp_path))


# -- booking -----------------------------------------------------------------------------------------------

NODES = [{"name": "n0", "state": "up", "devices": [{"jobs": ["1"]}, {"jobs": []}]}]
JOB: dict[str, Any] = {
    "id": "1",
    "attempt": 2,
    "state": "running",
    "transition": None,
    "devices": ["n0:0"],
}
GROUP = {"name": "tm:s1:1.2", "state": "CREATED", "held": {"i0": 1.0}}


def of_ray(*groups: dict[str, Any], taken: int) -> dict[str, Any]:
    node = {"id": "i0", "name": "n0", "alive": True, "taken": float(taken), "left": {}}
    return {"nodes": [node], "groups": [*groups]}


def told(tmp_path: Path, jobs: list[dict[str, Any]], said: dict[str, Any], seconds: float) -> int:
    """Findings once it has been so for some time."""
    watch = BookingWatch(LiveDaemon(tmp_path), Truth(""))
    now = booking_of(jobs, NODES)
    for at in (0.0, seconds):
        watch.note(now, reserved_of(said), now, at)
    assert watch.observations == 2
    return len(watch.findings)


UNEQUAL: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "equal": (JOB, of_ray(GROUP, taken=1), 0),
    "not reserved": (JOB, of_ray(taken=0), 2),
    "reserved for an earlier attempt": (
        JOB,
        of_ray(GROUP, GROUP | {"name": "tm:s1:1.1"}, taken=2),
        2,
    ),
    "reserved twice": (JOB, of_ray(GROUP, GROUP | {"name": "tm:s1:1.2:2"}, taken=2), 2),
    "taken without a group": (JOB, of_ray(GROUP, taken=2), 1),
    "still reserved when suspended": (JOB | {"state": "suspended"}, of_ray(GROUP, taken=1), 1),
    "an order is under way": (JOB | {"transition": "suspending"}, of_ray(taken=0), 0),
    "a group that is removed": (
        JOB,
        of_ray(GROUP, GROUP | {"name": "tm:s1:1.1", "state": "REMOVED"}, taken=1),
        0,
    ),
}


@pytest.mark.parametrize("what", UNEQUAL)
def test_a_difference_counts_once_it_has_stood(what: str, tmp_path: Path) -> None:
    job, said, findings = UNEQUAL[what]
    assert told(tmp_path, [job], said, SETTLE_S + 1) == findings
    assert told(tmp_path, [job], said, SETTLE_S - 1) == 0


def test_a_difference_that_changes_begins_again(tmp_path: Path) -> None:
    watch = BookingWatch(LiveDaemon(tmp_path), Truth(""))
    now = booking_of([JOB], NODES)
    for at, taken in ((0.0, 0), (SETTLE_S - 1, 2), (SETTLE_S + 1, 0)):
        watch.note(now, reserved_of(of_ray(GROUP, taken=taken)), now, at)
    assert watch.findings == []
    assert watch.differing == 3
