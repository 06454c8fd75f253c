"""When silence means that a run hangs."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from trainmaster.failures.hang_rule import Hang, HangLimits, Rhythm, hang_of
from trainmaster.model.units import HOUR, MINUTE, SECOND

LIMITS = HangLimits()


def silent(ms: int, *, steps: int = 100, longest: int = 40 * SECOND, idle: int = 0) -> Rhythm:
    return Rhythm(
        steps=steps,
        longest_silence_ms=longest,
        longest_step_ms=longest,
        silent_ms=ms,
        stepless_ms=ms,
        idle_ms=idle,
    )


@dataclass(frozen=True)
class Case:
    rhythm: Rhythm
    hangs: bool


CASES = {
    "steps of 40 s, then 12 min of nothing": Case(silent(12 * MINUTE, idle=12 * MINUTE), True),
    "not yet: no silence below the floor counts": Case(silent(9 * MINUTE, idle=9 * MINUTE), False),
    "it has been silent for as long before: a validation, a checkpoint": Case(
        silent(12 * MINUTE, longest=4 * MINUTE, idle=12 * MINUTE), False
    ),
    "five times its longest silence": Case(
        silent(21 * MINUTE, longest=4 * MINUTE, idle=21 * MINUTE), True
    ),
    "it computes: it may be validating for the first time": Case(silent(30 * MINUTE), False),
    "it computed until a moment ago": Case(silent(30 * MINUTE, idle=9 * MINUTE), False),
    "it spins in NCCL: busy for much too long": Case(silent(61 * MINUTE), True),
    "busy, and its steps are long": Case(silent(61 * MINUTE, longest=10 * MINUTE), False),
    "busy, and nothing is known of its steps": Case(silent(9 * HOUR, steps=3), False),
    "before its first step it may load and download": Case(
        silent(29 * MINUTE, steps=0, longest=0, idle=29 * MINUTE), False
    ),
    "it never began": Case(silent(31 * MINUTE, steps=0, longest=0, idle=31 * MINUTE), True),
    "busy before its first step: it compiles": Case(silent(9 * HOUR, steps=0), False),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_hangs_or_not(case: Case) -> None:
    assert (hang_of(case.rhythm, LIMITS) is not None) is case.hangs


def test_a_hang_says_how_long_and_what_was_its_longest() -> None:
    found = hang_of(silent(12 * MINUTE, idle=12 * MINUTE), LIMITS)
    assert found == Hang(12 * MINUTE, 12 * MINUTE, 40 * SECOND, is_busy=False)
    spins = hang_of(silent(2 * HOUR), LIMITS)
    assert spins is not None
    assert spins.is_busy
    unborn = hang_of(silent(1 * HOUR, steps=0, longest=0, idle=1 * HOUR), LIMITS)
    assert unborn is not None
    assert unborn.stepless_ms is None
