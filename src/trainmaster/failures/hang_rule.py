"""When silence means that a run hangs: learned from the run itself.

A sign of life is a step or a piece of output. All times are of the run's own clock, which stands still while
it is suspended or held back. A run with an idle device hangs after several times its longest silence so far;
one whose device is busy may be computing, so it takes longer, and only a run that is known to make steps is
judged at all. (A rank that waits for another in NCCL keeps its GPU and a core fully busy.)
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.model.units import MINUTE

IDLE_FACTOR = 5
BUSY_FACTOR = 20
"""How many times its longest silence so far a silence must last."""
REGULAR_STEPS = 10
"""A run that has told so many steps is known to make them regularly."""


@dataclass(frozen=True, slots=True)
class HangLimits:
    """No silence that is shorter is a hang, whatever the run has shown."""

    idle_ms: int = 10 * MINUTE
    busy_ms: int = 60 * MINUTE
    start_ms: int = 30 * MINUTE
    """Before its first step, with an idle device: it may load, download or wait for others."""


DEFAULT_LIMITS = HangLimits()


@dataclass(frozen=True, slots=True)
class Rhythm:
    """What a run has shown of itself so far."""

    steps: int = 0
    """How many were told; several that are told at once count as one."""
    longest_silence_ms: int = 0
    """Between two signs of life, after its first step."""
    longest_step_ms: int = 0
    """Between two steps."""
    silent_ms: int = 0
    """Since its last sign of life, or its start."""
    stepless_ms: int = 0
    """Since its last step, or its start."""
    idle_ms: int = 0
    """For how long its device has been idle without a break."""

    @property
    def longest_ms(self) -> int:
        return max(self.longest_silence_ms, self.longest_step_ms)


@dataclass(frozen=True, slots=True)
class Hang:
    """A run that hangs: how long it has been silent, and what was its longest before."""

    silent_ms: int
    stepless_ms: int | None
    """Since its last step; None: it has told none."""
    longest_ms: int
    """Its longest time between two steps; or, without steps, between two pieces of output."""
    is_busy: bool
    """Whether its device is busy all the same."""


def idle_limit_ms(rhythm: Rhythm, limits: HangLimits) -> int:
    """The silence after which a run with an idle device hangs."""
    least = limits.idle_ms if rhythm.steps else limits.start_ms
    return max(least, IDLE_FACTOR * rhythm.longest_ms)


def busy_limit_ms(rhythm: Rhythm, limits: HangLimits) -> int | None:
    """The silence after which a run with a busy device hangs; None: nothing is known of its steps."""
    if rhythm.steps < REGULAR_STEPS:
        return None
    return max(limits.busy_ms, BUSY_FACTOR * rhythm.longest_ms)


def hang_of(rhythm: Rhythm, limits: HangLimits) -> Hang | None:
    """Whether it hangs by now."""
    is_idle = min(rhythm.silent_ms, rhythm.idle_ms) >= idle_limit_ms(rhythm, limits)
    busy_limit = busy_limit_ms(rhythm, limits)
    if not is_idle and (busy_limit is None or rhythm.silent_ms < busy_limit):
        return None
    longest = rhythm.longest_step_ms if rhythm.steps else rhythm.longest_silence_ms
    return Hang(
        rhythm.silent_ms,
        rhythm.stepless_ms if rhythm.steps else None,
        longest,
        is_busy=not is_idle,
    )
