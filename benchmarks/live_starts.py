"""How long an empty job takes from being asked for to its first instruction, and how many start a second.

Trainmaster by its API and by its command line, next to the alternatives on one machine.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import live_ray, live_slurm
from benchmarks.live_daemon import MeasuringClient, command
from benchmarks.live_empty_job import (
    Latency,
    StartMeasurement,
    burst,
    burst_of_single_requests,
    cores,
    one_by_one,
    until,
    written_program,
)
from tests.live.daemons import live

FLOOR = "subprocess.Popen"
FLOOR_INCLUDES = "fork and exec of sh from a Python that runs already; nothing is kept anywhere"
API = "Trainmaster, API"
API_INCLUDES = (
    "HTTP, a step kept in SQLite (fsync) first, a forked supervisor, sh; no Python starts"
)
CLI = "Trainmaster, `trainmaster submit`"
CLI_INCLUDES = "the same, and one start of Python for the command line"


def measured(count: int, jobs: int, folder: Path) -> Iterator[StartMeasurement]:
    """All contenders, one after the other."""
    yield floor(count, jobs, folder / "floor")
    yield from ours(count, jobs, folder / "ours")
    yield from live_slurm.measure(count, jobs, folder / "slurm")
    yield from live_ray.measure(count, jobs, folder / "ray")


def floor(count: int, jobs: int, folder: Path) -> StartMeasurement:
    """The minimum cost: a bare `Popen`."""
    folder.mkdir(parents=True)
    program = str(written_program(folder))

    def ask(path: Path) -> int:
        began = time.time_ns()
        subprocess.Popen([program, str(path)]).wait()
        return began

    latency = one_by_one(count, folder / "one", ask)
    together = burst_of_single_requests(jobs, folder / "many", ask)
    return StartMeasurement(FLOOR, FLOOR_INCLUDES, latency, together)


def ours(count: int, jobs: int, folder: Path) -> Iterator[StartMeasurement]:
    with live(folder / "state", "--slots", str(cores())) as daemon:
        client = MeasuringClient(daemon)
        program = written_program(folder)

        def ask(path: Path) -> int:
            job = {"command": [str(program), str(path)], "snapshot": False}
            began = time.time_ns()
            client.call("POST", "/api/v1/jobs", job)
            return began

        def ask_all(many: Path) -> None:
            before = client.counts().get("succeeded", 0)
            job = {
                "command": f"exec {program} {many}/$TRAINMASTER_ARRAY_INDEX",
                "snapshot": False,
                "array": f"0-{jobs - 1}",
            }
            client.call("POST", "/api/v1/jobs", job)
            until(
                lambda: client.counts().get("succeeded", 0) >= before + jobs,
                "the array to end",
                0.02,
            )

        latency = one_by_one(count, folder / "one", ask)
        yield StartMeasurement(API, API_INCLUDES, latency, burst(jobs, folder / "many", ask_all))
        yield StartMeasurement(CLI, CLI_INCLUDES, _by_command(client.url, program, count, folder))


def _by_command(url: str, program: Path, count: int, folder: Path) -> Latency:
    file = folder / "job.yaml"

    def ask(path: Path) -> int:
        file.write_text(json.dumps({"command": [str(program), str(path)], "snapshot": False}))
        began = time.time_ns()
        words = [*command(), "submit", str(file), "--url", url]
        subprocess.run(words, check=True, capture_output=True)
        return began

    return one_by_one(count, folder / "by-command", ask, warm=1)
