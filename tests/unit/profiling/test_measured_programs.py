"""Programs whose peaks on an H200 are predicted exactly; the others are in docs/measurements/memory.md."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.memory.combinations import CALIBRATION
from benchmarks.memory_predictions import MEASURED, setup_of
from trainmaster.estimators.memory.training_memory import Context, GpuKind, training_memory
from trainmaster.profiling.memory_trace import trace_training

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", ["mlp-wide-fp32-sgd-4096", "transformer-small-fp32-sgd-16"])
def test_what_the_allocator_reserved(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # the programs are modules of the checkout
    measured = json.loads(MEASURED.read_text())["programs"][name]
    (combination,) = (each for each in CALIBRATION if each.name == name)
    steps = trace_training(setup_of(combination), sys.executable)
    made = training_memory(steps, GpuKind.HOPPER, Context.known(0))
    assert made.estimate.expected == measured["max_reserved"]
    assert made.allocated == pytest.approx(measured["max_allocated"], abs=1024)
