"""How a run hangs, in one sentence."""

from __future__ import annotations

from typing import Protocol

from trainmaster.text.formatting import length

HUNG_AND_ENDED = "It hung and was ended."


class HangTimes(Protocol):
    """What the sentence is made of: a `Hang` of failures/hang_rule.py, or the record of one."""

    @property
    def silent_ms(self) -> int: ...

    @property
    def stepless_ms(self) -> int | None: ...

    @property
    def longest_ms(self) -> int: ...

    @property
    def is_busy(self) -> bool: ...


def hang_sentence(hang: HangTimes) -> str:
    """`No step for 12 min where its longest was 40 s, no output for 12 min, and its device is idle.`"""
    device = "though its device is busy" if hang.is_busy else "and its device is idle"
    silence = f"no output for {length(hang.silent_ms)}"
    if hang.stepless_ms is None:
        return f"No step so far and {silence}, {device}."
    longest = f" where its longest was {length(hang.longest_ms)}" if hang.longest_ms else ""
    return f"No step for {length(hang.stepless_ms)}{longest}, {silence}, {device}."


def no_stacks_sentence(trouble: str) -> str:
    """Why some of its processes show no Python stack."""
    return f"No Python stacks of some processes: {trouble}."
