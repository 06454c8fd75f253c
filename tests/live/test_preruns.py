"""Pre-runs under a manager: a broken gang costs one slot, a good one passes, and passes once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.daemons import LiveDaemon, live, until

pytestmark = pytest.mark.live

STEPS = """
import os, pathlib, sys, time
sys.path.insert(0, sys.argv[1])
import trainmaster_sdk
with trainmaster_sdk.run() as tm:
    where = pathlib.Path(os.environ["TRAINMASTER_CHECKPOINT_DIR"])
    print(os.environ["WORLD_SIZE"], os.environ.get("WANDB_MODE"), where, tm.restart_count, flush=True)
    for step in range(1, 31 if "TRAINMASTER_PRERUN" not in os.environ else 10**6):
        time.sleep(0.02)
        tm.progress(step=step)
        if tm.should_stop():
            tm.save(b"x", step)
            break
"""
SDK = str(Path(__file__).parents[2] / "src")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDaemon]:
    with live(tmp_path_factory.mktemp("preruns"), "--slots", "8") as started:
        (started.folder / "steps.py").write_text(STEPS)
        yield started


def submit(daemon: LiveDaemon, program: str, gpus: int = 4, **fields: object) -> str:
    command = [sys.executable, "-S", *program.split()]
    said = {"workdir": str(daemon.folder), "gpus": gpus, "ranks": "gpu", "preflight": True}
    return daemon.submit(**({"command": command} | said | fields))


def launches(daemon: LiveDaemon, id: str) -> list[int]:
    """On how many devices each attempt was started."""
    told = daemon.call("GET", f"/api/v1/jobs/{id}/story")["story"]
    return [len(each["detail"]["on"]) for each in told if each["what"] == "launch ordered"]


def output(daemon: LiveDaemon, id: str, attempt: int) -> str:
    found = daemon.folder / "runs" / id / str(attempt) / "rank-0.log"
    return found.read_text()


def prerun(daemon: LiveDaemon, id: str) -> dict[str, Any]:
    found: dict[str, Any] = daemon.job(id)["prerun"]
    return found


def test_a_broken_gang_costs_one_slot(daemon: LiveDaemon) -> None:
    bugs = ('raise ValueError("bad label")', 'raise SystemExit("no key model in config")')
    others = []
    for number, bug in enumerate(bugs):
        (daemon.folder / f"bug{number}.py").write_text(f"{bug}\n")
        others.append(submit(daemon, f"bug{number}.py", gpus=8, retries=0))
    (daemon.folder / "broken.py").write_text("import time, no_such_module\n")
    id = submit(daemon, "broken.py", gpus=8)
    row = daemon.until_state(id, "failed")
    for other in others:
        daemon.until_state(other, "failed")
        assert launches(daemon, other) == [1]
    assert "--no-preflight" in prerun(daemon, others[0])["sentence"]
    told = daemon.call("GET", f"/api/v1/jobs/{id}/explain")["sentence"]
    assert "It failed in its pre-run on one device, after" in told
    assert "preflight" not in told, "several devices would not help against a missing module"
    assert launches(daemon, id) == [1], "on one slot, and not tried again"
    assert (prerun(daemon, id)["result"], row["gpus"]) == ("failed", 8)
    assert row["gpu_s"] <= row["finish_s"] - row["submit_s"], "the time of one slot at most"


def test_a_good_gang_passes_and_the_next_of_the_same_program_needs_no_pre_run(
    daemon: LiveDaemon,
) -> None:
    first = submit(daemon, f"steps.py {SDK}")
    second = submit(daemon, f"steps.py {SDK}")
    row = daemon.until_state(first, "succeeded")
    assert daemon.until_state(second, "succeeded")["prerun"]["result"] == "skipped"
    assert (launches(daemon, first), launches(daemon, second)) == ([1, 4], [4])
    assert (row["prerun"]["result"], row["prerun"]["attempt"]) == ("passed", 1)
    assert (row["restarts"], row["preemptions"], row["failures"]) == (0, 0, 0)
    world, wandb, where, restarts = output(daemon, first, 1).split()
    assert (world, wandb, restarts) == ("1", "offline", "0")
    assert where == str(daemon.folder / "runs" / first / "1" / "prerun" / "checkpoints")
    assert not Path(where).exists(), "nothing of it is left"
    assert output(daemon, first, 2).split()[::3] == ["4", "0"]
    daemon.kill()
    daemon.start()
    daemon.until_active()
    third = submit(daemon, f"steps.py {SDK}")
    daemon.until_state(third, "succeeded")
    assert launches(daemon, third) == [4], "it is remembered"
    (daemon.folder / "steps.py").write_text(f"{STEPS}\n# changed\n")
    fourth = submit(daemon, f"steps.py {SDK}")
    daemon.until_state(fourth, "succeeded")
    assert launches(daemon, fourth) == [1, 4], "its program has changed"


def test_a_program_that_needs_many_ranks_is_tried_on_all_of_them(daemon: LiveDaemon) -> None:
    program = "import os; assert int(os.environ['WORLD_SIZE']) > 1, 'world_size must be > 1'\n"
    (daemon.folder / "many.py").write_text(program)
    id = submit(daemon, "many.py", gpus=2)
    row = daemon.until_state(id, "succeeded")
    assert (launches(daemon, id), row["prerun"]["result"]) == ([1, 2], "unsure")
    assert row["failures"] == 0
    again = submit(daemon, "many.py", gpus=2)
    daemon.until_state(again, "succeeded")
    assert launches(daemon, again) == [2], "it has succeeded once"


def test_of_an_array_one_element_pre_runs_and_it_can_be_cancelled_meanwhile(
    daemon: LiveDaemon,
) -> None:
    (daemon.folder / "still.py").write_text("import time\ntime.sleep(600)\n")
    array = submit(daemon, "still.py", gpus=2, array="0-2")
    daemon.until_state(f"{array}_0", "running")
    assert daemon.job(f"{array}_1")["reason"]["code"] == "Prerun"
    assert daemon.job(f"{array}_1")["reason"]["held_by"] == [f"{array}_0"]
    assert len(daemon.job(f"{array}_0")["devices"]) == 1
    said = daemon.call("GET", f"/api/v1/jobs/{array}_0/explain")["sentence"]
    assert said.endswith("Its first steps run on one device (pre-run).")
    daemon.call("POST", f"/api/v1/jobs/{array}_0/cancel")
    daemon.until_state(f"{array}_0", "cancelled")
    daemon.until_state(f"{array}_1", "running")
    daemon.call("POST", f"/api/v1/jobs/{array}_1/suspend")
    daemon.until_state(f"{array}_1", "pending", "suspended")
    until(lambda: launches(daemon, f"{array}_2") == [1], "the next one to pre-run")
    daemon.call("POST", f"/api/v1/jobs/{array}/cancel")
