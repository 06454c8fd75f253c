"""Memory predicted for training programs from their code alone, against peaks measured on a GPU.

    python -m benchmarks.memory_predictions --predict   # traces each program here, without a GPU
    python -m benchmarks.memory_predictions --speed     # a model of a billion parameters
    python -m benchmarks.memory_predictions             # the page and its plot; needs matplotlib

Programs and peaks are those of benchmarks/gpu/memory. `--only calibration` leaves the programs out that
were set aside to judge the formula.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.gpu.memory.combinations import CALIBRATION, USER_STYLE, Combination
from benchmarks.pages import page
from trainmaster.estimators.memory.training_memory import GpuKind, Part, training_memory
from trainmaster.profiling.memory_trace import CannotEstimate, TrainingSetup, trace_training

Found = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
GIB = 1 << 30
TITLE = "Memory, predicted over measured"
PAGE = ROOT / "docs/measurements/memory.md"
MEASURED = ROOT / "benchmarks/results/gpu/memory.json"
PREDICTED = ROOT / "benchmarks/results/memory_predictions.json"
LATE = frozenset(
    f"user_{each}" for each in ["vit", "compiled", "lora", "seq2seq", "vae", "speech", "unet"]
)
"""Programs that call zero_grad() between the forward and the backward pass."""
ACCUMULATED = {"user_accumulate": 4}
"""Batches per step, where it is more than one."""


def setup_of(each: Combination) -> TrainingSetup:
    """What a user says on the command line, as the program's text has it."""
    return TrainingSetup(
        factory=f"benchmarks.gpu.memory.{each.program}:{each.factory}",
        batch=each.batch,
        optimizer=each.optimizer,
        dtype=each.dtype,
        accumulate=ACCUMULATED.get(each.name, 1),
        is_compiled=each.is_compiled,
        zero_grad="late" if each.name in LATE else "early",
    )


def predict(combinations: tuple[Combination, ...]) -> Found:
    found: Found = {}
    for each in combinations:
        began = time.monotonic()
        try:
            made = training_memory(trace_training(setup_of(each), sys.executable), GpuKind.HOPPER)
        except CannotEstimate as trouble:
            found[each.name] = {"trouble": str(trouble)}
            print(f"{each.name}: {trouble}", flush=True)
            continue
        estimate = made.estimate
        found[each.name] = {
            "low": estimate.low,
            "expected": estimate.expected,
            "high": estimate.high,
            "allocated": made.allocated,
            "seconds": round(time.monotonic() - began, 1),
        }
        print(f"{each.name}: {found[each.name]}", flush=True)
    return found


def measure_speed() -> Found:
    """Seconds and peak memory of one estimate for a model of a billion parameters."""
    setup = TrainingSetup("benchmarks.billion:make_model", 8, dtype="bf16")
    began = time.monotonic()
    made = training_memory(trace_training(setup, sys.executable), GpuKind.HOPPER)
    return {
        "seconds": round(time.monotonic() - began, 1),
        "peak_rss": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
        "parameter_bytes": made.parts[Part.PARAMETERS],
        "expected": made.estimate.expected,
        "load": round(os.getloadavg()[0], 1),
        "cpus": os.cpu_count(),
    }


def rows(chosen: tuple[Combination, ...], predicted: Found, measured: Found) -> list[Found]:
    return [
        row_of(each, predicted[each.name], measured[each.name])
        for each in chosen
        if each.name in predicted
    ]


def row_of(each: Combination, made: Found, peaks: Found) -> Found:
    features = [each.kind, each.dtype, each.optimizer, f"batch {each.batch}"]
    features += ["checkpointed"] * each.is_checkpointed + ["compiled"] * each.is_compiled
    row = {"name": each.name, "what": ", ".join(features), "measured": peaks["process_peak"]}
    if "trouble" in made:
        return row | {"trouble": made["trouble"]}
    return row | {
        "low": made["low"],
        "expected": made["expected"],
        "high": made["high"],
        "error": 100 * (made["expected"] / peaks["process_peak"] - 1),
        "allocated_error": 100 * (made["allocated"] / peaks["max_allocated"] - 1),
        "is_over": peaks["process_peak"] > made["high"],
        "is_under": peaks["process_peak"] < made["low"],
    }


def summary(found: list[Found]) -> Found:
    errors = [abs(row["error"]) for row in found if "error" in row]
    within = [abs(row["allocated_error"]) for row in found if "error" in row]
    return {
        "count": len(found),
        "failed": len(found) - len(errors),
        "median": statistics.median(errors),
        "worst": max(errors),
        "allocated_median": statistics.median(within),
        "allocated_worst": max(within),
        "over": sum(row["is_over"] for row in found if "error" in row),
        "under": sum(row["is_under"] for row in found if "error" in row),
    }


def plot(groups: dict[str, list[Found]]) -> bytes:
    from trainmaster.report import palette
    from trainmaster.report.charts import HALF_IN, Chart, styled

    @styled
    def chart() -> Chart:
        made = Chart(TITLE, HALF_IN, 3.6)
        (axes,) = made.panels()
        for slot, (name, found) in enumerate(groups.items()):
            known = [row for row in found if "error" in row]
            x = [row["measured"] / GIB for row in known]
            y = [row["expected"] / row["measured"] for row in known]
            ends = [
                [(row["expected"] - row["low"]) / row["measured"] for row in known],
                [(row["high"] - row["expected"]) / row["measured"] for row in known],
            ]
            colour = palette.policy_shade(slot).light
            axes.errorbar(
                x, y, ends, fmt="o", color=colour, markersize=3, linewidth=0.8, label=name
            )
        axes.axhline(1, color="grey", linewidth=0.8)
        axes.set(xlabel="measured, GiB", ylabel="times", xlim=(0, None))
        axes.legend()
        return made

    return chart().written(TITLE, "svg")


def write_page() -> None:
    predicted, measured = (json.loads(file.read_text()) for file in (PREDICTED, MEASURED))
    groups = {
        "calibration": rows(CALIBRATION, predicted["programs"], measured["programs"]),
        "held out": rows(USER_STYLE, predicted["programs"], measured["programs"]),
    }
    frozen = rows(USER_STYLE, predicted["frozen"], measured["programs"])
    PAGE.write_text(
        page(
            "memory_predictions_page.md",
            groups=groups,
            summaries={name: summary(found) for name, found in groups.items()},
            frozen={row["name"]: row for row in frozen},
            after={row["name"]: row for row in groups["held out"]},
            frozen_summary=summary(frozen),
            machine=measured["machine"],
            measured_date=measured["date"],
            predicted=predicted,
            gib=GIB,
        )
    )
    PAGE.with_name("memory.svg").write_bytes(plot(groups))
    print(f"written to {PAGE}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--predict", action="store_true", help="trace the programs")
    parser.add_argument("--speed", action="store_true", help="time an estimate of a large model")
    parser.add_argument(
        "--only", default="", help="calibration, or beginnings of names, with commas"
    )
    asked = parser.parse_args()
    found: Found = json.loads(PREDICTED.read_text()) if PREDICTED.exists() else {"programs": {}}
    if asked.predict:
        chosen = CALIBRATION if asked.only == "calibration" else (*CALIBRATION, *USER_STYLE)
        starts = tuple(asked.only.split(",")) if asked.only != "calibration" else ("",)
        found["programs"] |= predict(tuple(each for each in chosen if each.name.startswith(starts)))
        found["date"] = datetime.now(UTC).date().isoformat()
    if asked.speed:
        found["speed"] = measure_speed()
    if asked.predict or asked.speed:
        PREDICTED.write_text(json.dumps(found, indent=1) + "\n")
    else:
        write_page()


if __name__ == "__main__":
    main()
