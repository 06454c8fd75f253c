"""Jobs that each need most of a GPU take turns on it, unmodified, and outlast crashes of the manager."""

from __future__ import annotations

import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.daemons import LiveDaemon, live, until
from trainmaster.gpu import fake_driver
from trainmaster.gpu.driver import FAKE_GPUS
from trainmaster.model.units import MIB

pytestmark = pytest.mark.live

PROGRAM = """
import sys
from trainmaster.gpu import fake_driver
fake_driver.allocate(240 << 20, util_ppm=900_000)
for number in range(int(sys.argv[2])):
    fake_driver.step(0.1)
    with open(sys.argv[1], "a") as steps:
        print(number, file=steps)
"""
GPU_MEMORY = 400 * MIB


class Stage:
    """A manager on one GPU, and programs that write down each of their steps."""

    def __init__(self, daemon: LiveDaemon, folder: Path) -> None:
        self.daemon = daemon
        self.folder = folder
        self.lengths: dict[str, int] = {}

    def submit(self, steps: int, **more: object) -> str:
        name = str(len(self.lengths))
        (self.folder / name).touch()
        job = self.daemon.submit(
            command=[sys.executable, "program.py", name, str(steps)],
            workdir=str(self.folder),
            env={"PYTHONPATH": str(Path(fake_driver.__file__).parents[2])},
            **{"gpu_memory": "240MiB", **more},
        )
        self.lengths[name] = steps
        return job

    def steps(self, job: int) -> list[int]:
        return [int(line) for line in (self.folder / str(job)).read_text().split()]

    def story(self, job: str) -> list[str]:
        found = self.daemon.call("GET", f"/api/v1/jobs/{job}/story")["story"]
        return [entry["sentence"] for entry in found]

    def until_told(self, job: str, said: str) -> None:
        until(lambda: any(said in line for line in self.story(job)), f"job {job}: {said}")

    def use_policy(self, name: str) -> None:
        self.daemon.call("PUT", "/api/v1/policy", {"name": name, "options": {"quantum_s": 1}})

    def restart(self) -> None:
        """As if the manager had crashed."""
        self.daemon.kill()
        self.daemon.start()
        self.daemon.until_active()


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    gpus = fake_driver.make_folder(tmp_path / "gpus", memory=GPU_MEMORY)
    monkeypatch.setenv(FAKE_GPUS, str(gpus))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (tmp_path / "program.py").write_text(PROGRAM)
    with live(tmp_path / "data") as daemon:
        yield Stage(daemon, tmp_path)


def pids_of(row: dict[str, Any]) -> tuple[str, list[int]]:
    return row["state"], row["pids"]


def test_they_take_turns_and_no_step_is_done_twice(stage: Stage) -> None:
    daemon = stage.daemon
    stage.use_policy("las")
    first = stage.submit(40)
    until(lambda: len(stage.steps(0)) > 5, "the first job to train")
    second = stage.submit(40)
    row = daemon.until_state(first, "suspended")
    (pid,) = row["pids"]
    assert fake_driver.state_of(pid) == "checkpointed"
    assert any(
        "suspended in memory 1 time, the last time by the CUDA driver" in each
        for each in row["remarks"]
    )
    daemon.until_state(second, "running")

    stage.restart()  # while the first is frozen
    assert pids_of(daemon.job(first)) == ("suspended", [pid])
    (other,) = daemon.until_state(second, "running")["pids"]
    daemon.call("POST", f"/api/v1/jobs/{second}/suspend")
    stage.restart()  # while the second is being frozen
    assert daemon.until_state(second, "suspended")["pids"] == [other]
    assert daemon.until_state(first, "running")["pids"] == [pid]

    stage.use_policy("gandiva")
    daemon.call("POST", f"/api/v1/jobs/{second}/resume")
    third = stage.submit(15)
    for job in (first, second, third):
        daemon.until_state(job, "succeeded")
    for number, length in stage.lengths.items():
        assert stage.steps(int(number)) == list(range(length)), f"job {number}"
    for job in (first, second):
        story = " ".join(stage.story(job))
        assert "Stopped in memory by the CUDA driver (took" in story
        assert "240 MiB moved to host memory" in story
        assert "Running again (took" in story

    refusing = stage.submit(1000)
    (pid,) = until(lambda: daemon.job(refusing)["pids"], "it to start")
    until(lambda: len(stage.steps(3)) > 5, "it to train")
    fake_driver.add_fault("lock", pid=pid)
    daemon.call("POST", f"/api/v1/jobs/{refusing}/suspend")
    stage.until_told(refusing, "Could not be stopped in memory, so it goes on")
    row = daemon.job(refusing)
    assert pids_of(row) == ("running", [pid])
    assert any(
        "could not be suspended in memory a short while ago" in each for each in row["remarks"]
    )
    with pytest.raises(urllib.error.HTTPError, match="409"):
        daemon.call("POST", f"/api/v1/jobs/{refusing}/suspend")
    daemon.call("POST", f"/api/v1/jobs/{refusing}/suspend?force=true")
    daemon.until_state(refusing, "suspended")
    daemon.call("POST", f"/api/v1/jobs/{refusing}/cancel")

    (node,) = daemon.call("GET", "/api/v1/nodes")["nodes"]
    everything = {"gpu_memory": "400MiB", "memory": f"{node['memory_bytes'] // MIB}MiB"}
    daemon.until_state(stage.submit(1, **everything), "succeeded", "failed")
