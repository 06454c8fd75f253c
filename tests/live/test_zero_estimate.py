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


GREEDY = """
import pathlib, time
from trainmaster.gpu import fake_driver
fake_driver.allocate(100 << 20)
while not pathlib.Path("both-there").exists():
    fake_driver.step(0.1)
fake_driver.allocate(200 << 20)
pathlib.Path("grown").touch()
time.sleep(600)
"""
MODEST = """
import pathlib, sys
from trainmaster.gpu import fake_driver
fake_driver.allocate(100 << 20)
while not pathlib.Path("grown").exists():
    fake_driver.step(0.1)
try:
    fake_driver.allocate(100 << 20)
except MemoryError:
    sys.exit(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 100.00 MiB. Including non-PyTorch"
        " memory, this process has 100.00 MiB memory in use."
    )
"""


def test_a_job_whose_memory_a_neighbour_took_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both state what they need; the first needs far more, and the second is out of memory first."""
    gpus = fake_driver.make_folder(tmp_path / "gpus", memory=400 << 20)
    monkeypatch.setenv(FAKE_GPUS, str(gpus))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (tmp_path / "greedy.py").write_text(GREEDY)
    (tmp_path / "modest.py").write_text(MODEST)
    with live(tmp_path / "data") as daemon:

        def submit(name: str, memory: str) -> str:
            return daemon.submit(
                command=[sys.executable, f"{name}.py"],
                workdir=str(tmp_path),
                env={"PYTHONPATH": str(Path(fake_driver.__file__).parents[2])},
                retries=0,
                gpus=0.5,
                gpu_memory=memory,
                sharing="time",
            )

        greedy, modest = submit("greedy", "120MiB"), submit("modest", "200MiB")
        for job in (greedy, modest):
            until(lambda job=job: daemon.job(job)["gpu_use"], f"job {job} to be read")
        (tmp_path / "both-there").touch()
        again = until(lambda: waiting_again(daemon, modest), f"job {modest} to wait again")
        assert "without using up one of its `retries`" in again["failure"]["retry"]
        daemon.call("POST", f"/api/v1/jobs/{greedy}/cancel")  # it books all that it needs now
        found = daemon.until_state(modest, "succeeded", "failed")
        assert (found["state"], found["attempt"], found["failures"]) == ("succeeded", 2, 0)
        story = [
            row["sentence"] for row in daemon.call("GET", f"/api/v1/jobs/{modest}/story")["story"]
        ]
        (failed,) = (sentence for sentence in story if sentence.startswith("Failed"))
        assert f"Job {greedy} used 300 MiB of the 120 MiB it had booked on the same GPU" in failed
        assert "GPU memory taken by a neighbour" in failed


HUNGRY = """
import pathlib, sys
kept = bytearray(int(pathlib.Path(sys.argv[1]).read_text()) << 20)
kept[::4096] = b"1" * len(kept[::4096])
"""
CHILDREN = """
import subprocess, sys
code = "kept = bytearray(20 << 20); kept[::4096] = b'1' * len(kept[::4096]); print(flush=True); input()"
command, pipe = [sys.executable, "-S", "-c", code], subprocess.PIPE
children = [subprocess.Popen(command, stdin=pipe, stdout=pipe) for _ in range(8)]
have = sum(bool(child.stdout.readline()) for child in children)  # all hold theirs at once
for child in children:
    child.communicate(b"\\n")
sys.exit(have < 8 or any(child.returncode for child in children))
"""


def run(daemon: LiveDaemon, folder: Path, program: str, **more: object) -> dict[str, Any]:
    """To its end, with no memory stated and without a retry."""
    command = [sys.executable, "-S", program, "size"]
    job = daemon.submit(command=command, workdir=str(folder), retries=0, **more)
    return daemon.until_state(job, "succeeded", "failed")


def test_host_memory_that_nobody_stated_is_booked_and_not_limited(tmp_path: Path) -> None:
    (tmp_path / "hungry.py").write_text(HUNGRY)
    with live(tmp_path / "data", "--slots", "2") as daemon:
        for mib in (100, 180):  # the second time far more than was expected
            (tmp_path / "size").write_text(str(mib))
            found = run(daemon, tmp_path, "hungry.py")
            assert (found["state"], found["attempt"]) == ("succeeded", 1)


def test_a_program_keeps_all_its_children_after_its_largest_process_was_learned(
    tmp_path: Path,
) -> None:
    (tmp_path / "children.py").write_text(CHILDREN)
    with live(tmp_path / "data", "--slots", "2") as daemon:
        for _ in range(2):
            found = run(daemon, tmp_path, "children.py")
            assert (found["state"], found["attempt"]) == ("succeeded", 1)


def test_one_process_with_four_slots_books_what_it_used_in_all(tmp_path: Path) -> None:
    (tmp_path / "hungry.py").write_text(HUNGRY)
    (tmp_path / "size").write_text("400")
    with live(tmp_path / "data", "--slots", "4") as daemon:
        assert run(daemon, tmp_path, "hungry.py", gpus=4)["state"] == "succeeded"
        command = [sys.executable, "-S", "hungry.py", "size"]
        held = daemon.submit(command=command, workdir=str(tmp_path), gpus=4, held=True)
        said = " ".join(daemon.job(held)["remarks"])
        assert "of host memory for each slot, judging by 1 earlier run" in said
        booked = float(said.partition(" MiB is reserved")[0].rpartition(" ")[2])
        assert 100 <= booked <= 125  # a quarter of the process on each, and a margin
        assert run(daemon, tmp_path, "hungry.py", gpus=4)["state"] == "succeeded"
