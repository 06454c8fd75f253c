"""One to eight small jobs on one GPU through the live manager, by turns of the driver and under MPS.

    python -m benchmarks.gpu.packing_live [--copies 1,2,4,8] [--seconds 8] [--hidden 1024] [--out DIR]

Every job asks for an equal part of the GPU with `sharing: time` or `sharing: mps`, waits until all are ready,
and trains for so long. The gain is the steps of all per second, over those of one job alone by turns.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.gpu import harness
from benchmarks.gpu.harness import Absent, Manager, Results

START_S = 60.0


def together(
    manager: Manager, mode: str, count: int, seconds: float, hidden: int
) -> dict[str, object]:
    gate = manager.folder / f"gate-{mode}-{count}"
    gate.mkdir()
    words = ("--seconds", seconds, "--hidden", hidden, "--gate", gate)
    names = [f"{mode}-{count}-{number}" for number in range(count)]
    share = {"gpus": round(0.999 / count, 3), "sharing": mode}
    jobs = [manager.train(name, *words, **share) for name in names]
    try:
        pids = manager.wait_ready(gate, jobs, START_S)
        if mode == "mps" and not all(map(harness.is_mps_client, pids)):
            raise Absent("the jobs did not run under MPS: see `trainmaster node list`")
        (gate / "go").touch()
        if not manager.wait(jobs, seconds + 30):
            raise RuntimeError(f"{count} jobs by {mode} did not end in time")
        found = [manager.result(name) for name in names]
    finally:
        manager.cancel(jobs)
    rates = [each["steps"] / each["wall_s"] for each in found if each]
    return {
        "processes": count,
        "ms_per_step": round(sum(1000 / rate for rate in rates) / len(rates), 3),
        "max_ms": max(each["max_ms"] for each in found if each),
        "variance_ms2": round(sum(each["variance_ms2"] for each in found if each) / len(rates), 4),
        "total_steps_per_s": round(sum(rates), 1),
    }


def run(results: Results, mode: str, counts: list[int], seconds: float, hidden: int) -> None:
    with Manager("--policy", "fifo") as manager:
        rows: list[dict[str, object]] = []
        for count in counts:
            rows.append(together(manager, mode, count, seconds, hidden))
            results.add(mode, rows=rows, hidden=hidden, seconds=seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", default="1,2,4,8")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument(
        "--hidden", type=int, default=1024, help="small: one job leaves the GPU idle"
    )
    parser.add_argument("--only", default="time,mps")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    results = Results("packing_live", asked.out)
    counts = [int(each) for each in asked.copies.split(",")]
    for mode in asked.only.split(","):
        results.step(
            mode,
            290,
            lambda mode=mode: run(results, mode, counts, asked.seconds, asked.hidden),  # type: ignore[misc]
        )
    steps = results.found["steps"]
    alone = steps.get("time", steps.get("mps", {})).get("rows", [{}])[0].get("total_steps_per_s")
    for mode in asked.only.split(","):
        for row in steps.get(mode, {}).get("rows", []) if alone else []:
            row["gain"] = round(row["total_steps_per_s"] / alone, 3)
    results.add(
        "gain", at_most={mode: max_gain(steps.get(mode, {})) for mode in asked.only.split(",")}
    )


def max_gain(step: dict[str, list[dict[str, float]]]) -> float | None:
    return max((row.get("gain", 0.0) for row in step.get("rows", [])), default=None)


if __name__ == "__main__":
    main()
