"""Parts at the moment of the peak, and the interval."""

from __future__ import annotations

from trainmaster.estimators.memory.training_memory import (
    CONTEXT,
    GpuKind,
    Part,
    Storage,
    TracedSteps,
    training_memory,
)
from trainmaster.model.units import MIB

STORAGES = {
    1: Storage(40 * MIB, Part.PARAMETERS),
    2: Storage(100 * MIB, Part.ACTIVATIONS),
    3: Storage(40 * MIB, Part.GRADIENTS),
}


def test_the_parts_are_those_of_the_peak_and_add_up() -> None:
    made = training_memory(TracedSteps(STORAGES, [1, 2, -2, 3]), GpuKind.HOPPER)
    assert made.parts[Part.ACTIVATIONS] == 100 * MIB
    assert made.parts[Part.GRADIENTS] == 0
    assert made.estimate.expected == sum(made.parts.values()) == (32 + 140) * MIB + CONTEXT


def test_a_freed_segment_serves_the_next_request() -> None:
    apart = training_memory(TracedSteps(STORAGES, [1, 2, -2, 3]), GpuKind.HOPPER)
    together = training_memory(TracedSteps(STORAGES, [1, 2, 3]), GpuKind.HOPPER)
    assert together.estimate.expected - apart.estimate.expected == 40 * MIB


def test_earlier_gpus_take_a_smaller_workspace() -> None:
    steps = TracedSteps(STORAGES, [1])
    made = [training_memory(steps, kind).estimate.expected for kind in GpuKind]
    assert made[0] > made[1]


def test_the_interval_is_wider_where_operators_differ_from_those_of_a_gpu() -> None:
    sure = training_memory(TracedSteps(STORAGES, [1]), GpuKind.HOPPER).estimate
    unsure = training_memory(TracedSteps(STORAGES, [1], True), GpuKind.HOPPER).estimate
    assert unsure.low < sure.low < sure.expected == unsure.expected < sure.high < unsure.high
