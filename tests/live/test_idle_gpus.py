"""Jobs on idle GPUs, by the rule of an operator: warned or ended; those that compute are left alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.live.daemons import LiveDaemon, live, until
from trainmaster.gpu import fake_driver
from trainmaster.gpu.driver import FAKE_GPUS

pytestmark = pytest.mark.live

HOLDS = """
import sys, time
from trainmaster.gpu import fake_driver
fake_driver.allocate(1 << 28, util_ppm=int(sys.argv[1]))
while True:
    fake_driver.step(0.05) if int(sys.argv[1]) else time.sleep(0.05)
"""


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAKE_GPUS, str(fake_driver.make_folder(tmp_path / "gpus", gpus=2)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def started(daemon: LiveDaemon, util_ppm: int) -> str:
    job = daemon.submit(command=[sys.executable, "-c", HOLDS, str(util_ppm)], retries=3)
    daemon.until_state(job, "running")
    return job


def whats(daemon: LiveDaemon, job: str) -> list[str]:
    return [each["what"] for each in daemon.call("GET", f"/api/v1/jobs/{job}/story")["story"]]


@pytest.mark.usefixtures("gpus")
def test_an_idle_job_is_warned_then_ended_and_a_busy_one_goes_on(tmp_path: Path) -> None:
    rule = ("--idle-after", "6s", "--idle-action", "end")
    with live(tmp_path / "data", *rule) as daemon:
        busy, idle = started(daemon, 500_000), started(daemon, 0)
        until(lambda: "idle" in whats(daemon, idle), "the warning")
        row = daemon.until_state(idle, "cancelled")
        assert row["attempt"] == 1
        story = daemon.call("GET", f"/api/v1/jobs/{idle}/story")["story"]
        said = " ".join(each["sentence"] for each in story)
        assert "Its GPUs have been idle for" in said
        assert "Its GPUs had been idle for 6 s" in said
        assert daemon.job(busy)["state"] == "running"
        assert "idle" not in whats(daemon, busy)


@pytest.mark.usefixtures("gpus")
def test_by_default_it_is_only_said(tmp_path: Path) -> None:
    with live(tmp_path / "data", "--idle-after", "2s") as daemon:
        idle = started(daemon, 0)
        until(lambda: "idle" in whats(daemon, idle), "the warning")
        assert daemon.job(idle)["state"] == "running"
