"""How a run is suspended in place: SIGSTOP and SIGCONT, which work for every program and free nothing but the
processors.

Only the standard library is imported here: supervisors load it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable

from trainmaster.engines.local import processes

Members = Callable[[], Iterable[int]]
"""All processes of a run that are alive now."""
ROUNDS = 100


def freeze(members: Members) -> bool:
    """Stop all until a look around finds no process that still moves: it may have forked.

    Whether every process stands still now; False: not yet, call again soon.
    """
    for _ in range(ROUNDS):
        moving = [pid for pid in members() if not processes.is_stopped(pid)]
        if not moving:
            return True
        for pid in moving:
            send(pid, signal.SIGSTOP)
        time.sleep(0.0005)
    # A parent waits for a child of vfork that we have stopped: let both go, and try again.
    thaw(members)
    return False


def thaw(members: Members) -> None:
    for pid in members():
        send(pid, signal.SIGCONT)


def send(pid: int, number: int) -> bool:
    """Send a signal to one process; False where there is none, or it is not ours."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
