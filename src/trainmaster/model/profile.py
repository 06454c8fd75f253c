"""What is known of a job's speed before it has run anywhere: one GPU measured, several foretold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isfinite

from trainmaster.model.units import NOMINAL

Speedups = tuple[tuple[int, int], ...]
"""(GPUs, speed in parts per million of the speed on one), growing in GPUs, beginning with 1."""


class ProfileError(ValueError):
    """A table of speeds that cannot be used: one sentence."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A job on one GPU of nominal speed, and, where somebody knows, on several at best placement."""

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

    @property
    def is_predictive(self) -> bool:
        """Whether it says enough to foretell the speed of any allocation."""
        return self.step_us > 0 and self.sync_bytes > 0

    def with_batch(self, batch: int) -> Profile:
        """The same model with another number of samples per step: only the rest grows with them."""
        fixed = min(self.fixed_us or 0, self.step_us)
        moving = (self.step_us - fixed) * batch // self.batch
        return replace(self, batch=batch, step_us=max(1, fixed + moving))


def checked_speedups(pairs: Iterable[tuple[int, float]]) -> Speedups:
    """A table of (GPUs, speed relative to one GPU) as a profile keeps it, or a ProfileError."""
    table: list[tuple[int, int]] = []
    for count, speed in pairs:
        if not (isfinite(speed) and 0 < speed < NOMINAL):
            raise ProfileError(f"the speed on {count} GPUs must be more than 0, not {speed:g}.")
        if table and count <= table[-1][0]:
            raise ProfileError(
                f"a speed-up table must grow in GPUs, but {count} comes after {table[-1][0]}."
            )
        table.append((count, max(1, round(speed * NOMINAL))))
    if table and table[0] != (1, NOMINAL):
        raise ProfileError("a speed-up table must begin with 1 GPU at speed 1.")
    return tuple(table)


def speedups_from(text: str) -> Speedups:
    """`1:1 2:1.8 4:3.1` (or with `;` between) as a table; a gap between counts is allowed."""
    pairs = []
    for entry in text.replace(";", " ").split():
        count, colon, speed = entry.partition(":")
        try:
            pairs.append((int(count), float(speed)))
        except ValueError:
            colon = ""
        if not colon:
            raise ProfileError(f"{entry!r} is not of the form GPUs:speed, such as 4:3.1.")
    return checked_speedups(pairs)


def speedup_at(table: Speedups, count: int) -> int:
    """The speed on `count` GPUs: linear between known counts, flat beyond the last."""
    for (low, slow), (high, fast) in pairwise(table):
        if low <= count <= high:
            return slow + (fast - slow) * (count - low) // (high - low)
    return table[-1][1]
