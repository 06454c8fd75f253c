"""Scratch memory of CUDA's sums and means (ATen/native/cuda/Reduce.cuh): partial results of thread blocks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

PROCESSORS = 132
"""Of an H100 or H200; smaller GPUs split sums into fewer parts."""
THREADS_OF_PROCESSOR = 2048
MOST_THREADS = 512
WARP = 32
LEAST_VALUES, MOST_VALUES = 16, 256
ACCUMULATOR = 4


def scratch_bytes(shape: Sequence[int], strides: Sequence[int], reduced: Collection[int]) -> int:
    """What a reduction of these dimensions takes while it runs; 0 where one block sums all of an output."""
    dims = [each for each in range(len(shape)) if shape[each] > 1]
    if not any(each in reduced for each in dims):
        return 0
    outputs = inputs = 1
    for each in dims:
        if each in reduced:
            inputs *= shape[each]
        else:
            outputs *= shape[each]
    fastest = min(dims, key=lambda each: strides[each])
    across, vector = fastest in reduced, 1
    if across:
        width_most, height_most = inputs, outputs
        if len(_coalesced(shape, strides, dims)) == 1 and inputs > 128 and strides[fastest] == 1:
            width_most //= 4
    else:
        if strides[fastest] == 1:
            vector = next(each for each in (4, 2, 1) if shape[fastest] % each == 0)
        width_most, height_most = outputs // vector, inputs
    threads = MOST_THREADS // vector
    wide, high = _power(min(width_most, threads)), _power(min(height_most, threads))
    height = min(high, threads // min(wide, WARP))
    width = min(wide, threads // height)
    step_in, step_out = (width, 1) if across else (1, width)
    values = -(-inputs // step_in)
    if values < height * LEAST_VALUES and values < MOST_VALUES:
        return 0
    values = -(-inputs // (step_in * height))
    grid = -(-(outputs // vector) // step_out)
    wanted = PROCESSORS * (THREADS_OF_PROCESSOR // (width * height))
    if values < MOST_VALUES or grid > wanted:
        return 0
    parts = max(
        min(-(-wanted // grid), -(-values // LEAST_VALUES)),
        -(-values // MOST_VALUES),
    )
    if parts < 2:
        return 0
    return ACCUMULATOR * outputs * parts * (1 if across else width * vector)


def _power(number: int) -> int:
    """The largest power of two that is not larger."""
    return 1 << (max(1, number).bit_length() - 1)


def _coalesced(shape: Sequence[int], strides: Sequence[int], dims: list[int]) -> list[int]:
    """Dimensions that are left when neighbours without a gap are joined."""
    ordered = sorted(dims, key=lambda each: strides[each])
    left = ordered[:1]
    for before, after in pairwise(ordered):
        if strides[after] != strides[before] * shape[before]:
            left.append(after)
    return left
