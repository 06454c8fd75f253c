"""Workspace of cuDNN's convolutions: copies with channels last, which its kernels for tensor cores want."""

from __future__ import annotations

from math import prod
from typing import Any

import torch

ALIGNED_BYTES = 16
"""A pixel's channels are filled up to so much."""

PARTIAL_SUMS = 8 << 20
"""More for the gradient of the weight: 3 to 8 MiB were seen."""


def workspace_bytes(given: torch.Tensor, weight: torch.Tensor, output: Any, groups: int) -> int:
    """For one of a convolution's three directions."""
    if _is_channels_last(given):
        return 0
    return _copy(given) + _copy(output) + _bytes(weight)


def _is_channels_last(tensor: torch.Tensor) -> bool:
    return tensor.dim() > 2 and tensor.stride(1) == 1 and tensor.shape[1] > 1


def _copy(tensor: torch.Tensor) -> int:
    shape, width = tensor.shape, tensor.element_size()
    channels = -(-shape[1] * width // ALIGNED_BYTES) * ALIGNED_BYTES
    return shape[0] * channels * prod(shape[2:])


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
