"""What a pre-run is given, and when it is over."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from trainmaster.engines.local.prerun import make_folder, prerun_spec
from trainmaster.engines.local.prerun_end import PrerunEnd, remove_folder
from trainmaster.engines.local.runfile import CgroupPlan, RunFile
from trainmaster.model.launch_spec import LaunchSpec

FILE = RunFile(
    "1.1", 0, "/", {}, (), "", 0, 0, 0, "", CgroupPlan(), prerun_ms=60_000, prerun_steps=5
)


def test_it_has_folders_of_its_own_quiet_trackers_and_little_time_to_leave(tmp_path: Path) -> None:
    code, run = tmp_path / "jobs/1/code", tmp_path / "runs/1/1"
    code.mkdir(parents=True)
    (code / "train.py").write_text("pass")
    env = (("WANDB_MODE", "online"), ("LR", "0.1"))
    spec = LaunchSpec(("python",), str(code), "/mine", env=env, max_runtime_ms=5)
    own = prerun_spec(spec, run)
    make_folder(spec, run)
    assert Path(own.checkpoint_dir).is_dir()
    assert own.checkpoint_dir.startswith(f"{run}/prerun/")
    assert dict(own.env)["WANDB_DIR"].startswith(own.checkpoint_dir), "containers see it"
    assert (Path(own.workdir) / "train.py").read_text() == "pass"
    assert dict(own.env)["WANDB_MODE"] == "offline"
    assert dict(own.env)["LR"] == "0.1"
    assert dict(own.env)["TRAINMASTER_PRERUN"] == "1"
    assert (own.grace_ms, own.max_runtime_ms) == (5_000, None)
    assert prerun_spec(replace(spec, prefix=("docker",)), run).grace_ms == spec.grace_ms
    assert prerun_spec(replace(spec, workdir="/home/ada/code"), run).workdir == "/home/ada/code"
    remove_folder(str(run), None)
    assert not (run / "prerun").exists()
    assert (code / "train.py").exists()


@pytest.mark.parametrize(
    ("steps", "is_over"),
    [([1, 2, 5], False), ([1, 6], True), ([7_000], False), ([7_000, 7_005], True)],
)
def test_it_is_over_after_so_many_steps_of_its_own(steps: list[int], is_over: bool) -> None:
    end = PrerunEnd(FILE)
    for step in steps:
        end.note_step(step)
    assert end.is_over(time.monotonic()) is is_over


def test_it_is_over_after_its_time_and_other_runs_never_are() -> None:
    assert PrerunEnd(FILE).is_over(time.monotonic() + 61)
    other = PrerunEnd(replace(FILE, prerun_ms=0, prerun_steps=0))
    other.note_step(1)
    assert other.due_at is None
    assert not other.is_over(time.monotonic() + 10**6)
