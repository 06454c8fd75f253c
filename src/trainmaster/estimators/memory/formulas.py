"""Bytes of parameters, gradients and optimizer state, as formulas."""

from __future__ import annotations

MIXED_PRECISION_ADAM = 16
"""Bytes per parameter: 2 and 2 for the half-precision pair, 12 for Adam with its 32-bit copy."""
ZERO_SPLIT = {0: (16, 0), 1: (4, 12), 2: (2, 14), 3: (0, 16)}
"""By ZeRO stage: bytes per parameter that each process holds whole, and those that are divided."""


def zero_bytes(parameters: int, stage: int, processes: int) -> int:
    """Bytes of model state on each of the processes, in mixed precision with Adam."""
    whole, divided = ZERO_SPLIT[stage]
    return parameters * whole + -(-parameters * divided // processes)
