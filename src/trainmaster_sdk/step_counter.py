"""Counts the optimizer steps of a PyTorch program that reports nothing itself, and reports their number.

Installed by path_entry/sitecustomize.py when the program imports torch. A step is one iteration: it begins
when an optimizer steps that has already stepped in the present one. So two optimizers that take turns, as in
a GAN, or one for each parameter, make one step together, and accumulated gradients are one step. How many
steps there will be is not known, and nothing can be saved this way.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from types import ModuleType

from trainmaster_sdk import step_hooks, wire
from trainmaster_sdk.control_client import ControlClient
from trainmaster_sdk.pacing import Pacer

REPORT_S = 0.1
"""Steps are reported at most this often: a program that hangs says no more of those after its last report."""
MEASURE_S = 0.9
"""Speed is measured over this long, at least: the second report that is kept, after a second, has it."""
CLOSE_S = 0.2
"""Seconds that sending the last report may take when the program ends."""

_installed: list[StepCounter] = []
_sessions: list[int] = []
"""Processes that have opened a session; forked children remember their parent's."""


def install(optimizers: ModuleType) -> None:
    """Count from now on, given `torch.optim.optimizer`; torch before 2.0 has no hook for it."""
    path = os.environ.get(wire.SOCKET)
    if path is None or _sessions or _installed:
        return
    counter = StepCounter(path)
    counter.handle = step_hooks.add(optimizers, counter.count)
    if counter.handle is None:
        return
    _installed.append(counter)
    atexit.register(counter.close)


def stop() -> None:
    """A session has been opened: the program reports its own steps."""
    _sessions.append(os.getpid())
    for counter in _installed:
        counter.stop()


class StepCounter:
    """One program's count. The process that makes the first step reports; those forked off it do not."""

    def __init__(self, path: str) -> None:
        self.steps = 0
        self.handle: step_hooks.StepHook | None = None
        """Removes the hook."""
        self._path = path
        self._stepped: set[int] = set()
        """Optimizers that have stepped in the present iteration."""
        self._due_at = 0.0
        self._reported = 0
        """Steps at the last report."""
        self._measured = (0, 0.0)
        """Steps and time when the speed was last measured."""
        self._steps_per_s: float | None = None
        self._owner = 0
        self._client: ControlClient | None = None
        self._pacer = Pacer()

    def count(self, optimizer: object, args: object, kwargs: object) -> None:
        """After each `optimizer.step()`."""
        number = id(optimizer)
        if number in self._stepped or not self._stepped:
            self.steps += 1
            self._stepped = {number}
            now = time.monotonic()
            if now >= self._due_at:
                self._report(now)
            if self._pacer.pace < wire.FULL_PACE:
                self._keep_pace()
        else:
            self._stepped.add(number)

    def stop(self) -> None:
        """Count no more."""
        handle, self.handle = self.handle, None
        if handle is not None:
            handle.remove()
        if self._client is not None:
            self._client.close(0)
            self._client = None

    def close(self) -> None:
        """The program ends: report the last steps."""
        if self._client is None or os.getpid() != self._owner:
            return
        if self.steps > self._reported:
            self._send()
        self._client.close(CLOSE_S)

    def _report(self, now: float) -> None:
        try:
            self._due_at = now + REPORT_S
            if self._may_report(now):
                self._measure(now)
                self._send()
                self._hear()
        except Exception:
            self.stop()

    def _keep_pace(self) -> None:
        try:
            if os.getpid() == self._owner:
                self._pacer.end_step(self._hear, lambda: False)
        except Exception:
            self.stop()

    def _hear(self) -> None:
        if self._client is not None:
            self._pacer.client = self._client
            for said in self._client.hear():
                self._pacer.take(said)

    def _may_report(self, now: float) -> bool:
        if self._owner == 0:
            self._owner = os.getpid()
            self._measured = (self.steps, now)
        if os.getpid() != self._owner or not _is_first_rank():
            self.stop()
            return False
        if self._client is None:
            self._client = ControlClient(self._path, None)
        return True

    def _measure(self, now: float) -> None:
        steps, at = self._measured
        if self.steps > steps and now >= at + MEASURE_S:
            self._steps_per_s = (self.steps - steps) / (now - at)
            self._measured = (self.steps, now)

    def _send(self) -> None:
        assert self._client is not None
        self._reported = self.steps
        said: wire.Message = {"say": "progress", "step": self.steps, "counted": True}
        if self._steps_per_s is not None:
            said["steps_per_s"] = self._steps_per_s
        self._client.say_newest(said, now=True)


def _is_first_rank() -> bool:
    """Whether this is rank 0 of its gang: what torch.distributed says counts, not only the environment."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return True
    return bool(distributed.get_rank() == 0)
