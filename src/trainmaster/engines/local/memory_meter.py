"""Asks the GPU driver how much the processes of a run have on GPUs, by a program that stays for the run.

Only the standard library is imported here: supervisors load it.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from trainmaster.engines.local.helper_process import HelperProcess

PROGRAM = ("-m", "trainmaster.gpu.held_memory")
ANSWER_S = 3.0
"""How long a freeze waits for the answer: the first time the program may still be starting."""


class Meter(Protocol):
    """Nothing blocks: `ask` begins, `held` tells the answer."""

    @property
    def due_at(self) -> float | None:
        """When `held` wants to be asked, by time.monotonic(); None: nothing is being waited for."""
        ...

    def start(self) -> None:
        """A question will come soon."""
        ...

    def ask(self, pids: Sequence[int]) -> None: ...

    def held(self, now: float) -> Mapping[int, int] | None:
        """Bytes on all GPUs by process, of those that the driver lists; None: no answer yet."""
        ...

    def close(self) -> None: ...


class MemoryMeter:
    """By the program, which is ended where it does not answer in time, and started again the next time."""

    def __init__(self, selector: selectors.BaseSelector, outsiders: set[int]) -> None:
        self._selector = selector
        self._outsiders = outsiders
        self._helper: HelperProcess | None = None
        self._number = 0
        self._until: float | None = None

    @property
    def due_at(self) -> float | None:
        return self._until

    def start(self) -> None:
        if self._helper is not None and not self._helper.is_over:
            return
        try:
            self._helper = HelperProcess(PROGRAM, self._selector, self._outsiders)
        except OSError:  # the machine cannot start more processes
            self._helper = None

    def ask(self, pids: Sequence[int]) -> None:
        self._number += 1
        self._until = time.monotonic() + ANSWER_S
        if self._helper is None or not self._helper.tell({"n": self._number, "pids": [*pids]}):
            self.close()

    def held(self, now: float) -> Mapping[int, int] | None:
        helper = self._helper
        if helper is None:
            return {}
        helper.read()
        found = [said["held"] for said in helper.lines if said.get("n") == self._number]
        if found:
            helper.lines.clear()
            self._until = None
            return {int(pid): size for pid, size in found[0].items()}
        if helper.is_over or self._until is None or now >= self._until:
            self.close()
            return {}
        return None

    def close(self) -> None:
        if self._helper is not None:
            self._helper.kill()
        self._helper = self._until = None
