"""Processor time of `trainmaster ps` and `explain` with thousands of jobs: the command's own, and what the
manager spends on answering it. Times by the clock would measure what else the machine does.

The measure is a Python that does nothing but load the library for command lines (Typer), started in the same
rounds: on a busy machine both take longer, and their ratio stays.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.live_daemon import MeasuringClient
from benchmarks.live_empty_job import until
from tests.live.daemons import LiveDaemon, live

ROUNDS = 11
AIM_S = 0.5
SLEEPER = {"command": "exec sleep 100000", "snapshot": False}
BASELINE = [sys.executable, "-c", "import typer"]


def measured(count: int, folder: Path, program: list[str]) -> dict[str, Any]:
    """With so many jobs of each kind behind two that run: an array, single ones, ended ones."""
    folder.mkdir()
    with live(folder, "--slots", "2", "--policy", "fifo") as daemon:
        client = MeasuringClient(daemon)
        client.call("POST", "/api/v1/jobs", {"jobs": [SLEEPER] * 2})
        until(lambda: client.counts().get("running") == 2, "the slots to be taken", 0.1)
        array = client.call("POST", "/api/v1/jobs", SLEEPER | {"array": f"0-{count - 1}"})
        commands = [_cost(daemon, program, "one array", ["ps"])]
        client.call("POST", f"/api/v1/jobs/{array['jobs'][0]['id']}/cancel")
        commands.append(_cost(daemon, program, "as many that have ended", ["ps", "-a", "--each"]))
        single = client.call("POST", "/api/v1/jobs", {"jobs": [SLEEPER] * count})
        last = single["jobs"][-1]["id"]
        commands.append(_cost(daemon, program, "single jobs", ["ps"]))
        commands.append(_cost(daemon, program, "single jobs", ["explain", last]))
        return {
            "date": datetime.now(UTC).isoformat(timespec="minutes"),
            "load": round(os.getloadavg()[0], 2),
            "jobs": count,
            "aim_s": AIM_S,
            "commands": commands,
        }


def _cost(
    daemon: LiveDaemon, program: list[str], jobs: str, words: list[str]
) -> dict[str, float | str]:
    assert daemon.process is not None
    own, managers, walls, baselines = [], [], [], []
    env = os.environ | {"COLUMNS": "200", "TRAINMASTER_DATA": str(daemon.folder)}
    for _ in range(ROUNDS):
        before, spent, began = _children_s(), _process_s(daemon.process.pid), time.perf_counter()
        subprocess.run([*program, *words], check=True, capture_output=True, env=env)
        walls.append(time.perf_counter() - began)
        own.append(_children_s() - before)
        managers.append(_process_s(daemon.process.pid) - spent)
        before = _children_s()
        subprocess.run(BASELINE, check=True)
        baselines.append(_children_s() - before)
    sums = [sum(each) for each in zip(own, managers, strict=True)]
    ratio = median(sums) / median(baselines)
    return {
        "command": " ".join(word for word in words if not word.isdigit()),
        "of": jobs,
        "command_s": round(median(own), 2),
        "manager_s": round(median(managers), 2),
        "sum_s": round(median(sums), 2),
        "least_s": round(min(sums), 2),
        "wall_s": round(median(walls), 2),
        "ratio": round(ratio, 1),
    }


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _process_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
