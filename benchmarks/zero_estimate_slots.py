"""Twenty jobs on CPU slots of which nobody says how much memory they need, against one job at a time.

    python -m benchmarks.zero_estimate_slots [--slots 4] [--seconds 4] [--out benchmarks/results]

Five programs come four times each. One takes more of its memory late, and one needs half as much again from
its third run on. What is booked is what the manager has learned; nothing is stated, so nothing is limited.
`alone`: a manager with one slot. `packed`: one with four, under the default policy.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.harness import ENDED, ROOT, Manager

MIB = 1 << 20
PROGRAMS = {"small": 60, "middle": 120, "large": 240, "late": 160, "growing": 100}
"""MiB that each takes."""
RUNS = 4
WORK = """
import json, pathlib, sys, time
mib, seconds, out, is_late = int(sys.argv[2]), float(sys.argv[3]), sys.argv[4], sys.argv[1] == "late"
if sys.argv[1] == "growing" and int(pathlib.Path(out).stem.rpartition("-")[2]) >= 2:
    mib = mib * 3 // 2

def take(mib):
    kept = bytearray(mib << 20)
    kept[::4096] = b"1" * len(kept[::4096])
    return kept

held = [take(mib // 2 if is_late else mib)]
began, steps = time.monotonic(), 0
while steps < int(seconds * 20):
    total = sum(range(150_000))
    time.sleep(0.03)
    steps += 1
    if is_late and len(held) == 1 and steps >= seconds * 10:
        held.append(take(mib // 2))
json.dump({"steps": steps, "s": time.monotonic() - began}, open(out, "w"))
"""
"""A step computes for some milliseconds and waits for input for thirty."""


def submit(manager: Manager, name: str, number: int, seconds: float) -> str:
    program = manager.folder / "work.py"
    out = manager.folder / f"{name}-{number}.json"
    command = [sys.executable, "-S", str(program), name, str(PROGRAMS[name]), str(seconds)]
    # where the result goes is no argument of the program's: runs are to have the same ones
    shell = f"exec {' '.join(command)} $OUT_FILE"
    job = {"name": f"{name}-{number}", "command": ["sh", "-c", shell], "gpus": 1}
    job |= {"workdir": str(manager.folder), "snapshot": False, "env": {"OUT_FILE": str(out)}}
    return str(manager.get("/jobs", job)["jobs"][0]["id"])


def run(slots: int, seconds: float) -> dict[str, Any]:
    with Manager("--slots", slots) as manager:
        (manager.folder / "work.py").write_text(WORK)
        began, ids = time.monotonic(), []
        for number in range(RUNS):
            ids += [submit(manager, name, number, seconds) for name in PROGRAMS]
        rows = {id: manager.get(f"/jobs/{id}") for id in wait(manager, ids)}
        wall_s = time.monotonic() - began
        sentences = {id: manager.sentences(id) for id in ids}
        files = [manager.folder / f"{row['name']}.json" for row in rows.values()]
        steps = sum(json.loads(file.read_text())["steps"] for file in files if file.exists())
    jobs = [
        {
            "name": row["name"],
            "state": row["state"],
            "attempts": row["attempt"],
            "failures": row["failures"],
            "out_of_memory": sum("host out of memory" in each for each in sentences[id]),
            "story": sentences[id],
        }
        for id, row in rows.items()
    ]
    return {
        "slots": slots,
        "succeeded": sum(job["state"] == "succeeded" for job in jobs),
        "out_of_memory": sum(job["out_of_memory"] for job in jobs),
        "failed": sum(job["state"] != "succeeded" for job in jobs),
        "wall_s": round(wall_s, 2),
        "steps_per_s": round(steps / wall_s, 2),
        "jobs_at_once": round(sum(row["run_s"] for row in rows.values()) / wall_s, 2),
        "jobs": jobs,
    }


def wait(manager: Manager, ids: Sequence[str]) -> Sequence[str]:
    while True:
        rows = {row["id"]: row["state"] for row in manager.get("/jobs?limit=100")["jobs"]}
        if all(rows.get(id) in ENDED for id in ids):
            return ids
        time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each job alone")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    asked = parser.parse_args()
    found: dict[str, Any] = {"date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())}
    found |= {"cpus": os.cpu_count(), "load_before": os.getloadavg()[0]}
    for name, slots in (("alone", 1), ("packed", asked.slots)):
        found[name] = run(slots, asked.seconds)
        print(name, {key: value for key, value in found[name].items() if key != "jobs"}, flush=True)
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "zero_estimate_slots.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
