"""Ray tasks on one machine, in a network namespace of their own (Ray listens on all interfaces).

Run by a Python that has Ray, which need not have Trainmaster: it is told everything by its arguments and
answers with JSON. `TRAINMASTER_BENCH_RAY` names that Python; by default ours, if it has Ray.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.live_empty_job import StartMeasurement

TASK = "Ray {version}, a task"
TASK_INCLUDES = (
    "a function call in a Python worker that runs already; no process and no Python starts"
)
PROGRAM = "Ray {version}, a task that starts the program"
PROGRAM_INCLUDES = "the same, and subprocess.run of sh in it; no Python starts"


def measure(count: int, burst: int, folder: Path) -> list[StartMeasurement]:
    """Both ways, or why not."""
    from benchmarks.live_empty_job import StartMeasurement, cores, written_program

    named = {TASK: TASK_INCLUDES, PROGRAM: PROGRAM_INCLUDES}
    python = os.environ.get("TRAINMASTER_BENCH_RAY", sys.executable)
    why = _why_not(python)
    if why:
        return [
            StartMeasurement(name.format(version="").replace(" ,", ","), includes, absent=why)
            for name, includes in named.items()
        ]
    folder.mkdir(parents=True)
    words = [str(written_program(folder)), str(folder), str(count), str(burst), str(cores())]
    inside = 'ip link set lo up && exec "$@"'
    done = subprocess.run(
        ["unshare", "-n", "bash", "-c", inside, "bash", python, __file__, *words],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
    )
    if done.returncode != 0:
        raise RuntimeError(f"Ray's measurement failed:\n{done.stdout}\n{done.stderr}")
    said = json.loads(done.stdout.splitlines()[-1])
    return [
        _read(name.format(version=said["version"]), includes, said[key])
        for (name, includes), key in zip(named.items(), ("task", "program"), strict=True)
    ]


def _why_not(python: str) -> str:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return "no network namespace can be made here: unshare or ip is not installed"
    found = subprocess.run([python, "-c", "import ray"], check=False, capture_output=True)
    if found.returncode != 0:
        return f"{python} has no Ray (name one that has by TRAINMASTER_BENCH_RAY)"
    alone = subprocess.run(["unshare", "-n", "true"], check=False, capture_output=True, text=True)
    return "" if alone.returncode == 0 else f"unshare -n: {alone.stderr.strip()}"


def _read(name: str, includes: str, said: dict[str, Any]) -> StartMeasurement:
    from benchmarks.live_empty_job import StartMeasurement, burst_of, latency_of

    burst = said["burst"]
    return StartMeasurement(
        name,
        includes,
        latency_of(said["waited_ns"]),
        burst_of(burst["began_ns"], burst["ended_ns"], burst["stamps"]),
    )


# -- inside, with Ray and without Trainmaster -----------------------------------------------------------


def inside(program: str, folder: str, count: int, burst: int, cpus: int) -> dict[str, Any]:
    import ray

    own = tempfile.mkdtemp(prefix="r", dir="/tmp")  # short: sockets go in there
    ray.init(
        num_cpus=cpus,
        include_dashboard=False,
        object_store_memory=80 << 20,
        _temp_dir=own,
        _node_ip_address="127.0.0.1",
        log_to_driver=False,
    )

    @ray.remote(num_cpus=1)
    def task() -> int:
        return time.time_ns()

    @ray.remote(num_cpus=1)
    def start(path: str) -> int:
        subprocess.run([program, path], check=True)
        with open(path) as written:
            return int(written.read())

    paths = (os.path.join(folder, str(number)) for number in range(1_000_000))
    try:
        ray.get([task.remote() for _ in range(4 * cpus)])
        return {
            "version": ray.__version__,
            "task": _both(ray, count, burst, task.remote),
            "program": _both(ray, count, burst, lambda: start.remote(next(paths))),
        }
    finally:
        ray.shutdown()
        shutil.rmtree(own, ignore_errors=True)


def _both(ray: Any, count: int, burst: int, ask: Any) -> dict[str, Any]:
    waited = []
    for _ in range(5 + count):
        began = time.time_ns()
        waited.append(ray.get(ask()) - began)
        time.sleep(0.02)
    began = time.time_ns()
    stamps = ray.get([ask() for _ in range(burst)])
    ended = time.time_ns()
    return {
        "waited_ns": waited[5:],
        "burst": {"began_ns": began, "ended_ns": ended, "stamps": stamps},
    }


if __name__ == "__main__":
    where, into, *numbers = sys.argv[1:]
    print(json.dumps(inside(where, into, *map(int, numbers))))
