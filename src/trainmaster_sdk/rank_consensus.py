"""How the ranks of a gang act on a request at the same call, so that none is left in a collective.

Signals and lines reach the ranks at different moments. Where torch.distributed is at work, the ranks ask
each other (trainmaster_sdk.torch). Where it is not, rank 0 decides and writes down at which call all act.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

AHEAD = 2
"""How many calls ahead rank 0 decides.

Ranks that work in step meet in some exchange between two calls. Rank 0 writes during its call n, before
the exchange that follows it. Another rank can begin its call n + 2 only after the exchange that follows
call n + 1, in which rank 0 took part after writing. So all see the line before call n + 2.
"""
FREE = "free"
"""Written when rank 0 has ended: later calls are decided by each rank alone."""


class RankConsensus:
    """One question ('stop?', 'save?') that the ranks answer together, call by call.

    `is_first`: no rank of this gang asks it yet, so that what is written down is of an earlier one.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        generation: str,
        rank: int,
        world_size: int,
        *,
        is_first: bool = True,
    ) -> None:
        self._path = folder / f".{name}-{generation}"
        self._rank = rank
        self._world_size = world_size
        self._calls = 0
        self._decided = 0
        self._acted = 0
        if rank == 0 and world_size > 1 and is_first:
            for old in folder.glob(f".{name}-*"):
                old.unlink(missing_ok=True)

    def settle(self, requested: bool) -> bool:
        """Whether all act at this call. Each rank says what was requested of it; all get the same answer."""
        if self._world_size == 1:
            return requested
        self._calls += 1
        if self._rank == 0:
            return self._lead(requested)
        return self._follow(requested)

    def close(self) -> None:
        """Rank 0 has ended and decides nothing more; its decisions still hold."""
        if self._rank == 0 and self._world_size > 1 and self._calls:
            self._write(f"{self._decided} {FREE}")

    def _lead(self, requested: bool) -> bool:
        if requested and self._decided == self._acted:
            at = self._calls + AHEAD
            if self._write(str(at)):
                self._decided = at
        return self._is_due()

    def _follow(self, requested: bool) -> bool:
        try:
            decided, *free = self._path.read_text().split()
        except OSError:
            return False
        self._decided = int(decided)
        if free and self._decided == self._acted:
            return requested
        return self._is_due()

    def _is_due(self) -> bool:
        is_due = self._acted < self._decided <= self._calls
        if is_due:
            self._acted = self._decided
        return is_due

    def _write(self, said: str) -> bool:
        beside = self._path.with_name(self._path.name + ".new")
        try:
            beside.write_text(said)
            os.replace(beside, self._path)
        except OSError:
            return False  # a full disk: tried again at the next call
        return True


def is_gang_initialised() -> bool:
    """Whether torch.distributed is initialised in this program, without importing it."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available():
        return False
    return bool(distributed.is_initialized() and distributed.get_world_size() > 1)
