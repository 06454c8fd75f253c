"""Memory predicted for training programs from their code alone, against peaks measured on a GPU.

    python -m benchmarks.memory_predictions --predict   # traces each program here, without a GPU
    python -m benchmarks.memory_predictions             # the page and its plot; needs matplotlib

Programs and peaks are those of benchmarks/gpu/memory. `--only calibration` leaves the programs out that
were set aside to judge the formula.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.gpu.memory.combinations import CALIBRATION, USER_STYLE, Combination
from trainmaster.estimators.memory.training_memory import GpuKind, training_memory
from trainmaster.profiling.memory_trace import CannotEstimate, TrainingSetup, trace_training

Found = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
MEASURED = ROOT / "benchmarks/results/gpu/memory.json"
PREDICTED = ROOT / "benchmarks/results/memory_predictions.json"
LATE = frozenset(f"user_{each}" for each in "vit compiled lora seq2seq vae speech unet".split())
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--predict", action="store_true", help="trace the programs")
    parser.add_argument(
        "--only", default="", help="calibration, or beginnings of names, with commas"
    )
    asked = parser.parse_args()
    if asked.predict:
        chosen = CALIBRATION if asked.only == "calibration" else (*CALIBRATION, *USER_STYLE)
        starts = tuple(asked.only.split(",")) if asked.only != "calibration" else ("",)
        former = json.loads(PREDICTED.read_text()) if PREDICTED.exists() else {"programs": {}}
        made = predict(tuple(each for each in chosen if each.name.startswith(starts)))
        PREDICTED.write_text(
            json.dumps(former | {"programs": former["programs"] | made}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
