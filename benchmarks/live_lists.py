"""Processor time of `trainmaster ps` and `explain` with thousands of jobs that wait: the command's own, and
what the manager spends on answering it. Times by the clock would measure what else the machine does."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.live_daemon import MeasuringClient
from tests.live.daemons import LiveDaemon, live

ROUNDS = 5
AIM_S = 0.5
SLEEPER = {"command": "exec sleep 100000", "snapshot": False}


def measured(count: int, folder: Path, program: list[str]) -> dict[str, Any]:
    """With so many jobs that wait behind two that run."""
    folder.mkdir()
    with live(folder, "--slots", "2", "--policy", "fifo") as daemon:
        client = MeasuringClient(daemon)
        client.call("POST", "/api/v1/jobs", {"jobs": [SLEEPER] * (count + 2)})
        last = str(count + 2)
        return {
            "jobs": count,
            "aim_s": AIM_S,
            "commands": [
                {"command": words[0], **_cost(daemon, [*program, *words, "--data", str(folder)])}
                for words in (["ps"], ["explain", last])
            ],
        }


def _cost(daemon: LiveDaemon, words: list[str]) -> dict[str, float]:
    assert daemon.process is not None
    own, managers = [], []
    for _ in range(ROUNDS):
        before, spent = _children_s(), _process_s(daemon.process.pid)
        subprocess.run(words, check=True, capture_output=True, env=os.environ | {"COLUMNS": "200"})
        own.append(_children_s() - before)
        managers.append(_process_s(daemon.process.pid) - spent)
    return {"command_s": round(median(own), 2), "manager_s": round(median(managers), 2)}


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _process_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
