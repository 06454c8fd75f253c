"""Twenty jobs on CPU slots where host memory is short, and nobody says how much they need.

    python -m benchmarks.zero_estimate_short [--slots 8] [--memory 900] [--seconds 4]

A memory control group holds all jobs to so many MiB together, which is what the manager believes that the
machine has: where they take more, the kernel kills one. Five programs come four times each, with the same
arguments. One takes half of its memory late, one needs half as much again from its third run on, and one has
most of it in processes that it starts. `alone`: one slot. `known`: all slots, and each program has run once
before. `new`: by a manager that has seen none. Needs root and control groups of version 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from types import TracebackType
from typing import Any

from benchmarks.gpu.harness import ROOT as CHECKOUT
from benchmarks.gpu.harness import Manager
from benchmarks.zero_estimate_slots import wait
from trainmaster.engines.local.cgroup_probe import hierarchies

MIB = 1 << 20
PROGRAMS = {"small": 60, "loaders": 150, "large": 240, "late": 160, "growing": 100}
"""MiB that each takes."""
RUNS = 4
LOOK_S = 0.1
WORK = """
import json, pathlib, subprocess, sys, time
name, mib, seconds, out = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
if name == "growing" and int(pathlib.Path(out).stem.rpartition("-")[2]) >= 2:
    mib = mib * 3 // 2

def take(mib):
    kept = bytearray(mib << 20)
    kept[::4096] = b"1" * len(kept[::4096])
    return kept

LOADER = "import sys; kept = b'1' * (int(sys.argv[1]) << 20); input()"
loaders = []
if name == "loaders":
    mib = mib // 3
    loaders = [
        subprocess.Popen([sys.executable, "-S", "-c", LOADER, str(mib)], stdin=subprocess.PIPE)
        for _ in range(2)
    ]
held = [take(mib // 2 if name == "late" else mib)]
began, steps = time.monotonic(), 0
while steps < int(seconds * 20):
    total = sum(range(150_000))
    time.sleep(0.03)
    steps += 1
    if any(loader.poll() is not None for loader in loaders):
        sys.exit(137)
    if name == "late" and len(held) == 1 and steps >= seconds * 10:
        held.append(take(mib // 2))
for loader in loaders:
    loader.communicate(b"end")
json.dump({"steps": steps, "s": time.monotonic() - began}, open(out, "w"))
"""
"""A step computes for some milliseconds and waits for input for thirty."""


class MemoryGroup:
    """A control group that jobs are kept in: a manager that starts in it makes theirs below it."""

    def __init__(self, limit: int) -> None:
        folder = hierarchies()[1].get("memory", "")
        if not folder or not os.access(folder, os.W_OK):
            sys.exit("needs root and a memory control group of version 1")
        self._above, self._limit = Path(folder), limit
        self.folder = self._above / f"zero-estimate-{os.getpid()}"
        self._is_over = threading.Event()
        self.looks: list[int] = []
        """Bytes of all jobs that are no files."""
        self.kills = 0

    def __enter__(self) -> MemoryGroup:
        self.folder.mkdir()
        for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
            self._put(name, self._limit)
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))
        return self

    def leave(self) -> None:
        """Move all out that is in it: the manager, which keeps what it has taken beyond the limit."""
        for pid in (self.folder / "cgroup.procs").read_text().split():
            (self._above / "cgroup.procs").write_text(pid)
        self._managers = self._own_memory()
        used = int((self.folder / "memory.usage_in_bytes").read_text())
        for name in ("memory.memsw.limit_in_bytes", "memory.limit_in_bytes"):
            self._put(name, self._limit + used)
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_S):
            self.looks.append(max(0, self._own_memory() - self._managers))

    def _own_memory(self) -> int:
        said = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
        return int(said["total_rss"]) + int(said["total_shmem"])

    def _put(self, name: str, number: int) -> None:
        (self.folder / name).write_text(str(number))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        for _ in range(50):
            left = [each for each in self.folder.rglob("cgroup.procs") if each.read_text()]
            if not left:
                break
            time.sleep(0.1)
        for folder in sorted(self.folder.rglob("*/"), reverse=True):
            folder.rmdir()
        self.folder.rmdir()


def oom_kills() -> int:
    rows = Path("/proc/vmstat").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("oom_kill "))


def submit(manager: Manager, name: str, number: int, seconds: float, prefix: str = "") -> str:
    out = manager.folder / f"{prefix}{name}-{number}.json"
    program = [sys.executable, "-S", str(manager.folder / "work.py"), name]
    # where the result goes is no argument of the program's: runs are to have the same ones
    shell = f"exec {' '.join([*program, str(PROGRAMS[name]), str(seconds)])} $OUT_FILE"
    job = {"name": f"{prefix}{name}-{number}", "command": ["sh", "-c", shell], "gpus": 1}
    job |= {"workdir": str(manager.folder), "snapshot": False, "env": {"OUT_FILE": str(out)}}
    return str(manager.get("/jobs", job)["jobs"][0]["id"])


def run(slots: int, memory: int, seconds: float, *, is_known: bool) -> dict[str, Any]:
    with MemoryGroup(memory * MIB) as group, Manager("--slots", slots) as manager:
        group.leave()
        (manager.folder / "work.py").write_text(WORK)
        if is_known:
            wait(manager, [submit(manager, name, 0, seconds, "first-") for name in PROGRAMS])
        group.looks.clear()
        kills, began, ids = oom_kills(), time.monotonic(), list[str]()
        for number in range(RUNS):
            ids += [submit(manager, name, number, seconds) for name in PROGRAMS]
        rows = {id: manager.get(f"/jobs/{id}") for id in wait(manager, ids)}
        wall_s, looks = time.monotonic() - began, [*group.looks]
        killed = oom_kills() - kills
        sentences = {id: manager.sentences(id) for id in ids}
        files = [manager.folder / f"{row['name']}.json" for row in rows.values()]
        steps = sum(json.loads(file.read_text())["steps"] for file in files if file.exists())
    return {
        "slots": slots,
        "succeeded": sum(row["state"] == "succeeded" for row in rows.values()),
        "out_of_memory": sum(
            "host out of memory" in each for said in sentences.values() for each in said
        ),
        "processes_killed": killed,
        "wall_s": round(wall_s, 2),
        "steps_per_s": round(steps / wall_s, 2),
        "jobs_per_min": round(len(ids) * 60 / wall_s, 2),
        "jobs_at_once": round(sum(row["run_s"] for row in rows.values()) / wall_s, 2),
        "memory_mean_mib": round(mean(looks) / MIB),
        "memory_most_mib": round(max(looks) / MIB),
        "jobs": [
            {
                "name": row["name"],
                "state": row["state"],
                "attempts": row["attempt"],
                "failures": row["failures"],
                "story": sentences[id],
            }
            for id, row in rows.items()
        ],
    }


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--memory", type=int, default=900, help="MiB for all jobs together")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each job alone")
    parser.add_argument("--out", type=Path, default=CHECKOUT / "benchmarks/results")
    asked = parser.parse_args(words)
    found: dict[str, Any] = {"date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())}
    found |= {"cpus": os.cpu_count(), "load_before": os.getloadavg()[0], "memory_mib": asked.memory}
    asked.out.mkdir(parents=True, exist_ok=True)
    for name, slots, is_known in (
        ("alone", 1, False),
        ("known", asked.slots, True),
        ("new", asked.slots, False),
    ):
        found[name] = run(slots, asked.memory, asked.seconds, is_known=is_known)
        shown = {key: value for key, value in found[name].items() if key != "jobs"}
        print(name, shown, flush=True)
        (asked.out / "zero_estimate_short.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
