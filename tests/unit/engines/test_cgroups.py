"""Control groups of a run, in folders that stand for those of the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.engines.local.cgroups import RunCgroups
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
