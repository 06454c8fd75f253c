"""Writes down when each optimizer step of a PyTorch program ended: for measurements, not for jobs.

Installed by path_entry/sitecustomize.py where TRAINMASTER_STEP_TIMES names a file. Times are seconds of the
machine's monotonic clock, as doubles, so that programs that run side by side can be compared. A step is one
iteration, as in step_counter.py. Nothing waits for the GPU: its queue is part of what is measured.
"""

from __future__ import annotations

import os
import time
from array import array
from types import ModuleType

from trainmaster_sdk import step_hooks, wire

FLUSH_S = 0.05
"""Times are written at most this often."""


def install(optimizers: ModuleType) -> None:
    """Write from now on, given `torch.optim.optimizer`; torch before 2.0 has no hook for it."""
    path = os.environ.get(wire.STEP_TIMES)
    if path:
        step_hooks.add(optimizers, StepTimes(path).add)


class StepTimes:
    """One program's times. Processes that are forked off it write nothing."""

    def __init__(self, path: str) -> None:
        self._path, self._owner = path, os.getpid()
        self._times = array("d")
        self._stepped: set[int] = set()
        self._due_at = 0.0

    def add(self, optimizer: object, args: object, kwargs: object) -> None:
        """After each `optimizer.step()`."""
        number = id(optimizer)
        if self._stepped and number not in self._stepped:
            self._stepped.add(number)
            return
        self._stepped = {number}
        now = time.monotonic()
        self._times.append(now)
        if now >= self._due_at and os.getpid() == self._owner:
            self._due_at = now + FLUSH_S
            with open(self._path, "ab") as file:
                file.write(self._times.tobytes())
            self._times = array("d")
