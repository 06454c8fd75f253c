"""Holds a program back at the ends of its steps, so that another one on the same GPU keeps its speed.

The pace is a number from 0 to 100: after a step that took r, the program waits until r * 100 / pace have
passed since it began (AntMan). At 0 it makes no further step until the pace is raised.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable

from trainmaster_sdk.control_client import ControlClient
from trainmaster_sdk.wire import FULL_PACE, Message

LOOK_S = 1.0
"""How often it is looked for a stop meanwhile; lines wake it at once."""


def pause_s(ran_s: float, pace: int) -> float:
    """How long to wait after a step that took so long."""
    if pace >= FULL_PACE:
        return 0.0
    return ran_s * FULL_PACE / pace - ran_s if pace > 0 else math.inf


class Pacer:
    """One process's pace."""

    def __init__(self, client: ControlClient | None = None) -> None:
        self.client = client
        self.pace = FULL_PACE
        self._began: float | None = None
        self._last_s = math.inf
        """How long the step before took: one that took much longer was suspended in the middle."""

    def take(self, said: Message) -> None:
        """One line of the supervisor."""
        pace = said.get("pace")
        if said.get("ask") == "pace" and isinstance(pace, int):
            self.pace = min(FULL_PACE, max(0, pace))
            if self.pace == FULL_PACE:
                self.restart()

    def restart(self) -> None:
        """What has passed until now is not part of a step."""
        self._began = None

    def end_step(self, hear: Callable[[], None], must_go_on: Callable[[], bool]) -> None:
        """Wait as the pace says: until it is over, raised, or something else is asked."""
        began, client = self._began, self.client
        if self.pace < FULL_PACE and began is not None and client is not None:
            _finish_gpu_work()
            ended = time.monotonic()
            ran_s = self._last_s = min(ended - began, max(1.0, 2 * self._last_s))
            while client.is_connected and not must_go_on():
                left_s = pause_s(ran_s, self.pace) - (time.monotonic() - ended)
                if left_s <= 0:
                    break
                client.wait(min(left_s, LOOK_S))
                hear()
        self._began = time.monotonic()


def _finish_gpu_work() -> None:
    """Kernels run on after the step that launched them: their time is part of it."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized() and not cuda.is_current_stream_capturing():
        cuda.synchronize()
