"""Traces a model's training steps in a process of its own, with the Python of its environment.

What the module prints, allocates or breaks when it is imported stays in that process.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from trainmaster.estimators.memory.training_memory import (
    Doubt,
    Library,
    Part,
    Storage,
    TracedSteps,
)
from trainmaster.profiling.tracer import CannotTrace, traced


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
    try:
        answer = traced({"what": "memory", **asdict(setup)}, python, sees_gpus=False)
    except CannotTrace as why:
        raise CannotEstimate(str(why)) from None
    storages = {
        int(name): Storage(size, Part(part)) for name, (size, part) in answer["storages"].items()
    }
    workspaces = {int(name): Library(each) for name, each in answer["workspaces"].items()}
    doubts = frozenset(map(Doubt, answer["doubts"]))
    return TracedSteps(storages, answer["events"], workspaces, doubts, answer["sure"])
