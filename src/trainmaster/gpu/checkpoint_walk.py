"""Takes CUDA processes from the state that the driver reports to the one that is wanted, one call at a time.

It asks for the state before each call, so it may be killed and begun again at any point.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from trainmaster.gpu.cuda_process import (
    BUSY,
    NOT_INITIALIZED,
    NOT_READY,
    NOT_SUPPORTED,
    OPERATING_SYSTEM,
    OUT_OF_MEMORY,
    CudaFault,
    CudaProcess,
)
from trainmaster.gpu.freeze_end import FROZEN, RUNNING, STUCK

CALLS: Mapping[str, Mapping[str, str]] = {
    "locked": {"running": "lock"},
    "checkpointed": {"running": "lock", "locked": "checkpoint"},
    "restored": {"checkpointed": "restore"},
    "running": {"checkpointed": "restore", "locked": "unlock"},
}
"""For each goal the next call, by the state that the driver reports; none: it is there."""
FREEZE = ("locked", "checkpointed")
THAW = ("restored", "running")
NOT_CUDA = frozenset({1, NOT_INITIALIZED, OPERATING_SYSTEM})
"""What the driver says of processes that it does not know, have ended or are about to."""
LOCK_TIMEOUT_MS = 10_000
EXIT_S = 5.0
"""How long a process may take to end after the driver said that it does."""
MEMORY_S = 5.0
"""How long a restore waits for GPU memory that another process is giving back."""
LOOK_S = 0.05

T = TypeVar("T")
Say = Callable[[Mapping[str, object]], None]


class Ended(Exception):
    """The process has ended meanwhile, which is not a fault."""


class Turned(Exception):
    """It is not wanted any more."""


def next_call(state: str, goal: str) -> str | None:
    """What brings a process from this state nearer to the goal; None: nothing has to be done."""
    return CALLS[goal].get(state)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where all processes are now, and why they are not where they should be."""

    end: str
    why: str = ""
    is_final: bool = False
    is_short: bool = False
    """Whether only GPU memory is missing that others have: nothing is broken, and it may come."""


class Walk:
    """Takes processes from the state that the driver reports to a goal, one call at a time."""

    def __init__(
        self,
        found: Mapping[int, CudaProcess],
        say: Say,
        is_turned: Callable[[], bool] = lambda: False,
        lock_ms: int = LOCK_TIMEOUT_MS,
    ) -> None:
        self._found = dict(found)
        self._say = say
        self._is_turned = is_turned
        self._lock_ms = lock_ms

    def freeze(self) -> Outcome:
        """All are locked before any is checkpointed; where one cannot be, all go on."""
        try:
            self._bring(FREEZE, {}, self._is_turned)
        except Turned:
            back = self.thaw({})
            return (
                back if back.end == STUCK else Outcome(RUNNING, "It was told to go on meanwhile.")
            )
        except CudaFault as fault:
            back = self.thaw({})
            why, is_final = words_of(fault)
            return Outcome(back.end, f"{why} {back.why}".strip(), is_final)
        return Outcome(FROZEN)

    def thaw(self, moves: Mapping[str, str]) -> Outcome:
        try:
            self._bring(THAW, moves, lambda: False)
        except CudaFault as fault:
            return Outcome(STUCK, words_of(fault)[0], is_short=fault.code == OUT_OF_MEMORY)
        return Outcome(RUNNING)

    def _bring(
        self, goals: Sequence[str], moves: Mapping[str, str], is_turned: Callable[[], bool]
    ) -> None:
        for goal in goals:
            for pid in [*self._found]:
                try:
                    while self._step(pid, goal, moves):
                        if is_turned():
                            raise Turned
                except Ended:
                    self._say({"pid": pid, "did": "end"})
                    del self._found[pid]
        if is_turned():
            raise Turned

    def _step(self, pid: int, goal: str, moves: Mapping[str, str]) -> bool:
        """One call, where one is needed; False: it is there."""
        process = self._found[pid]
        state = self._asked(pid, "state", process.state)
        if state == BUSY:
            time.sleep(LOOK_S)
            return True
        if state == "failed":
            raise CudaFault(0, f"The driver has failed process {pid}.")
        call = next_call(state, goal)
        if call is None:
            return False
        began = time.monotonic()
        doing: Mapping[str, Callable[[], None]] = {
            "lock": lambda: process.lock(self._lock_ms),
            "checkpoint": process.checkpoint,
            "restore": lambda: _restore(process, moves),
            "unlock": process.unlock,
        }
        self._asked(pid, call, doing[call])
        took_ms = round((time.monotonic() - began) * 1000, 3)
        self._say({"pid": pid, "did": call, "ms": took_ms})
        return True

    def _asked(self, pid: int, call: str, doing: Callable[[], T]) -> T:
        """Ended where the process has, or is about to."""
        try:
            return doing()
        except CudaFault as fault:
            if fault.code in NOT_CUDA and is_ending(pid):
                raise Ended from None
            if fault.code == 0:
                raise
            raise CudaFault(
                fault.code,
                f"The driver could not {call} process {pid}: error {fault.code} ({fault}).",
            ) from None


def _restore(process: CudaProcess, moves: Mapping[str, str]) -> None:
    """Memory that another process has given back may appear a little later."""
    until = time.monotonic() + MEMORY_S
    while True:
        try:
            process.restore(moves)
            return
        except CudaFault as fault:
            is_late = time.monotonic() > until
            if fault.code != OUT_OF_MEMORY or is_late or process.state() != "checkpointed":
                raise
        time.sleep(LOOK_S)


def words_of(fault: CudaFault) -> tuple[str, bool]:
    """A fault as a sentence, and whether another try would meet it again."""
    if fault.code == NOT_SUPPORTED:
        return (
            "The driver cannot suspend it (error 801), as it cannot clients of MPS and programs with"
            " managed memory.",
            True,
        )
    if fault.code == NOT_READY:
        return f"{fault} It did not come to rest in time.", False
    return str(fault), False


def is_ending(pid: int) -> bool:
    """Whether a process has ended, or does soon, of which the driver says that it does not know it."""
    return has_ended(pid, EXIT_S)


def has_ended(pid: int, patience_s: float = 0.0) -> bool:
    until = time.monotonic() + patience_s
    while True:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X"):
                    return True
        except OSError:
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(LOOK_S)
