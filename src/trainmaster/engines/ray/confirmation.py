"""When Ray's control store last said that a node is alive, as the node's launcher wrote it for the fence.

Times are those of a clock that goes on while the machine sleeps, and were taken before the store was asked:
so the fence counts from a time at which the store cannot have called the node dead yet.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from trainmaster.engines.local.journal import BOOT

FILE = "confirmed.json"
ENDING = "fence.ending"
"""Locked while the fence ends runs, and while a confirmation is written: never both at once."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    asked_ms: int
    fence_ms: int
    incarnation: str = ""
    boot: str = BOOT

    def is_over(self, now_ms: int) -> bool:
        """Whether runs may not go on by it."""
        return self.boot != BOOT or now_ms - self.asked_ms > self.fence_ms


def confirm(folder: Path, said: Confirmation) -> None:
    """Waits while the fence ends runs."""
    with ending(folder):
        beside = folder / f".{FILE}"
        beside.write_text(json.dumps(asdict(said)))
        beside.replace(folder / FILE)


def confirmed(folder: Path) -> Confirmation | None:
    """None where nothing was ever confirmed, or what was written cannot be read."""
    try:
        return Confirmation(**json.loads((folder / FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None


@contextmanager
def ending(folder: Path) -> Iterator[None]:
    lock = os.open(folder / ENDING, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
