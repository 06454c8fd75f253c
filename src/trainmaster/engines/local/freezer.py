"""What every freezer does: takes what a run has on its devices out of them, and gives it back later.

Its processes live on in both; that all of them are stopped in between is done for all freezers alike
(run_freezing.py). Only the standard library is imported here: supervisors load it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainmaster.gpu.freeze_conditions import Refusal
from trainmaster.gpu.freeze_end import FROZEN, RUNNING
from trainmaster_sdk.wire import Message


@dataclass(frozen=True, slots=True)
class Result:
    """Where the run is now."""

    end: str
    """frozen: its devices are free; running: it goes on as before; stuck: neither."""
    why: str = ""
    """Why it is not where it should be."""
    is_final: bool = False
    """Whether another try would end the same way."""
    is_short: bool = False
    """Stuck only for want of GPU memory that others have: it may be given back."""
    host_bytes: int | None = None
    gpu_bytes: int | None = None
    """What it keeps in host memory of what it had on GPUs, and on them; None: not known."""
    is_all_on_gpus: bool | None = None
    """Whether every rank has its own state on a GPU: else it cannot go on on others; None: not known."""


class Freezer(Protocol):
    """One way of freezing one run. Nothing blocks: `release` and `restore` begin, `result` tells the end."""

    @property
    def name(self) -> str:
        """stop, driver or cooperative: the `how` of the report."""
        ...

    @property
    def why(self) -> str:
        """Why this one is chosen where it is: a sentence."""
        ...

    @property
    def due_at(self) -> float | None:
        """When `result` wants to be asked, by time.monotonic(); None: something wakes the loop."""
        ...

    def refusal(self) -> Refusal | None:
        """Why it cannot be used now, as far as that is known before anything is touched."""
        ...

    def release(self) -> None:
        """Begin to free its devices. All or nothing: its result is frozen, running or stuck."""
        ...

    def turn_back(self) -> None:
        """It is not to be frozen any more: end `release` soon; its result is any of the three."""
        ...

    def restore(self, moves: Mapping[str, str]) -> None:
        """Begin to give everything back, from wherever it is; on other GPUs where `moves` says so.

        Its result is running or stuck; one that is stuck, and not for good, is begun again a few times.
        """
        ...

    def result(self, now: float) -> Result | None:
        """How what was begun has ended, told once; None while it goes on."""
        ...

    def heard(self, rank: int, said: Message) -> None:
        """A line from a rank that uses the SDK; lines that are about something else are ignored."""
        ...

    def close(self) -> None:
        """All processes of the run have ended."""
        ...


class StopFreezer:
    """For CPU slots: they are free as soon as processes are stopped."""

    name = "stop"
    why = "It has CPU slots, which are free as soon as its processes are stopped."
    due_at: float | None = None

    def __init__(self) -> None:
        self._result: Result | None = None

    def refusal(self) -> Refusal | None:
        return None

    def release(self) -> None:
        self._result = Result(FROZEN)

    def turn_back(self) -> None:
        pass

    def restore(self, moves: Mapping[str, str]) -> None:
        self._result = Result(RUNNING)

    def result(self, now: float) -> Result | None:
        result, self._result = self._result, None
        return result

    def heard(self, rank: int, said: Message) -> None:
        pass

    def close(self) -> None:
        pass


def moves_between(old: Sequence[str], new: Sequence[str]) -> dict[str, str] | None:
    """Which GPU takes the place of which; None where there is no such map."""
    moves: dict[str, str] = {}
    for one, other in zip(old, new, strict=False):
        if moves.setdefault(one, other) != other:
            return None
    if len(old) != len(new) or len(set(moves.values())) != len(moves):
        return None
    return {one: other for one, other in moves.items() if one != other}
