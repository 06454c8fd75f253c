"""Bins of service, in which jobs that ended and jobs that still run are counted.

They grow by the square root of two. Service is counted in thousandths of a GPU x ms, as everywhere;
widths and hazards are in GPU-seconds.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from trainmaster.model.units import SECOND, WHOLE

GPU_SECOND = WHOLE * SECOND
"""Attained service of one GPU in one second."""
FIRST_BIN_GPU_S = 60
GROWTH = 2**0.5
LAST_EDGE_GPU_S = 4e8
NO_END = 1 << 62
"""1/G where nothing known ends any more: behind all others."""


def _edges() -> tuple[int, ...]:
    found, edge = [0], float(FIRST_BIN_GPU_S)
    while edge <= LAST_EDGE_GPU_S:
        found.append(round(edge) * GPU_SECOND)
        edge *= GROWTH
    return tuple(found)


EDGES = _edges()
"""Where the bins begin; the last one has no end."""
UPPER: tuple[int | None, ...] = (*EDGES[1:], None)
"""Where they end."""
BINS = len(EDGES)
WIDTHS = [(high - low) / GPU_SECOND for low, high in pairwise(EDGES)]
MIDDLES = [low / GPU_SECOND + width / 2 for low, width in zip(EDGES, WIDTHS, strict=False)]
PRIOR = [0.5 / max(middle, FIRST_BIN_GPU_S) for middle in (*MIDDLES, EDGES[-1] / GPU_SECOND)]
"""Hazard per GPU-second before anything is known: half a chance to end before doubling its age."""
EMPTY = (0,) * BINS


def bin_of(service: int) -> int:
    return bisect_right(EDGES, service) - 1


def as_service(gpu_s: float) -> int:
    """For ranks: to the GPU-ms, since finer differences are noise, in thousandths of a GPU x ms."""
    return round(gpu_s * SECOND) * WHOLE if gpu_s * GPU_SECOND < NO_END else NO_END
