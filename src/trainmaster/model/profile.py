"""What is known of a job apart from what its user states: measured on one GPU, predicted on several."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import pairwise

Speedups = tuple[tuple[int, int], ...]
"""(GPUs, speed in parts per million of the speed on one), growing in GPUs, beginning with 1."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A job's speed on one GPU of nominal speed, and, where known, on several at best placement."""

    step_us: int = 0
    """Microseconds that one step with its whole batch takes on one GPU; 0 = unknown."""
    batch: int = 0
    """Samples per step over all GPUs; 0 = unknown."""
    sync_bytes: int = 0
    """Bytes of gradients that the GPUs exchange in each step; 0 = unknown."""
    speedups: Speedups = ()
    """(GPUs, speed in parts per million of the speed on one), growing in GPUs; may have holes."""
    fixed_us: int | None = None
    """The part of `step_us` that a smaller batch does not shorten; None = unknown."""
    gpu_util_ppm: int | None = None
    """Part of a GPU's cycles that it keeps busy when alone, in parts per million; None = unknown."""
    gpu_memory: int = 0
    """Bytes on each GPU: the measured peak; 0 = unknown."""

    @property
    def is_predictive(self) -> bool:
        """Whether it says enough to predict the speed of any allocation."""
        return self.step_us > 0 and self.sync_bytes > 0

    def updated(self, newer: Profile) -> Profile:
        """With all that a newer profile knows; what it does not know stays."""
        told = {each.name: getattr(newer, each.name) for each in fields(newer)}
        known = {each.name for each in fields(newer) if told[each.name] != each.default}
        return replace(self, **{name: told[name] for name in known})

    def with_batch(self, batch: int) -> Profile:
        """The same model with another number of samples per step: only the rest grows with them."""
        fixed = min(self.fixed_us or 0, self.step_us)
        moving = (self.step_us - fixed) * batch // self.batch
        return replace(self, batch=batch, step_us=max(1, fixed + moving))


def speedup_at(table: Speedups, count: int) -> int:
    """The speed on `count` GPUs: linear between known counts, flat beyond the last."""
    for (low, slow), (high, fast) in pairwise(table):
        if low <= count <= high:
            return slow + (fast - slow) * (count - low) // (high - low)
    return table[-1][1]
