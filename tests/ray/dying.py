"""`trainmaster` that is killed at one step of its work on a Ray cluster, as soon as a file says so.

    python -m tests.ray.dying POINT up …

POINT is `journal WORD` (an entry of a run's journal is written, and nobody was told), `reserve` (Ray has
reserved, or given back), or `call ORDER N` (the Nth node has taken this order); `before` in front of it: just
before that. It counts from the moment at which DATA/armed is there.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainmaster.cli.main import run
from trainmaster.engines.local.journal import Journal, JournalEntry
from trainmaster.engines.ray.gateway_client import Gateway
from trainmaster.model.job import Run

ARMED = "armed"


class Death:
    def __init__(self, point: str, armed: Path) -> None:
        self.is_before = point.startswith("before ")
        words = point.removeprefix("before ").split()
        self.times = int(words.pop()) if words[-1].isdecimal() else 1
        self.step = " ".join(words)
        self.armed = armed

    def at(self, step: str, *, is_before: bool) -> None:
        if step != self.step or is_before != self.is_before or not self.armed.exists():
            return
        self.times -= 1
        if self.times == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    point = sys.argv.pop(1)
    death = Death(point, Path(sys.argv[sys.argv.index("--data") + 1]) / ARMED)
    put, call, reserve = Journal.put, Gateway.call, Gateway.reserve

    def dying_put(self: Journal, entry: JournalEntry) -> list[JournalEntry]:
        death.at(f"journal {entry['what']}", is_before=True)
        written = put(self, entry)
        death.at(f"journal {entry['what']}", is_before=False)
        return written

    async def dying_call(self: Gateway, node: str, method: str, *words: object) -> object:
        step = f"call {type(words[1]).__name__}" if method == "execute" else f"call {method}"
        death.at(step, is_before=True)
        answer = await call(self, node, method, *words)
        death.at(step, is_before=False)
        return answer

    async def dying_reserve(
        self: Gateway, run: Run, thousandths: Mapping[str, int], cpus: Mapping[str, int]
    ) -> Any:
        step = "reserve" if thousandths else "give back"
        death.at(step, is_before=True)
        await reserve(self, run, thousandths, cpus)
        death.at(step, is_before=False)

    Journal.put = dying_put  # type: ignore[method-assign]
    Gateway.call = dying_call  # type: ignore[method-assign]
    Gateway.reserve = dying_reserve  # type: ignore[method-assign]
    run()


if __name__ == "__main__":
    main()
