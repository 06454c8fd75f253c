"""Parts at the moment of the peak, and the interval."""

from __future__ import annotations

import pytest

from trainmaster.estimators.memory.training_memory import (
    CONTEXT,
    MARGINS_PERCENT,
    WORKSPACE,
    Context,
    Doubt,
    GpuKind,
    Library,
    Part,
    Sharding,
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
    assert (
        made.estimate.expected
        == sum(made.parts.values())
        == 140 * MIB + CONTEXT[GpuKind.HOPPER].expected
    )


def test_a_freed_segment_serves_the_next_request() -> None:
    apart = training_memory(TracedSteps(STORAGES, [1, 2, -2, 3]), GpuKind.HOPPER)
    together = training_memory(TracedSteps(STORAGES, [1, 2, 3]), GpuKind.HOPPER)
    assert together.estimate.expected - apart.estimate.expected == 40 * MIB


def test_a_matrix_librarys_workspace_depends_on_the_gpu() -> None:
    steps = TracedSteps({1: Storage(0, Part.TEMPORARIES)}, [1], {1: Library.CUBLAS})
    for kind in GpuKind:
        made = training_memory(steps, kind)
        assert made.allocated == WORKSPACE[Library.CUBLAS, kind]
    assert WORKSPACE[Library.CUBLAS, GpuKind.HOPPER] == 32 * MIB
    assert WORKSPACE[Library.CUBLAS, GpuKind.EARLIER] == 8_519_680


def test_a_context_that_was_measured_replaces_the_assumed_one() -> None:
    steps = TracedSteps(STORAGES, [1])
    made = training_memory(steps, GpuKind.EARLIER, Context.known(600 * MIB)).estimate
    assert made.expected == 640 * MIB
    assert (made.low, made.high) == (638 * MIB, 642 * MIB)  # 5 % of the segment to both sides


@pytest.mark.parametrize("doubt", Doubt)
def test_the_interval_is_wider_where_less_is_known(doubt: Doubt) -> None:
    def width(*doubts: Doubt) -> int:
        steps = TracedSteps(STORAGES, [1], doubts=frozenset(doubts))
        made = training_memory(steps, GpuKind.HOPPER).estimate
        return made.high - made.low

    assert width() < width(doubt) <= width(*Doubt)
    assert width(*Doubt) == width(max(Doubt, key=lambda each: MARGINS_PERCENT[each]))


def test_what_may_happen_too_counts_for_the_top_alone() -> None:
    steps = TracedSteps(STORAGES, [1, 2, -2, 2, 3], sure=3)
    short, whole = steps, TracedSteps(STORAGES, [1, 2, 3])
    made, more = (training_memory(each, GpuKind.HOPPER) for each in (short, whole))
    assert made.estimate.expected == more.estimate.expected - 40 * MIB
    assert made.estimate.high == more.estimate.high
    assert made.allocated == 140 * MIB


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.88)])
def test_zero_divides_the_state_of_mixed_precision_over_its_ranks(
    stage: int, gigabytes: float
) -> None:
    """ZeRO (SC'20), figure 1: 7.5 billion parameters, 64 GPUs, 16 bytes per parameter."""
    each = 7_500_000_000
    sizes = {Part.PARAMETERS: 2 * each, Part.GRADIENTS: 2 * each, Part.OPTIMIZER: 12 * each}
    sharding = Sharding(stage, 64)
    held = sum(sharding.bytes_of(part, size) for part, size in sizes.items())
    assert held / 1e9 == pytest.approx(gigabytes, abs=0.05)


def test_sharding_leaves_activations_whole() -> None:
    made = training_memory(TracedSteps(STORAGES, [1, 2, 3]), GpuKind.HOPPER, None, Sharding(3, 4))
    assert made.parts[Part.PARAMETERS] == made.parts[Part.GRADIENTS] == 10 * MIB
    assert made.parts[Part.ACTIVATIONS] == 100 * MIB
