"""Programs that know nothing of Trainmaster are suspended and go on: no work is lost, no step made twice."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from urllib.error import HTTPError

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
    with daemon.open("/metrics") as answer:
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


def test_nothing_is_ended_without_a_word(tmp_path: Path) -> None:
    """A program that can be neither frozen nor save, like any unmodified one on GPUs."""
    with live(tmp_path, "--slots", "2x1", "--set", "min_run_s=0") as daemon:
        there = {"workdir": str(daemon.folder), "stays_in_memory": False}
        job = daemon.submit(command=["sleep", "60"], **there)
        node = daemon.until_state(job, "running")["nodes"][0]
        assert any("others wait until it ends" in each for each in daemon.job(job)["remarks"])
        until(lambda: daemon.job(job)["run_s"] > 1, "it to have something to lose")
        for path, body in (
            (f"/api/v1/jobs/{job}/suspend", None),
            (f"/api/v1/jobs/{job}/move", {"node": node[:-1] + ("1" if node[-1] == "0" else "0")}),
        ):
            with pytest.raises(HTTPError) as refused:
                daemon.call("POST", path, body)
            said = json.loads(refused.value.read())["error"]
            assert (refused.value.code, said["code"]) == (409, "work_would_be_lost")
            assert re.search(r"\d s of its work would be lost", said["sentence"]), said
            assert "--force" in said["sentence"]
        assert "neither moved in memory to another node nor told to save" in said["sentence"]
        assert daemon.job(job)["lost_s"] == 0
        daemon.call("POST", f"/api/v1/jobs/{job}/suspend?force=true")
        daemon.until_state(job, "suspended")
        found = daemon.job(job)
        assert found["lost_s"] > 1
        assert any("of its work was lost" in each for each in found["remarks"])
        assert metric(daemon, "trainmaster_lost_work_seconds_total") == pytest.approx(
            found["lost_s"], abs=0.01
        )
        stopped = daemon.submit(command=["sleep", "60"], workdir=str(daemon.folder))
        (node,) = daemon.until_state(stopped, "running")["nodes"]
        daemon.call("POST", f"/api/v1/jobs/{stopped}/suspend")
        daemon.until_state(stopped, "suspended")
        daemon.call("POST", f"/api/v1/nodes/{node}/drain")
        said = daemon.call("GET", f"/api/v1/jobs/{stopped}/explain")
        assert f"in memory on {node}, which is drained: it continues only there" in str(said)
        said = daemon.call("POST", f"/api/v1/jobs/{stopped}/resume")["reason"]
        assert (said["code"], "node undrain" in said["sentence"]) == ("StoppedOnNode", True)
        said = daemon.call("GET", f"/api/v1/jobs/{stopped}/explain")
        assert f"it would not start while {node} is drained." in str(said)


LEAVES = """
import os, signal, sys, time
def leave(*_):
    if sys.argv[1] == "saves":
        place = os.environ["TRAINMASTER_CHECKPOINT_DIR"]
        os.makedirs(place, exist_ok=True)
        open(os.path.join(place, "model"), "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("ready", os.environ["TRAINMASTER_ATTEMPT"], flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("word", ["saves", "forgets"])
def test_a_program_that_leaves_in_peace_has_saved_only_if_it_wrote_a_checkpoint(
    tmp_path: Path, word: str
) -> None:
    with live(tmp_path, "--slots", "1") as daemon:
        words = [sys.executable, "-S", "-c", LEAVES, word]
        command = shlex.join(words) if word == "saves" else words  # as a text for the shell, too
        job = daemon.submit(command=command, workdir=str(daemon.folder), stays_in_memory=False)

        def suspend(attempt: int, query: str) -> None:
            ran_s = daemon.job(job)["run_s"]
            until(lambda: f"ready {attempt}" in daemon.log(job), "it to handle signals")
            until(lambda: daemon.job(job)["run_s"] > ran_s + 1, "it to have something to lose")
            daemon.call("POST", f"/api/v1/jobs/{job}/suspend{query}")

        suspend(1, "?force=true")
        daemon.until_state(job, "suspended")
        assert (daemon.job(job)["lost_s"] > 0) == (word == "forgets")
        daemon.call("POST", f"/api/v1/jobs/{job}/resume")
        if word == "saves":
            suspend(2, "")
            daemon.until_state(job, "suspended")
            assert daemon.job(job)["lost_s"] == 0
        else:
            with pytest.raises(HTTPError) as refused:
                suspend(2, "")
            assert json.loads(refused.value.read())["error"]["code"] == "work_would_be_lost"


def test_an_urgent_job_waits_for_a_program_that_could_only_be_ended(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "1", "--set", "min_run_s=0") as daemon:
        there = {"workdir": str(daemon.folder), "stays_in_memory": False}
        first = submitted(daemon, stays_in_memory=False)
        daemon.until_state(first, "running")
        urgent = daemon.submit(command=["true"], priority=10, **there)
        why = until(
            lambda: (daemon.job(urgent)["reason"] or {}).get("sentence"), "why the urgent one waits"
        )
        assert re.search(rf"job {first} could only be ended, and .* of its work would be lost", why)
        made_each_step_once(daemon, first)
        assert daemon.until_state(urgent, "succeeded", "failed")["state"] == "succeeded"
        assert metric(daemon, "trainmaster_lost_work_seconds_total") == 0


def test_a_job_that_is_not_preemptible_keeps_its_slot_if_its_queue_allows_it(
    tmp_path: Path,
) -> None:
    with live(tmp_path, "--slots", "1", "--set", "min_run_s=0") as daemon:
        first = submitted(daemon, preemptible=False)
        daemon.until_state(first, "running")
        urgent = daemon.submit(command=["true"], priority=10, workdir=str(daemon.folder))
        why = until(
            lambda: (daemon.job(urgent)["reason"] or {}).get("sentence"), "why the urgent one waits"
        )
        assert f"job {first} may not be suspended (preemptible: false)" in why
        made_each_step_once(daemon, first)
        assert daemon.job(first)["preemptions"] == 0
        daemon.call("PUT", "/api/v1/queues/short", {"allow_unpreemptible": False})
        with pytest.raises(HTTPError) as refused:
            submitted(daemon, preemptible=False, queue="short")
        assert (
            "does not allow `preemptible: false`"
            in json.loads(refused.value.read())["error"]["sentence"]
        )


SESSION = """
import time
import trainmaster_sdk as sdk
with sdk.run() as tm:
    for step in range(600):
        if tm.should_stop():
            tm.save({"step": step}, step)
            break
        time.sleep(0.05)
"""


def test_a_program_that_heeds_stop_requests_needs_no_force(tmp_path: Path) -> None:
    """It has said so through the SDK before it has saved anything."""
    with live(tmp_path, "--slots", "1") as daemon:
        there = {"workdir": str(daemon.folder), "stays_in_memory": False}
        job = daemon.submit(command=[sys.executable, "-c", SESSION], **there)
        daemon.until_state(job, "running")
        until(
            lambda: any("is told to save" in each for each in daemon.job(job)["remarks"]),
            "its word",
        )
        daemon.call("POST", f"/api/v1/jobs/{job}/suspend")
        assert daemon.until_state(job, "suspended")["lost_s"] == 0
