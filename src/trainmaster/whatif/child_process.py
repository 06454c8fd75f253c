"""What the process of a simulation does around it: bounds, its end with the manager, how far it is."""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from typing import Any, NoReturn

NICENESS = 10
EVERY_S = 0.2
REFUSED = 3
"""Its exit code then."""


def bounded() -> None:
    """Call it first: the manager's work goes before, memory is bounded, and it ends with its manager."""
    os.nice(NICENESS)
    most = int(os.environ.get("TRAINMASTER_MEMORY", "0"))
    if most:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    threading.Thread(target=_end_with_manager, daemon=True).start()


def _end_with_manager() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(1)


class Teller:
    """Tells how far it is, a few times a second at most."""

    def __init__(self) -> None:
        self._told = 0.0

    def tell(self, progress: float, says: str) -> None:
        now = time.monotonic()
        if now - self._told >= EVERY_S:
            self._told = now
            _say(progress=progress, says=says)


def refuse(sentence: str) -> NoReturn:
    """It cannot do what was asked, and why."""
    _say(refused=sentence)
    sys.exit(REFUSED)


def _say(**said: Any) -> None:
    print(json.dumps(said), flush=True)  # noqa: T201
