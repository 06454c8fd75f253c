"""Workspace of cuDNN's convolutions: copies with channels last, which its kernels for tensor cores want."""

from __future__ import annotations

from enum import Enum
from math import prod

import torch

MIB = 1 << 20
ALIGNED_BYTES = 16
"""A pixel's channels are filled up to so much; an input with fewer is not copied."""


class Direction(Enum):
    """What a convolution computes."""

    OUTPUT = "output"
    INPUT = "gradient of the input"
    WEIGHT = "gradient of the weight"


LEAST = {Direction.OUTPUT: 4 * MIB, Direction.INPUT: 4 * MIB, Direction.WEIGHT: 12 * MIB}
"""Beside the copies, where the weight is smaller: 3 to 16 MiB were seen."""


def workspace_bytes(
    direction: Direction,
    given: torch.Tensor,
    weight: torch.Tensor,
    output: torch.Tensor,
    groups: int,
) -> int:
    """For a convolution of `given` to `output`."""
    channels, width = given.shape[1], given.element_size()
    if channels * width < ALIGNED_BYTES or 1 < groups == channels:
        return 0
    least = max(weight.numel() * width, LEAST[direction])
    if given.stride(1) == 1 or weight.stride(1) == 1 < weight.stride(-1):
        return least
    return _copy(given) + _copy(output) + least


def _copy(tensor: torch.Tensor) -> int:
    shape, width = tensor.shape, tensor.element_size()
    return shape[0] * -(-shape[1] * width // ALIGNED_BYTES) * ALIGNED_BYTES * prod(shape[2:])
