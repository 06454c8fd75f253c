"""Traces a model's training steps in a process of its own, with the Python of its environment.

What the module prints, allocates or breaks when it is imported stays in that process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainmaster.estimators.memory.training_memory import (
    Doubt,
    Library,
    Part,
    Storage,
    TracedSteps,
)

BOOT = (
    "import runpy, sys; sys.path.insert(0, sys.argv[1]);"
    " runpy.run_module('memory_tracer', run_name='__main__')"
)
"""Runs the package beside this file where Trainmaster is not installed."""


class CannotEstimate(Exception):
    """One sentence that says why, and what to do."""


@dataclass(frozen=True, slots=True)
class TrainingSetup:
    """What is trained, and how."""

    factory: str
    """`package.module:function` or `file.py:function`; it returns the model."""
    batch: int
    optimizer: str = "adamw"
    dtype: str = "fp32"
    input: str = ""
    """Shape of one example, such as 3x224x224; empty: from `make_batch` or the first layer."""
    accumulate: int = 1
    """Batches whose gradients are summed before the optimizer steps."""
    is_compiled: bool = False
    """By `torch.compile`."""
    zero_grad: str = "unknown"
    """When gradients are cleared: `early`, before the forward pass, or `late`, before the backward pass."""
    import_s: int = 60
    """How long the module may take to be imported."""


def trace_training(setup: TrainingSetup, python: str) -> TracedSteps:
    """What a few training steps take and give back."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "trace.json")
        folder_of_tracer = str(Path(__file__).parent)
        command = [python, "-c", BOOT, folder_of_tracer, json.dumps(asdict(setup)), str(result)]
        hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
        try:
            ended = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env=hidden,
                check=False,
            )
        except OSError as error:
            raise CannotEstimate(
                f"cannot start {python} ({error.strerror}): name a Python with --python"
            ) from None
        if not result.exists() or not result.stat().st_size:
            raise CannotEstimate(_death(ended, python, has_begun=result.exists()))
        answer: dict[str, Any] = json.loads(result.read_text("utf-8"))
    if "trouble" in answer:
        raise CannotEstimate(answer["trouble"])
    storages = {
        int(name): Storage(size, Part(part)) for name, (size, part) in answer["storages"].items()
    }
    workspaces = {int(name): Library(each) for name, each in answer["workspaces"].items()}
    doubts = frozenset(map(Doubt, answer["doubts"]))
    return TracedSteps(storages, answer["events"], workspaces, doubts, answer["sure"])


def _death(ended: subprocess.CompletedProcess[str], python: str, *, has_begun: bool) -> str:
    if "No module named 'torch'" in ended.stderr:
        return f"{python} has no torch: name the Python of the training environment with --python"
    lines = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
    if not has_begun:
        return f"{python} does not run the trace ({lines[-1][:200]}): name a Python with --python"
    if ended.returncode == -signal.SIGKILL:
        return (
            "the process that traces the model was killed, as when it takes too much memory: keep what is"
            " large out of the module's top level and of the function"
        )
    return f"the process that traces the model died ({lines[-1][:200]}): try the module on its own"
