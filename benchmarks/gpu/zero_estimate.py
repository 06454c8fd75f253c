"""Twenty training jobs of which nobody says how much memory they need: packed, against one job per GPU.

    python -m benchmarks.gpu.zero_estimate [--limit 325] [--seconds S | --steps N] [--parts alone,known,new]

`alone`: the policy fifo, one job at a time, each for S seconds of training (default: as the limit allows).
`known`: the same jobs for as many steps under the default policy with its default settings, by the same
manager, which has seen each program run once. `new`: the same by a manager that has never seen them, as far
as the time goes. Everything ends by itself within the limit, and what was found by then is written.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gpu import harness
from benchmarks.gpu.harness import ENDED, GIB, HERE, Found, Manager, Results, env_with, train_env
from trainmaster.gpu.driver import open_driver

JOBS = (
    *("mlp --batch 512 --width 2048", "cnn --batch 64", "transformer --batch 4 --layers 6"),
    *("rnn --batch 64", "late --batch 512 --more-gib 2"),
    *("mlp --batch 1024 --width 4096", "cnn --batch 256", "transformer --batch 8 --layers 12"),
    *("rnn --batch 256", "late --batch 1024 --more-gib 4"),
    *("mlp --batch 2048 --width 6144", "cnn --batch 512", "transformer --batch 24 --layers 12"),
    *("rnn --batch 512", "late --batch 2048 --more-gib 8"),
    *("mlp --batch 4096 --width 8192", "cnn --batch 1024", "transformer --batch 48 --layers 12"),
    *("rnn --batch 1024", "late --batch 4096 --more-gib 12"),
)
"""About 1 to 30 GiB, in the order in which they are submitted."""
LOOK_S = 0.5
CLOSING_S = 12.0
"""Kept of the limit for the end: a manager with its jobs takes some seconds to go."""
PARTS = ("alone", "known", "new")
RUNS_OF_ALL = 2.3
"""How often all jobs are to run alone in the time that there is: `known` and `new` take less than alone."""
BESIDE_S = 0.3
"""What a job takes beside its start and its training."""


@dataclass
class Watched:
    """What was seen while one part ran."""

    jobs: dict[str, str]
    """Name by id."""
    busy_ppm: list[int] = field(default_factory=list)
    used_bytes: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    seen: dict[str, Found] = field(default_factory=dict)
    """Of each job: what its manager said of its memory, as it changed, and the most that was read."""


def command_of(words: str) -> list[str]:
    kind, *arguments = words.split()
    return [harness.train_python(), str(HERE / "zero_jobs" / f"{kind}.py"), *arguments]


def submit(manager: Manager, name: str, words: str, env: dict[str, str]) -> str:
    """By the API, for a command takes a second; no memory is stated."""
    out = manager.folder / f"{name}.json"
    out.unlink(missing_ok=True)
    job = {
        "name": name,
        "command": command_of(words),
        "workdir": str(manager.folder),
        "env": {**train_env(), **env, "ZERO_OUT": str(out)},
        "gpus": 1,
        "snapshot": False,
    }
    return str(manager.get("/jobs", job)["jobs"][0]["id"])


@contextlib.contextmanager
def watching(manager: Manager, watched: Watched) -> Iterator[None]:
    """Read the GPU and ask the manager, twice a second, while the body runs."""
    over, driver = threading.Event(), open_driver()

    def look() -> None:
        while not over.wait(LOOK_S):
            reading = driver.readings()[0]
            watched.busy_ppm.append(reading.util_ppm or 0)
            watched.used_bytes.append(reading.memory_used)
            with contextlib.suppress(OSError, ValueError, KeyError):
                _ask(manager, watched)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(5)


def _ask(manager: Manager, watched: Watched) -> None:
    rows = manager.get("/jobs?limit=100")["jobs"]
    running = [row["id"] for row in rows if row["state"] == "running" and row["id"] in watched.jobs]
    watched.running.append(len(running))
    for job in running:
        row = manager.get(f"/jobs/{job}")
        seen = watched.seen.setdefault(job, {"manager_read_bytes": 0, "said": []})
        used = max((each["memory_bytes"] for each in row["gpu_use"]), default=0)
        seen["manager_read_bytes"] = max(seen["manager_read_bytes"], used)
        said = row.get("memory")
        if said is not None and (not seen["said"] or seen["said"][-1] != said):
            seen["said"].append(said)


def outcomes(manager: Manager, watched: Watched) -> list[Found]:
    """A row for each job."""
    rows = []
    for job, name in watched.jobs.items():
        row, found = manager.get(f"/jobs/{job}"), manager.result(name) or {}
        sentences = manager.sentences(job)
        seen = watched.seen.get(job, {"manager_read_bytes": 0, "said": []})
        rows.append(
            {
                "name": name,
                "program": JOBS[int(name.split("-")[-1])],
                "state": row["state"],
                "attempts": row["attempt"],
                "failures": row["failures"],
                "waited_s": row["queue_s"],
                "ran_s": row["run_s"],
                **{key: found.get(key) for key in ("steps", "wall_s", "start_s", "reserved_bytes")},
                **seen,
                "memory": row.get("memory"),
                "out_of_memory": sum("out of memory" in each for each in sentences),
                "stopped_for_memory": sum("Stopped because it used" in each for each in sentences),
                "story": sentences,
            }
        )
    return rows


def part(
    results: Results,
    name: str,
    manager: Manager,
    jobs: Sequence[tuple[int, dict[str, str]]],
    until: float,
) -> None:
    """Submit these jobs, wait until they have ended or the time is over, and write what came of it."""
    began = time.monotonic()
    watched = Watched({})
    with watching(manager, watched):
        for number, env in jobs:
            id = submit(manager, f"{name}-{number}", JOBS[number], env)
            watched.jobs[id] = f"{name}-{number}"
        is_done = wait_all(manager, list(watched.jobs), until)
        wall_s = time.monotonic() - began
        if not is_done:
            manager.cancel(list(watched.jobs))
    results.add(name, **summary(outcomes(manager, watched), watched, wall_s, is_done))


def wait_all(manager: Manager, jobs: Sequence[str], until: float) -> bool:
    """Whether all have ended by then."""
    while time.monotonic() < until:
        rows = {row["id"]: row["state"] for row in manager.get("/jobs?limit=100")["jobs"]}
        if all(rows.get(job) in ENDED for job in jobs):
            return True
        time.sleep(LOOK_S)
    return False


def summary(rows: list[Found], watched: Watched, wall_s: float, is_done: bool) -> Found:
    done = [row for row in rows if row["state"] == "succeeded"]
    steps = sum(row["steps"] or 0 for row in done)
    return {
        "all_ended": is_done,
        "succeeded": len(done),
        "wall_s": round(wall_s, 2),
        "total_steps": steps,
        "steps_per_s": round(steps / wall_s, 2),
        "jobs_per_min": round(60 * len(done) / wall_s, 2),
        "out_of_memory": sum(row["out_of_memory"] for row in rows),
        "stopped_for_memory": sum(row["stopped_for_memory"] for row in rows),
        "gpu_busy": round(_mean(watched.busy_ppm) / 1e6, 4),
        "gpu_memory_mean_gib": round(_mean(watched.used_bytes) / GIB, 2),
        "gpu_memory_most_gib": round(max(watched.used_bytes, default=0) / GIB, 2),
        "jobs_at_once_mean": round(_mean(watched.running), 2),
        "jobs_at_once_most": max(watched.running, default=0),
        "jobs": rows,
    }


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0


def compare(results: Results, name: str) -> None:
    """A part that was cut short counts with what it did in its time."""
    steps = results.found["steps"]
    if not all(steps.get(each, {}).get("wall_s") for each in ("alone", name)):
        return
    before, after = steps["alone"], steps[name]
    results.add(
        name,
        against_alone={
            "is_same_work": before["total_steps"] == after["total_steps"],
            "steps_per_s": round(after["steps_per_s"] / max(1e-9, before["steps_per_s"]), 3),
            "jobs_per_min": round(after["jobs_per_min"] / max(1e-9, before["jobs_per_min"]), 3),
            "gpu_busy": [before["gpu_busy"], after["gpu_busy"]],
        },
    )


def warm_up(results: Results) -> float:
    """Start one program twice, so that the files of PyTorch are in memory; what a start takes after that."""
    command = command_of(JOBS[0])
    env = env_with({**train_env(), "ZERO_STEPS": "1"})
    took = 0.0
    for _ in range(2):
        began = time.monotonic()
        done = subprocess.run(command, env=env, check=False, capture_output=True, text=True)
        took = time.monotonic() - began
        if done.returncode:
            results.add("setting", first_program=done.stderr[-1500:])
    return took


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=325.0, help="seconds for everything")
    parser.add_argument("--seconds", type=float, help="of training of each job alone")
    parser.add_argument("--steps", type=int, help="of each job, instead")
    parser.add_argument("--jobs", type=int, default=len(JOBS))
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--policy", default="trainmaster", help="for `known` and `new`")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def same_steps(
    results: Results, given: dict[str, str], count: int
) -> list[tuple[int, dict[str, str]]]:
    """The jobs, for as many steps as they have made alone."""
    rows = results.found["steps"].get("alone", {}).get("jobs", [])
    made = {int(row["name"].split("-")[-1]): row["steps"] for row in rows}
    return [
        (number, {"ZERO_STEPS": str(made[number])} if made.get(number) else given)
        for number in range(count)
    ]


def main() -> None:
    asked = parsed()
    began = time.monotonic()
    results = Results("zero_estimate", asked.out)
    guard = threading.Timer(asked.limit + 3, os.kill, (os.getpid(), signal.SIGTERM))
    guard.daemon = True
    guard.start()  # whatever hangs
    end = began + asked.limit - CLOSING_S
    for each in PARTS:
        results.found["steps"].pop(each, None)
    start_s = warm_up(results)
    each_s = (end - time.monotonic()) / (RUNS_OF_ALL * asked.jobs)
    seconds = asked.seconds or min(8.0, max(1.5, each_s - start_s - BESIDE_S))
    results.add("setting", start_s=round(start_s, 2), seconds=round(seconds, 2))
    results.add("setting", policy=asked.policy, limit_s=asked.limit, jobs=JOBS[: asked.jobs])
    given = {"ZERO_STEPS": str(asked.steps)} if asked.steps else {"ZERO_SECONDS": str(seconds)}
    wanted = asked.parts.split(",")

    def left() -> float:
        return max(1.0, end - time.monotonic())

    def one_at_a_time_then_known() -> None:
        with Manager("--policy", "fifo") as manager:
            first = [(number, given) for number in range(asked.jobs)]
            part(results, "alone", manager, first, time.monotonic() + 0.6 * left())
            if "known" in wanted:
                manager.trainmaster("policy", "set", asked.policy)
                part(results, "known", manager, same_steps(results, given, asked.jobs), end)
                compare(results, "known")

    def new() -> None:
        with Manager("--policy", asked.policy) as manager:
            part(results, "new", manager, same_steps(results, given, asked.jobs), end)
            compare(results, "new")

    if "alone" in wanted:
        results.step("alone and known", left() + CLOSING_S / 2, one_at_a_time_then_known)
    if "new" in wanted:
        results.step("new from the start", left() + CLOSING_S / 2, new)


if __name__ == "__main__":
    main()
