"""A manager on GPUs that a folder plays: found, used, read, and known again in another order."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.live.daemons import LiveDaemon, live, until
from trainmaster.gpu import fake_driver
from trainmaster.gpu.driver import FAKE_GPUS
from trainmaster.model.units import GIB

pytestmark = pytest.mark.live

PROGRAM = """
import os, subprocess, sys, time
from trainmaster.gpu import fake_driver
fake_driver.allocate(2 << 30, util_ppm=300_000)
if len(sys.argv) > 1:  # a child that has lost its run's name still belongs to it
    names = "PYTHONPATH", "TRAINMASTER_FAKE_GPUS", "CUDA_VISIBLE_DEVICES"
    keep = {name: os.environ[name] for name in names}
    subprocess.Popen([sys.executable, __file__], env=keep)
time.sleep(300)
"""


def devices_of(daemon: LiveDaemon) -> dict[str, Any]:
    (node,) = daemon.call("GET", "/api/v1/nodes")["nodes"]
    return {device["name"].partition(":")[2]: device for device in node["devices"]}


def use_of(daemon: LiveDaemon, job: str, memory: int) -> Any:
    """What the job uses, as soon as it is so much."""

    def found() -> Any:
        uses = daemon.job(job)["gpu_use"]
        return uses if sum(use["memory_bytes"] for use in uses) == memory else None

    return until(found, f"job {job} to use {memory} bytes")


def test_jobs_use_gpus_that_are_read_and_known_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = fake_driver.make_folder(tmp_path / "gpus", gpus=3)
    monkeypatch.setenv(FAKE_GPUS, str(gpus))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    uuids = [gpu.uuid for gpu in fake_driver.FakeDriver(gpus).gpus()]
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    env = {"PYTHONPATH": str(Path(fake_driver.__file__).parents[2])}
    with live(tmp_path / "data", "--gpu-memory", "40GiB") as daemon:
        job = daemon.submit(command=[sys.executable, str(program), "child"], env=env)
        (use,) = use_of(daemon, job, 4 * GIB)
        assert (use["uuid"], use["util"]) == (uuids[0], 0.6)
        gpu = devices_of(daemon)["0"]["gpu"]
        assert (gpu["uuid"], gpu["bookable_bytes"]) == (uuids[0], 40 * GIB)
        assert gpu["memory_used_bytes"] >= 4 * GIB
        with daemon.open("/metrics") as answer:
            said = answer.read().decode()
        assert f'trainmaster_job_gpu_memory_bytes{{job="{job}",name=' in said

        pids = daemon.job(job)["pids"]
        daemon.call("POST", f"/api/v1/jobs/{job}/suspend")  # before it is a fact what it needs
        assert daemon.until_state(job, "suspended")["pids"] == pids
        daemon.call("POST", f"/api/v1/jobs/{job}/resume")
        daemon.until_state(job, "running")
        daemon.kill()
        for number, uuid in enumerate(reversed(uuids)):
            fake_driver.change_gpu(uuid, number=number)
        fake_driver.change_gpu(uuids[1], lost="GPU is lost")
        daemon.arguments = ()
        daemon.start()
        daemon.until_active()
        row = daemon.job(job)
        assert (row["state"], row["pids"]) == ("running", pids)
        assert [name.partition(":")[2] for name in row["devices"]] == ["2"], "it has another number"
        (use,) = use_of(daemon, job, 4 * GIB)
        assert (use["uuid"], use["device"]) == (uuids[0], row["devices"][0])
        there = devices_of(daemon)
        assert (there["2"]["gpu"]["uuid"], there["2"]["jobs"]) == (uuids[0], [job])
        assert there["2"]["gpu"]["bookable_bytes"] == 40 * GIB
        assert there["1"]["gpu"]["trouble"] == "GPU is lost"
        assert any("GPU is lost" in note for note in daemon.health()["notes"])
        daemon.call("POST", f"/api/v1/jobs/{job}/cancel")
        daemon.until_state(job, "cancelled")
        until(lambda: not fake_driver.FakeDriver(gpus).processes(), "the child to end too")
