"""How many copies of a program one GPU should carry, by what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import linear_regression
from typing import NamedTuple

from trainmaster.engines.packing_experiment import MPS, Measurement

LEAST_GAIN = 1.05
"""Total speed, over that of one copy, from which packing is worth it."""
ENOUGH = 0.95
"""Part of the best total speed with which fewer copies, whose steps are shorter, are preferred."""
ENOUGH_FOR_LAW = 3
NAMES = {"time": "by turns", MPS: "under MPS"}


class Advice(NamedTuple):
    """A packing factor and how the copies share the GPU."""

    copies: int
    sharing: str
    gain: float
    """Total speed over that of one copy alone."""

    @property
    def sentence(self) -> str:
        if self.copies == 1:
            return (
                "Recommended: 1 copy. Packing does not pay: several copies together are not faster."
            )
        return (
            f"Recommended: {self.copies} copies {NAMES[self.sharing]}, which together make"
            f" {self.gain:.2f} times the steps of one alone."
        )

    @property
    def command(self) -> str:
        """What makes the scheduler do so."""
        return (
            f"trainmaster policy set big-brain --set concurrency={self.copies}"
            f" --set sharing={self.sharing}"
        )


class LinearLaw(NamedTuple):
    """k copies take a + b k times as long as one: what `simulate` may know of this machine (docs/perf.md)."""

    a: float
    b: float

    @property
    def sentence(self) -> str:
        return (
            f"By turns, k copies take {self.a:.2f} + {self.b:.2f} k times as long as one;"
            f" for `simulate --perf`: sharing: {{law: linear, a: {self.a:.4f}, b: {self.b:.4f}}}"
        )


def linear_law(rows: Sequence[Measurement]) -> LinearLaw | None:
    """The least squares through the times by turns; None for fewer than three numbers of copies."""
    by_turns = [row for row in rows if row.sharing != MPS]
    if len(by_turns) < ENOUGH_FOR_LAW:
        return None
    first = alone(by_turns)
    times = [row.mean_ms / first.mean_ms for row in by_turns]
    b, a = linear_regression([row.copies for row in by_turns], times)
    return LinearLaw(a, b)


def gain(row: Measurement, rows: Sequence[Measurement]) -> float:
    """Total speed over that of one copy alone, without MPS if that was measured."""
    return row.steps_per_s / alone(rows).steps_per_s


def alone(rows: Sequence[Measurement]) -> Measurement:
    """One copy, or as few as were measured."""
    return min(rows, key=lambda row: (row.copies, row.sharing == MPS))


def advise(rows: Sequence[Measurement]) -> Advice:
    """The fewest copies that come near the best total speed; one where packing does not pay."""
    best = max(row.steps_per_s for row in rows)
    first = alone(rows)
    if best < LEAST_GAIN * first.steps_per_s:
        return Advice(first.copies, first.sharing, 1.0)
    near = [row for row in rows if row.steps_per_s >= ENOUGH * best]
    chosen = min(near, key=lambda row: (row.copies, -row.steps_per_s))
    return Advice(chosen.copies, chosen.sharing, gain(chosen, rows))
