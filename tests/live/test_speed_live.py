"""Speeds in the live manager: measured of programs, predicted by profiles and links, corrected by reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.live.daemons import LiveDaemon, live, until
from trainmaster.whatif.replay import replay

pytestmark = [pytest.mark.live, pytest.mark.slow]
ALONE_PER_S = 640
PROFILE = {"step_us": 100_000, "batch": 64, "sync_bytes": 4_000_000}
"""640 samples/s on one device, and little to exchange."""
SLOW_RACK = "links:\n  node: {gb_s: 10, latency_us: 10}\n  rack: {gb_s: 0.001, latency_us: 1000}\n"
REPORTS = """
import json, os, signal, socket, sys, time
rates = json.loads(sys.argv[1])
count = os.environ["WORLD_SIZE"]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
line = socket.socket(socket.AF_UNIX)
line.connect(os.environ["TRAINMASTER_SOCKET"])
def say(**said): line.sendall(json.dumps(said).encode() + b"\\n")
say(say="hello", rank=int(os.environ["RANK"]))
for step in range(100_000):
    if os.environ["RANK"] == "0":
        say(say="progress", step=step, samples_per_s=rates.get(count, 100.0), steps_per_s=1.0)
    time.sleep(0.2)
"""
TRAIN = """
import time, torch
model = torch.nn.Linear(100, 10, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    optimizer.zero_grad()
    model(torch.randn(8, 100)).sum().backward()
    optimizer.step()
    time.sleep(0.05)
"""


def elastic(daemon: LiveDaemon, name: str, **fields: object) -> str:
    """One that says how fast it is, by its number of devices: 1 to 4."""
    (daemon.folder / "reports.py").write_text(REPORTS)
    rates = json.dumps({"1": ALONE_PER_S, "2": 1100, "4": 300})
    command = [sys.executable, "-S", "reports.py", rates, name]
    said = {"gpus": "1-4", "ranks": "gpu", "retries": 0, "stays_in_memory": False, **fields}
    return daemon.submit(command=command, workdir=str(daemon.folder), **said)


def devices_of(daemon: LiveDaemon, id: str) -> list[str]:
    """Where it runs, once it does."""

    def devices() -> list[str]:
        found = daemon.job(id)
        assert found["state"] not in {"failed", "succeeded"}, daemon.log(id)
        return found["devices"] if found["state"] == "running" else []

    found: list[str] = until(devices, f"job {id} to run")
    return found


def cancel(daemon: LiveDaemon, id: str) -> None:
    daemon.call("POST", f"/api/v1/jobs/{id}/cancel")
    daemon.until_state(id, "cancelled")


def logged(daemon: LiveDaemon) -> list[str]:
    with daemon.open("/api/v1/record/events") as answer:
        return str(answer.read().decode()).splitlines()


def facts(lines: list[str], word: str) -> list[dict[str, Any]]:
    said = [json.loads(line) for line in lines]
    return [e for line in said for e in line.get("events", ()) if e["is"] == word]


def test_an_elastic_job_is_as_large_as_links_and_profile_make_worth_it(tmp_path: Path) -> None:
    """Two slots on one node are faster than four over a slow link; without a profile nobody would know."""
    tmp_path.joinpath("links.yaml").write_text(SLOW_RACK)
    with live(tmp_path, "--slots", "2x2", "--policy", "max-min") as daemon:
        id = elastic(daemon, "known", profile=PROFILE)
        where = devices_of(daemon, id)
        assert len(where) == 2, where
        assert len({each.partition(":")[0] for each in where}) == 1, "on one node"
        assert daemon.job(id)["profile"]["sync_bytes"] == PROFILE["sync_bytes"]
        cancel(daemon, id)
        id = elastic(daemon, "unknown")
        assert len(devices_of(daemon, id)) == 4
        lines = logged(daemon)
    assert [each.seq for each in replay(lines) if not each.is_same] == []


def test_a_measured_speed_corrects_what_the_next_job_of_the_model_gets(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2x2", "--policy", "max-min") as daemon:
        first = elastic(daemon, "first", profile=PROFILE, model="toy")
        assert len(devices_of(daemon, first)) == 4, "as predicted with usual links"
        until(lambda: facts(logged(daemon), "RunSpeedChanged"), "its speed to be measured")
        cancel(daemon, first)
        second = elastic(daemon, "second", profile=PROFILE, model="toy")
        where = devices_of(daemon, second)
        assert len(where) == 2, where
        lines = logged(daemon)
    [changed, *_] = facts(lines, "RunSpeedChanged")
    assert changed["speed_ppm"] == 300 * 1_000_000 // ALONE_PER_S
    assert [each.seq for each in replay(lines) if not each.is_same] == []
    assert any(not each.is_same for each in replay(_without_measurements(lines)))


def _without_measurements(lines: list[str]) -> list[str]:
    """The log as if the first job had never said how fast it is."""
    found = []
    for line in lines:
        said = json.loads(line)
        if "events" in said:
            said["events"] = [each for each in said["events"] if each["is"] != "RunSpeedChanged"]
        found.append(json.dumps(said))
    return found


def test_an_unmodified_program_is_profiled_as_it_runs(tmp_path: Path) -> None:
    tmp_path.joinpath("train.py").write_text(TRAIN)
    command = [sys.executable, "train.py"]
    with live(tmp_path, "--slots", "1", "--policy", "fifo") as daemon:
        first = daemon.submit(command=command, workdir=str(tmp_path))
        waiting = daemon.submit(command=command, workdir=str(tmp_path))

        def known() -> dict[str, Any] | None:
            found = daemon.job(first)["profile"] or {}
            return found if found.get("step_us") and found.get("sync_bytes") else None

        profile = until(known, "it to be profiled")
        assert profile["sync_bytes"] == 4 * 100 * 10
        assert profile["step_us"] >= 50_000
        assert profile["cpu_us"] > 0
        assert profile["activation_bytes"] is None, "there is no GPU"
        assert daemon.job(waiting)["profile"]["sync_bytes"] == profile["sync_bytes"]
        words = ["estimate", first, "--speed", "--links", "usual", "--cluster", "1x2", "--json"]
        said = subprocess.run(
            [sys.executable, "-m", "trainmaster", *words],
            env=os.environ | {"TRAINMASTER_DATA": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.returncode == 0, said.stderr
        curve = json.loads(said.stdout)["curves"]
        assert [each["devices"] for each in curve] == [1, 2]
        assert curve[0]["step_ms"] == pytest.approx(profile["step_us"] / 1000, rel=0.5)
        for id in (waiting, first):
            cancel(daemon, id)
        third = daemon.submit(command=command, workdir=str(tmp_path), held=True)
        assert daemon.job(third)["profile"]["sync_bytes"] == profile["sync_bytes"]


def test_links_that_change_leave_running_jobs_alone(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2x2", "--policy", "max-min") as daemon:
        id = elastic(daemon, "kept", gpus=2, preemptible=True)
        before = devices_of(daemon, id)
        daemon.stop()
        tmp_path.joinpath("links.yaml").write_text(SLOW_RACK)
        daemon.start()
        daemon.until_active()
        found = daemon.job(id)
        assert (found["state"], found["devices"]) == ("running", before)
        narrow = elastic(daemon, "known", gpus="1-2", profile=PROFILE)
        assert len(devices_of(daemon, narrow)) == 2
        lines = logged(daemon)
    assert [each.seq for each in replay(lines) if not each.is_same] == []
