"""Programs that know nothing of Trainmaster are suspended and go on: no work is lost, no step made twice."""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path

import pytest

from tests.live.daemons import LiveDaemon, live, until

pytestmark = pytest.mark.live

STEPS = 16
PROGRAM = f"""
import time
for step in range({STEPS}):
    print("step", step, flush=True)
    time.sleep(0.25)
"""


def submitted(daemon: LiveDaemon, **fields: object) -> str:
    command = [sys.executable, "-S", "-c", PROGRAM]
    return daemon.submit(command=command, workdir=str(daemon.folder), **fields)


def metric(daemon: LiveDaemon, name: str) -> float:
    with urllib.request.urlopen(f"{daemon.url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def made_each_step_once(daemon: LiveDaemon, id: str) -> None:
    found = daemon.until_state(id, "succeeded", "failed", "cancelled")
    assert found["state"] == "succeeded", (found, daemon.log(id))
    said = [line for line in daemon.log(id).splitlines() if line.startswith("step")]
    assert said == [f"step {step}" for step in range(STEPS)]


@pytest.mark.parametrize(
    "options",
    [
        ("las", "quantum_s=1"),
        ("gandiva", "quantum_s=1", "trial_s=1"),
        ("tiresias-l", "thresholds_gpu_s=1,2"),
    ],
    ids=lambda options: options[0],
)
def test_three_programs_take_turns_on_two_slots(tmp_path: Path, options: tuple[str, ...]) -> None:
    policy, *settings = options
    sets = [part for each in settings for part in ("--set", each)]
    with live(tmp_path, "--slots", "2", "--policy", policy, *sets) as daemon:
        ids = [submitted(daemon) for _ in range(3)]
        for id in ids:
            made_each_step_once(daemon, id)
        assert metric(daemon, "trainmaster_lost_work_seconds_total") == 0
        assert metric(daemon, "trainmaster_preempted_jobs_total{") > 0


def test_programs_that_made_room_go_on_wherever_a_slot_is_free(tmp_path: Path) -> None:
    """Two urgent jobs take both slots; the longer of the two leaves the other slot first."""
    with live(tmp_path, "--slots", "2", "--set", "min_run_s=0") as daemon:
        first = [submitted(daemon) for _ in range(2)]
        for id in first:
            daemon.until_state(id, "running")
        urgent = [submitted(daemon, priority=10) for _ in range(2)]
        for id in (*urgent, *first):
            made_each_step_once(daemon, id)
        assert metric(daemon, "trainmaster_lost_work_seconds_total") == 0
        assert {daemon.job(id)["attempt"] for id in first} == {1}


def test_a_run_knows_its_new_slot_after_a_restart_of_the_manager(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2", "--policy", "fifo") as daemon:
        sleeper = ["sleep", "60"]
        other = daemon.submit(command=sleeper, workdir=str(daemon.folder))
        moved = daemon.submit(command=sleeper, workdir=str(daemon.folder))
        daemon.until_state(moved, "running")
        before = daemon.job(moved)["devices"]
        daemon.call("POST", f"/api/v1/jobs/{moved}/suspend")
        daemon.until_state(moved, "held", "suspended")
        third = daemon.submit(command=sleeper, workdir=str(daemon.folder))
        daemon.until_state(third, "running")
        daemon.call("POST", f"/api/v1/jobs/{other}/cancel")
        daemon.until_state(other, "cancelled")
        daemon.call("POST", f"/api/v1/jobs/{moved}/resume")
        found = daemon.until_state(moved, "running")
        assert found["devices"] != before
        daemon.kill()
        daemon.start()
        daemon.until_active()
        again = until(lambda: daemon.job(moved)["devices"], "its devices")
        seen = daemon.call("GET", f"/api/v1/jobs/{moved}/environment")
        assert again == found["devices"] == [seen["environment"]["TRAINMASTER_DEVICES"]]
        assert daemon.job(moved)["attempt"] == 1
