"""The page docs/measurements/memory-live.md, from the results of the programs that it names.

    python -m benchmarks.memory_live_page [--results benchmarks/results] [--out docs/measurements]

What has not been measured is said to be missing; results of a played GPU are refused.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gpu.page import table

Found = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
GIB = 1 << 30
GPU, LONGER = "zero_estimate.json", "zero_estimate_long.json"
ALONE_AT_FIRST = "a program that nobody has measured has its GPU for itself"
PARTS = {
    "alone": "one at a time (`fifo`)",
    "known": "packed, each program has run once",
    "new": "packed, by a manager that has seen none",
}


SHORT = {
    "alone": "one at a time",
    "known": "together, each program has run once",
    "new": "together, by a manager that has seen none",
}


def page(
    gpu: Found | None, longer: Found | None, slots: Found | None, short: Found | None = None
) -> str:
    lines = ["# Jobs of which nobody says how much memory they need", ""]
    lines += ["Written by `python -m benchmarks.memory_live_page`. No job states any memory.", ""]
    lines += ["## Twenty training jobs on one GPU", "", *of_gpu(gpu, GPU), ""]
    if longer is not None:
        lines += ["## Eight of them, which train longer", "", *of_gpu(longer, LONGER), ""]
    lines += ["## Twenty jobs on CPU slots", "", *of_slots(slots), ""]
    lines += ["## Twenty jobs on CPU slots where host memory is short", "", *of_short(short)]
    return "\n".join(lines) + "\n"


def of_gpu(read: Found | None, file: str) -> list[str]:
    if read is None:
        return ["Not measured yet: `python -m benchmarks.gpu.zero_estimate`."]
    machine, steps = read["machine"], read["steps"]
    parts = {name: steps[name] for name in PARTS if "jobs" in steps.get(name, {})}
    starts = [job["start_s"] for each in parts.values() for job in each["jobs"] if job["start_s"]]
    lines = [
        f"`python -m benchmarks.gpu.zero_estimate`: {read['date']}, {machine['gpu']}, driver"
        f" {machine['driver']}; [raw](../../benchmarks/results/gpu/{file}). A program takes"
        f" {median(starts):.1f} s (median) to start, and trains alone for {steps['setting']['seconds']} s."
        " Some make their batches on the CPU, as simple loaders do, so that alone they leave the GPU idle.",
        "",
    ]
    rows: list[tuple[object, ...]] = [
        (
            PARTS[name],
            f"{each['succeeded']} of {len(each['jobs'])}",
            each["out_of_memory"],
            each["stopped_for_memory"],
            each["wall_s"],
            each["steps_per_s"],
            each["jobs_per_min"],
            f"{each['gpu_busy']:.0%}",
            each["jobs_at_once_mean"],
        )
        for name, each in parts.items()
    ]
    heads = "how | succeeded | out of memory | stopped for it | s | steps/s | jobs/min | GPU busy | at once"
    lines += [*table(heads, rows), ""]
    cut = [PARTS[name] for name, each in parts.items() if not each["all_ended"]]
    if cut:
        lines += [f"Ended by the time limit before all jobs were done: {'; '.join(cut)}.", ""]
    most = max(each["gpu_memory_most_gib"] for each in parts.values())
    held = f"At most {most:.0f} GiB of the GPU's {machine['gpu_memory'] / GIB:.0f} GiB were in use"
    lines += [f"{held}: memory was never short, so little depended on the estimates.", ""]
    for name in ("known", "new"):
        if name in parts and parts[name]["jobs_at_once_most"] == 1:
            lines += [f"{PARTS[name].capitalize()}: nothing was packed, for {ALONE_AT_FIRST}.", ""]
        if not parts.get(name, {}).get("against_alone", {}).get("is_same_work", True):
            lines += [f"{PARTS[name].capitalize()}: not the same work as one at a time.", ""]
    for name in ("known", "new"):
        if name in parts:
            lines += [f"### {PARTS[name].capitalize()}", "", *jobs_of(parts[name]["jobs"]), ""]
    return lines[:-1]


def jobs_of(jobs: list[Found]) -> list[str]:
    rows: list[tuple[object, ...]] = [
        (
            f"`{job['program']}`",
            job["state"],
            expected(job),
            gib(max((each["reserved_bytes"] or 0 for each in job["said"]), default=0)),
            gib((job["memory"] or {}).get("peak_bytes") or 0),
            gib(job["reserved_bytes"] or 0),
        )
        for job in jobs
    ]
    return table("job | end | expected first, GiB | reserved | read | held by PyTorch", rows)


def expected(job: Found) -> str:
    """What was first said of it while it ran, and judging by what."""
    if not job["said"]:
        return "-"
    first = job["said"][0]
    return f"{gib(first['low_bytes'])} to {gib(first['high_bytes'])} ({first['source']})"


def gib(size: int) -> str:
    return f"{size / GIB:.1f}" if size else "-"


def of_slots(read: Found | None) -> list[str]:
    if read is None:
        return ["Not measured yet: `python -m benchmarks.zero_estimate_slots`."]
    rows: list[tuple[object, ...]] = [
        (
            f"{each['slots']} slot{'s' * (each['slots'] > 1)}",
            f"{each['succeeded']} of {len(each['jobs'])}",
            each["out_of_memory"],
            each["wall_s"],
            each["steps_per_s"],
            each["jobs_at_once"],
        )
        for each in (read["alone"], read["packed"])
    ]
    return [
        f"`python -m benchmarks.zero_estimate_slots`: {read['date']}, {read['cpus']} cores, with a load of"
        f" {read['load_before']:.1f} by others; [raw](../../benchmarks/results/zero_estimate_slots.json)."
        " Five programs, four runs of each, which book what was learned and are not limited: one needs"
        " half as much again from its third run on. A step computes for some milliseconds and sleeps for 30,"
        " as if it waited for input: that is why several at once gain so much on few cores.",
        "",
        *table("how | succeeded | out of memory | s | steps/s | jobs at once", rows),
    ]


def of_short(read: Found | None) -> list[str]:
    if read is None:
        return ["Not measured yet: `python -m benchmarks.zero_estimate_short`."]
    parts = {name: read[name] for name in SHORT}
    most = read["memory_mib"]
    rows: list[tuple[object, ...]] = [
        (
            SHORT[name],
            each["slots"],
            f"{each['succeeded']} of {len(each['jobs'])}",
            each["out_of_memory"],
            each["wall_s"],
            each["steps_per_s"],
            each["jobs_per_min"],
            each["jobs_at_once"],
            f"{each['memory_mean_mib'] / most:.0%}",
            f"{each['memory_most_mib'] / most:.0%}",
        )
        for name, each in parts.items()
    ]
    gain = parts["known"]["steps_per_s"] / parts["alone"]["steps_per_s"]
    heads = (
        "how | slots | succeeded | runs out of memory | s | steps/s | jobs/min | jobs at once"
        " | memory, mean | memory, most"
    )
    return [
        f"`python -m benchmarks.zero_estimate_short`: {read['date']}, {read['cpus']} cores, with a load of"
        f" {read['load_before']:.1f} by others; [raw](../../benchmarks/results/zero_estimate_short.json). A"
        f" control group holds all jobs together to {most} MiB, which is what the manager believes that the"
        " machine has: where they take more, the kernel kills one. Five programs take 60, 150, 240, 160 and"
        " 100 MiB, each four times with the same arguments and without retries; the second has most of it in"
        " processes that it starts, the fourth takes half of it late, the last needs half as much again from"
        " its third run on. Steps are those of the section before.",
        "",
        *table(heads, rows),
        "",
        f"Where each program had run once, memory decided how many ran at once, none was out of it, and"
        f" together they were {gain:.1f} times as fast as one at a time. {_killed(parts['new'])}",
    ]


def _killed(new: Found) -> str:
    """What came of jobs of which nothing was known."""
    runs = new["out_of_memory"]
    if not runs:
        return "Of a manager that had seen none of them no run was out of memory either."
    return (
        f"A manager that has seen none of them starts a job on each slot: {runs} runs were killed, were"
        " started again with more booked, without using up a retry, and"
        f" {new['succeeded']} of {len(new['jobs'])} jobs succeeded."
    )


def read_of(file: Path) -> Found | None:
    found: Found | None = json.loads(file.read_text()) if file.exists() else None
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks/results")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/measurements")
    asked = parser.parse_args()
    gpu, longer = (read_of(asked.results / "gpu" / file) for file in (GPU, LONGER))
    if any(each is not None and each["machine"]["is_fake"] for each in (gpu, longer)):
        sys.exit("a result is of a played GPU: its figures mean nothing")
    slots, short = (
        read_of(asked.results / f"zero_estimate_{name}.json") for name in ("slots", "short")
    )
    text = page(gpu, longer, slots, short)
    (asked.out / "memory-live.md").write_text(text)


if __name__ == "__main__":
    main()
