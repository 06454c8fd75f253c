"""What an engine says of its runs: what was seen, when, with the details that a user asks for.

The daemon makes facts of them (events.py): only it knows how much work had been done by then.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trainmaster.model.job import Run


class StopOrder(Enum):
    """What a run had been told when it ended."""

    NOTHING = "nothing"
    HALT = "halt"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class Started:
    """Every rank is up; `pids` by rank."""

    run: Run
    at_ms: int
    pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Frozen:
    """All its processes stand still, and its devices are free."""

    run: Run
    at_ms: int


@dataclass(frozen=True, slots=True)
class Thawed:
    run: Run
    at_ms: int


@dataclass(frozen=True, slots=True)
class Reshaped:
    """It goes on with another number of ranks, from its last checkpoint."""

    run: Run
    at_ms: int
    pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Progressed:
    """Its program said how far it has come."""

    run: Run
    at_ms: int
    step: int
    loss: float | None = None
    samples_per_s: float | None = None
    total_steps: int | None = None
    epoch_steps: int | None = None


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint of it has become durable."""

    run: Run
    at_ms: int
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """None of its processes is left."""

    run: Run
    at_ms: int
    code: int
    """Exit code of the rank that decided: 0, or of the first that failed; 128 + n for signal n."""
    asked: StopOrder = StopOrder.NOTHING
    rank: int | None = None
    """The first rank that failed; None where none did."""
    has_left: bool = False
    """It was told to stop, saved what it had, and said so: it is to go on later."""
    was_killed: bool = False
    """It did not end within its grace period."""
    why: str = ""
    """One sentence where the engine knows more: out of memory, command not found."""
    tail: str = ""
    """The last lines of the deciding rank."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Nothing of it is left and nobody saw it end: its machine or its supervisor was killed."""

    run: Run
    at_ms: int
    why: str = ""


Report = Started | Frozen | Thawed | Reshaped | Progressed | Saved | Ended | Lost
