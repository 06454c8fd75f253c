"""Suspends a run in memory with SIGSTOP, resumes it with SIGCONT: for every program, but only CPUs are freed.

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
    """Suspend all processes, repeating until none runs: a process may have forked meanwhile.

    Whether every process is stopped now; False: not yet, call again soon.
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
    """Resume all processes."""
    for pid in members():
        send(pid, signal.SIGCONT)


def send(pid: int, number: int) -> bool:
    """Send a signal to one process; False if it does not exist, or is not ours."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
