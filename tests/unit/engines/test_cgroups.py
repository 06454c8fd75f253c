"""Control groups of a run, in folders that stand for those of the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.engines.local.cgroups import RunCgroups
from trainmaster.engines.local.rank_memory import RankMemory
from trainmaster.engines.local.runfile import CgroupPlan


@pytest.mark.parametrize(
    ("refuses", "entered"), [(True, "run"), (False, "run/rank-0")], ids=["refused", "limited"]
)
def test_a_run_whose_limits_are_refused_still_enters_its_filter(
    tmp_path: Path, refuses: bool, entered: str
) -> None:
    """Limits and filter are in one hierarchy, and the kernel takes no limits for this run."""
    base, run = str(tmp_path), tmp_path / "run"
    run.mkdir()
    for name in ("devices.allow", "devices.deny"):
        (run / name).touch()
    if refuses:
        (run / "cgroup.subtree_control").mkdir()
    plan = CgroupPlan(memory_in=base, memory=1 << 30, devices_in=base, devices_version=1)
    groups = RunCgroups(plan, "run")
    groups.prepare(1, (0,))
    assert ("could not be made" in groups.trouble) is refuses
    groups.enter(0)
    groups.enter_filter(0)
    assert (tmp_path / entered / "cgroup.procs").read_text() == "0"


@pytest.mark.parametrize(
    ("version", "stat"),
    [
        (1, "cache 900\nrss 5\ntotal_cache 900\ntotal_rss 70\ntotal_shmem 30\n"),
        (2, "anon 70\nfile 900\nkernel 9\nshmem 30\n"),
    ],
)
def test_what_the_processes_of_a_rank_have_is_counted_without_files(
    tmp_path: Path, version: int, stat: str
) -> None:
    plan = CgroupPlan(memory_in=str(tmp_path), version=version, counts_memory=True)
    groups = RunCgroups(plan, "run")
    assert groups.memory_of(0) == 0
    groups.prepare(2)
    (tmp_path / "run/rank-1/memory.stat").write_text(stat)
    assert [groups.memory_of(rank) for rank in (0, 1)] == [0, 100]
    assert not (tmp_path / "run/rank-0/memory.max").exists(), "it is counted and not limited"
    groups.enter(1)
    assert (tmp_path / "run/rank-1/cgroup.procs").read_text() == "0"
    assert RunCgroups(CgroupPlan(memory_in=str(tmp_path)), "run").memory_of(1) == 0


def test_the_most_that_a_rank_had_is_remembered() -> None:
    now = [3, 8, 2]
    memory = RankMemory(now.__getitem__)
    memory.tick(0.0, 3)
    assert (memory.due_at, memory.peak) == (None, 0), "nothing is counted"
    memory.start(0.0)
    memory.tick(0.0, 3)
    now[1] = 9
    memory.tick(0.1, 3)
    assert memory.peak == 8, "not so soon"
    memory.tick(0.2, 3)
    now[1] = 4
    memory.tick(20.0, 3)
    assert (memory.peak, memory.due_at) == (9, 21.0)
