"""An unmodified PyTorch program leaves its GPU and comes back, by the driver: times, memory, weights.

    python -m benchmarks.gpu.freeze_thaw [--sizes 1,4,16] [--cycles 100] [--out DIR]

Two steps: `sizes` measures three cycles at each size; `cycles` freezes the smallest so many times, beside an
equal program that is left alone, and compares their weights in the end.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.gpu import harness
from benchmarks.gpu.harness import Found, Program, Results

ROUNDS = 3
STEPS = 26_000
"""A little more than fit between a hundred cycles, at 5 ms each: the host of the H200 is slow."""
BETWEEN_S = 0.3


def cycle(pid: int) -> Found:
    """One freeze and thaw. `s` is the whole call, `call_ms` what the driver's calls took."""
    before = harness.gpu_memory_mib()
    freeze = harness.checkpoint("freeze", pid, seconds=120)
    between = harness.gpu_memory_mib()
    thaw = harness.checkpoint("thaw", pid, seconds=120)
    for name, said, end in (("freeze", freeze, "frozen"), ("thaw", thaw, "running")):
        if said["lines"][-1:] == [] or said["lines"][-1].get("end") != end:
            raise RuntimeError(f"{name}: {said}")
    return {
        "gpu_mib": [before, between, harness.gpu_memory_mib()],
        "process_mib": harness.process_memory_mib(pid),
        "freeze_s": freeze["s"],
        "thaw_s": thaw["s"],
        "call_ms": {each["did"]: each["ms"] for each in calls(freeze) + calls(thaw)},
    }


def calls(said: Found) -> list[Found]:
    return [line for line in said["lines"] if isinstance(line, dict) and "did" in line]


def of_size(results: Results, gib: float) -> None:
    name = f"{gib:g}GiB"
    with tempfile.TemporaryDirectory() as folder:
        program = Program(Path(folder), "program", "--fill-gib", gib)
        try:
            results.add(name, ready=program.ready(60))
            rows = []
            for _ in range(ROUNDS):
                rows.append(cycle(program.pid))
                results.add(name, cycles=rows)
                time.sleep(1.0)
            before = program.step()
            did = harness.wait_for(lambda: program.step() > before, 10)
            results.add(name, trains_on=bool(did), size_gib=gib, median_ms=medians(rows))
        finally:
            program.end()


def medians(rows: list[Found]) -> Found:
    found = {
        name: statistics.median(1000 * row[name] for row in rows) for name in ("freeze_s", "thaw_s")
    }
    for did in rows[0]["call_ms"]:
        found[did] = statistics.median(row["call_ms"][did] for row in rows)
    return {name: round(value, 2) for name, value in found.items()}


def many(results: Results, gib: float, count: int, steps: int) -> None:
    words = ("--fill-gib", gib, "--steps", steps, "--deterministic", "--seed", 3)
    results.add("cycles", size_gib=gib, asked=count)
    with tempfile.TemporaryDirectory() as folder:
        both = [Program(Path(folder), name, *words) for name in ("frozen", "undisturbed")]
        try:
            both[0].ready(60), both[1].ready(60)
            rows: list[Found] = []
            while len(rows) < count and both[0].process.poll() is None:
                rows.append(cycle(both[0].pid))
                if len(rows) % 10 == 0:
                    results.add("cycles", done=len(rows), median_ms=medians(rows))
                time.sleep(BETWEEN_S)
            found = [program.result(300) for program in both]
        finally:
            for program in both:
                program.end()
    results.add("cycles", done=len(rows), median_ms=medians(rows))
    results.add("cycles", frozen=found[0], undisturbed=found[1])
    results.add("cycles", weights_are_the_same=found[0]["weights"] == found[1]["weights"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1,4,16", help="GiB beside the model")
    parser.add_argument("--cycles", type=int, default=100, help="0: none")
    parser.add_argument("--steps", type=int, default=STEPS, help="of the programs of `cycles`")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    sizes = [float(each) for each in asked.sizes.split(",")]
    results = Results("freeze_thaw", asked.out)
    for gib in sizes:
        results.step(f"{gib:g}GiB", 30 + 10 * gib, lambda gib=gib: of_size(results, gib))  # type: ignore[misc]
    if asked.cycles:
        results.step("cycles", 540, lambda: many(results, sizes[0], asked.cycles, asked.steps))


if __name__ == "__main__":
    main()
