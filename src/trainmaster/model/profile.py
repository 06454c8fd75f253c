"""What is known of a job apart from what its user states: measured on one GPU, predicted on several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

from trainmaster.model.memory_estimate import MemoryEstimate, MemorySource

USUAL_FIXED_PART = 20
"""A smaller batch does not shorten one part in this many of a step, where nothing is known of it."""
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
    cpu_us: int = 0
    """Microseconds of CPU time that its process takes for a step; 0 = unknown."""
    activation_bytes: int = 0
    """GPU memory that a step takes and gives back, on each GPU; 0 = unknown."""
    per_gpu: bool = False
    """Whether `step_us`, `fixed_us` and `batch` are those of each GPU, as measured on one, and not of all
    together: with more GPUs the whole batch grows."""
    memory_estimate: MemoryEstimate | None = None
    """What it is expected to need on each GPU; None: not more is known than the measured peak."""
    host_memory: int = 0
    """Bytes of host memory on each of its devices: what its processes had at their peak; 0 = unknown."""

    @property
    def is_predictive(self) -> bool:
        """Whether it says enough to predict the speed of any allocation."""
        return self.step_us > 0 and self.sync_bytes > 0

    def updated(self, newer: Profile) -> Profile:
        """With all that a newer profile knows; what it does not know stays."""
        told = {each.name: getattr(newer, each.name) for each in fields(newer)}
        known = {each.name for each in fields(newer) if told[each.name] != each.default}
        return replace(self, **{name: told[name] for name in known})

    def on_each_of(self, gpus: int) -> Profile:
        """That of the whole batch, of one whose batch is that of each of so many GPUs.

        The part of a step that does not depend on samples stays: unless known, it is a usual one.
        """
        if not self.per_gpu:
            return self
        fixed = self.fixed_or_usual_us
        return replace(
            self,
            step_us=fixed + (self.step_us - fixed) * gpus,
            batch=self.batch * gpus,
            fixed_us=fixed,
            per_gpu=False,
        )

    @property
    def fixed_or_usual_us(self) -> int:
        """The part of a step on one GPU that a smaller batch does not shorten."""
        known = self.step_us // USUAL_FIXED_PART if self.fixed_us is None else self.fixed_us
        return min(known, self.step_us)

    def with_batch(self, batch: int) -> Profile:
        """The same model with another number of samples per step: only the rest grows with them."""
        fixed = min(self.fixed_us or 0, self.step_us)
        moving = (self.step_us - fixed) * batch // self.batch
        return replace(self, batch=batch, step_us=max(1, fixed + moving))


STATED = ("step_us", "batch", "sync_bytes", "cpu_us", "activation_bytes")
"""What a job file may say of its program on one device, ..."""
STATED_MEMORY = {"memory_low": "low", "memory_expected": "expected", "memory_high": "high"}
"""... and of what was estimated from its model without one."""


def profile_of(stated: Mapping[str, int]) -> Profile:
    """What a job file states of its program. ValueError for bounds that are in no order."""
    measured: dict[str, Any] = {name: stated[name] for name in STATED if name in stated}
    bounds = {bound: stated[name] for name, bound in STATED_MEMORY.items() if name in stated}
    if not bounds:
        return Profile(**measured, per_gpu=True)
    if len(bounds) < len(STATED_MEMORY):
        raise ValueError(f"{', '.join(STATED_MEMORY)} go together")
    estimate = MemoryEstimate(
        bounds["low"], bounds["expected"], bounds["high"], MemorySource.STATIC
    )
    return Profile(**measured, memory_estimate=estimate, per_gpu=True)


def stated_of(profile: Profile) -> dict[str, int]:
    """The same as a job file has it."""
    found = {name: getattr(profile, name) for name in STATED if getattr(profile, name)}
    estimate = profile.memory_estimate
    if estimate is None or estimate.source is not MemorySource.STATIC:
        return found
    return found | {name: getattr(estimate, bound) for name, bound in STATED_MEMORY.items()}


def speedup_at(table: Speedups, count: int) -> int:
    """The speed on `count` GPUs: linear between known counts, flat beyond the last."""
    for (low, slow), (high, fast) in pairwise(table):
        if low <= count <= high:
            return slow + (fast - slow) * (count - low) // (high - low)
    return table[-1][1]
