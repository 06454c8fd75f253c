"""How a run is suspended in place: freezers, and what each of them can do.

Only the standard library is imported here: supervisors load it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from trainmaster.engines.local import processes

Members = Callable[[], Iterable[int]]
"""All processes of a run that are alive now."""


class Freezer(Protocol):
    """Makes all processes of a run stand still, and lets them go on."""

    @property
    def name(self) -> str: ...

    @property
    def releases_devices(self) -> bool:
        """Whether others can use the run's GPUs, their memory included, while it is frozen."""
        ...

    def freeze(self, members: Members) -> bool:
        """Whether every process stands still now; False: not yet, call again soon."""
        ...

    def thaw(self, members: Members) -> None: ...


class StopFreezer:
    """SIGSTOP and SIGCONT: works for every program, and frees nothing but the processors."""

    name = "stop"
    releases_devices = False
    ROUNDS = 100

    def freeze(self, members: Members) -> bool:
        """Stop all until a look around finds no process that still moves: it may have forked."""
        for _ in range(self.ROUNDS):
            moving = [pid for pid in members() if not processes.is_stopped(pid)]
            if not moving:
                return True
            for pid in moving:
                send(pid, signal.SIGSTOP)
            time.sleep(0.0005)
        # A parent waits for a child of vfork that we have stopped: let both go, and try again.
        self.thaw(members)
        return False

    def thaw(self, members: Members) -> None:
        for pid in members():
            send(pid, signal.SIGCONT)


FREEZERS: dict[str, Callable[[], Freezer]] = {"stop": StopFreezer}
"""By the name that a run's file says."""


def can_freeze_on(freezer: Freezer, has_gpus: bool) -> bool:
    """Frozen means that its devices are free: CPU slots are, as soon as its processes stand still."""
    return freezer.releases_devices or not has_gpus


def send(pid: int, number: int) -> bool:
    """Send a signal to one process; False where there is none, or it is not ours."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
