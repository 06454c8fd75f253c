"""Programs that state nothing share a GPU once they were measured, without a restart; later ones at once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.live.daemons import LiveDaemon, live, until
from trainmaster.gpu import fake_driver
from trainmaster.gpu.driver import FAKE_GPUS

pytestmark = pytest.mark.live

PROGRAM = """
import pathlib, time
from trainmaster.gpu import fake_driver
fake_driver.allocate(100 << 20, util_ppm=100_000)
while not pathlib.Path("enough").exists():
    fake_driver.step(0.2)
"""


def test_measured_programs_share_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = fake_driver.make_folder(tmp_path / "gpus", memory=400 << 20)
    monkeypatch.setenv(FAKE_GPUS, str(gpus))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (tmp_path / "program.py").write_text(PROGRAM)
    with live(tmp_path / "data") as daemon:

        def submit() -> str:
            return daemon.submit(
                command=[sys.executable, "program.py"],
                workdir=str(tmp_path),
                env={"PYTHONPATH": str(Path(fake_driver.__file__).parents[2])},
            )

        first, second = submit(), submit()
        before = daemon.until_state(first, "running")["pids"]
        daemon.until_state(second, "running")
        assert daemon.job(first)["pids"] == before
        until_told(
            daemon, first, f"with job {second} (program.py) by time-slicing, without a restart"
        )
        until_explained(daemon, first, f"It shares a GPU with job {second}", "how busy each keeps")
        (tmp_path / "enough").touch()
        for job in (first, second):
            daemon.until_state(job, "succeeded")

        daemon.kill()  # what was measured is in the store
        (tmp_path / "enough").unlink()
        daemon.start()
        daemon.until_active()
        third, fourth = submit(), submit()
        until_told(daemon, fourth, f"beside job {third} (program.py)")
        (tmp_path / "enough").touch()
        for job in (third, fourth):
            daemon.until_state(job, "succeeded")


def until_explained(daemon: LiveDaemon, job: str, *words: str) -> None:
    def is_explained() -> bool:
        remarks = daemon.call("GET", f"/api/v1/jobs/{job}/explain")["remarks"]
        return any(all(word in remark for word in words) for remark in remarks)

    until(is_explained, f"job {job}: {words}")


def until_told(daemon: LiveDaemon, job: str, said: str) -> None:
    def is_told() -> bool:
        found = daemon.call("GET", f"/api/v1/jobs/{job}/story")["story"]
        return any(said in entry["sentence"] for entry in found)

    until(is_told, f"job {job}: {said}")
