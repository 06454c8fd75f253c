"""Where a node keeps its runs, and which launcher has them."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from trainmaster.engines.local import processes
from trainmaster.engines.ray.node_facts import UnusableNode

NODE_DATA = "TRAINMASTER_NODE_DATA"
"""Another folder for all nodes and stores; each node has its own in there."""
USUAL = ".local/share/trainmaster-ray"
LOCK = "launcher.lock"
TAKEN_OVER_S = 10.0


def node_folder(store: str, node: str, environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME") or os.path.expanduser("~")
    every = Path(environ.get(NODE_DATA) or Path(home) / USUAL)
    return every / store / node.replace("/", "_")


def open_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = folder / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UnusableNode(
            f"{folder} cannot be written there ({error.strerror}): set {NODE_DATA} to a local folder in the"
            " environment of its raylet."
        ) from None


def take_over(folder: Path) -> int:
    """Be the folder's launcher, and the only one: an earlier one, of a raylet that was restarted, is killed.

    Its runs go on. The lock is held as long as the descriptor is open.
    """
    path = folder / LOCK
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + TAKEN_OVER_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() > until:
                os.close(lock)
                raise UnusableNode(
                    f"Another launcher holds {path}, and could not be ended."
                ) from None
        for pid in processes.lock_holders(str(path)):
            if pid != os.getpid():
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def is_taken(folder: Path) -> bool:
    """Whether a launcher has it."""
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    return processes.is_lock_held(lock, fcntl.LOCK_SH)
