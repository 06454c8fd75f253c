"""`trainmaster estimate` for memory: one estimate, and the largest batch that fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from trainmaster.cli.support.console import say, show_table, write_json
from trainmaster.client.manager_api import Json
from trainmaster.errors import BadInput
from trainmaster.estimators.memory.training_memory import (
    Context,
    GpuKind,
    Sharding,
    TrainingMemory,
    training_memory,
)
from trainmaster.profiling.memory_trace import CannotEstimate, TrainingSetup, trace_training
from trainmaster.text.formatting import size

MOST_BATCH = 1 << 20
PRECISION_PART = 100
"""A larger batch is not looked for where it would be less than a hundredth larger."""


@dataclass(frozen=True, slots=True)
class DeviceSetup:
    """Where it trains."""

    kind: GpuKind
    context: Context | None
    """None: what was measured for the kind."""
    sharding: Sharding


def estimated(setup: TrainingSetup, device: DeviceSetup, python: str) -> TrainingMemory:
    try:
        steps = trace_training(setup, python)
        return training_memory(steps, device.kind, device.context, device.sharding)
    except CannotEstimate as trouble:
        raise BadInput(f"cannot estimate {setup.factory}: {trouble}.") from None


def largest_batch(fits: Callable[[int], bool], first: int) -> int | None:
    """By doubling and bisection, to a hundredth; None where not even one example fits."""
    good, bad = 0, first
    while bad <= MOST_BATCH and fits(bad):
        good, bad = bad, bad * 2
    while bad - good > max(1, good // PRECISION_PART):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good or None


def show_memory(
    setup: TrainingSetup, device: DeviceSetup, made: TrainingMemory, as_json: bool
) -> None:
    interval = made.estimate
    if as_json:
        write_json(_row(setup, device, made))
        return
    rows: list[tuple[str, str]] = [(part.value, size(count)) for part, count in made.parts.items()]
    show_table(("part", "bytes"), [*rows, ("total", size(interval.expected))])
    precision = "32-bit" if setup.dtype == "fp32" else f"autocast to {setup.dtype}"
    say(
        f"Batch {setup.batch}, {setup.optimizer}, {precision}, {device.kind.value} GPU: between"
        f" {size(interval.low)} and {size(interval.high)}; reserve {size(interval.high)}."
    )


def _row(setup: TrainingSetup, device: DeviceSetup, made: TrainingMemory) -> Json:
    interval = made.estimate
    return {
        "factory": setup.factory,
        "batch": setup.batch,
        "optimizer": setup.optimizer,
        "dtype": setup.dtype,
        "accumulate": setup.accumulate,
        "compiled": setup.is_compiled,
        "zero_grad": setup.zero_grad,
        "gpu_kind": device.kind.value,
        "zero": device.sharding.stage,
        "ranks": device.sharding.ranks,
        "parts": {part.value: count for part, count in made.parts.items()},
        "low": interval.low,
        "expected": interval.expected,
        "high": interval.high,
        "source": interval.source.value,
    }


def with_batch(setup: TrainingSetup, batch: int) -> TrainingSetup:
    return replace(setup, batch=batch)
