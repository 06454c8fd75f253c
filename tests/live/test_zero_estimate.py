"""Jobs that state no memory: what is expected of them is shown, and one that needs more is tried again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.live.daemons import LiveDaemon, live, until
from trainmaster.gpu import fake_driver
from trainmaster.gpu.driver import FAKE_GPUS

pytestmark = pytest.mark.live

PROGRAM = """
import pathlib, sys, time
from trainmaster.gpu import fake_driver
fake_driver.allocate(int(sys.argv[2]) << 20, util_ppm=100_000)
name = sys.argv[1]
while not pathlib.Path(f"{name}-enough").exists():
    fake_driver.step(0.1)
    if pathlib.Path(f"{name}-more").exists():
        try:
            fake_driver.allocate(200 << 20)
        except MemoryError:
            sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 200.00 MiB.")
        break
"""


def test_a_job_for_which_too_little_was_expected_is_tried_again_with_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = fake_driver.make_folder(tmp_path / "gpus", memory=400 << 20)
    monkeypatch.setenv(FAKE_GPUS, str(gpus))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (tmp_path / "program.py").write_text(PROGRAM)
    with live(tmp_path / "data") as daemon:

        def submit(name: str, mib: int) -> str:
            return daemon.submit(
                command=[sys.executable, "program.py", name, str(mib)],
                workdir=str(tmp_path),
                env={"PYTHONPATH": str(Path(fake_driver.__file__).parents[2])},
                retries=0,
            )

        for name, mib in (("left", 200), ("right", 100)):
            first = submit(name, mib)
            until(lambda job=first: daemon.job(job)["gpu_use"], f"job {first} to be read")
            (tmp_path / f"{name}-enough").touch()
            daemon.until_state(first, "succeeded")
            (tmp_path / f"{name}-enough").unlink()
            assert daemon.job(first)["memory"]["peak_bytes"] == mib << 20

        left, right = submit("left", 200), submit("right", 100)
        daemon.until_state(left, "running")
        found = daemon.until_state(
            right, "running"
        )  # beside it: of both it is known what they need
        memory = found["memory"]
        assert (memory["source"], memory["runs"], memory["same_arguments"]) == ("learned", 1, True)
        assert memory["reserved_bytes"] == memory["high_bytes"] == 110 << 20
        said = "It is expected to need 100 MiB to 110 MiB on each GPU, judging by 1 earlier run with the same"
        assert any(said.replace(" MiB to", " to") in each for each in found["remarks"])

        (tmp_path / "right-more").touch()
        again = until(lambda: waiting_again(daemon, right), f"job {right} to wait again")
        assert again["failures"] == 0  # its user stated nothing, and may have no retry
        assert "uses up none of its `retries`" in again["failure"]["retry"]
        (tmp_path / "left-enough").touch()
        daemon.until_state(left, "succeeded")
        assert daemon.until_state(right, "succeeded")["attempt"] == 2


def waiting_again(daemon: LiveDaemon, job: str) -> dict[str, Any] | None:
    found = daemon.job(job)
    is_waiting = found["state"] == "pending" and found["failure"] is not None
    return found if is_waiting else None


HUNGRY = """
import pathlib, sys, time
size = pathlib.Path(sys.argv[1])
kept = bytearray(int(size.read_text()) << 20)
for at in range(0, len(kept), 4096):
    kept[at] = 1
"""


def test_host_memory_of_a_slot_is_learned_limited_and_doubled_where_it_was_too_little(
    tmp_path: Path,
) -> None:
    (tmp_path / "hungry.py").write_text(HUNGRY)
    size = tmp_path / "size"
    with live(tmp_path / "data", "--slots", "2") as daemon:

        def submit() -> str:
            command = [sys.executable, "-S", "hungry.py", str(size)]
            return daemon.submit(command=command, workdir=str(tmp_path), retries=0)

        if "limits no host memory" in str(daemon.call("GET", "/api/v1/status")):
            pytest.skip("this machine lets us limit no memory")
        size.write_text("100")
        daemon.until_state(submit(), "succeeded")
        second = daemon.until_state(submit(), "succeeded")
        assert second["attempt"] == 1
        size.write_text("180")  # more than the 10 % above what it needed
        third = daemon.until_state(submit(), "succeeded", "failed")
        assert (third["state"], third["attempt"], third["failures"]) == ("succeeded", 2, 0)
        fourth = daemon.until_state(submit(), "succeeded", "failed")
        assert (fourth["state"], fourth["attempt"]) == ("succeeded", 1)  # it has learned
