"""What is known of a run's program and resizes: whether it can be resized while it trains, what is under way,
and how many of its ranks it has lost.

Only the standard library is imported here: supervisors load it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace

from trainmaster.engines.local.in_place_resize import (
    PER_GENERATION,
    InPlaceResize,
    RankAssignment,
    assigned_ranks,
)
from trainmaster.engines.local.rank_processes import Gang, RankProcess
from trainmaster.engines.local.runfile import RankSpec, RunFile
from trainmaster_sdk.wire import Message

LONGEST_SAVE_S = 1800.0
"""How long a checkpoint is waited for of which no end is told."""


class RunResizing:
    """Of one generation of a run."""

    def __init__(self, gang: Gang, ask: Callable[[int, Message], None]) -> None:
        self._gang = gang
        self._ask = ask
        self._able: set[int] = set()
        """Processes that have said that they can be resized."""
        self._may_lose = 0
        self._lost = 0
        self._saving_since: float | None = None
        """When it began to write the checkpoint that it writes now."""
        self.active: InPlaceResize | None = None
        self.lost_rank: RankProcess | None = None
        """The rank that `active` is for; None: a policy has ordered it."""
        self.queued: Message | None = None
        """An order that came meanwhile: the newest."""

    def heard(self, number: int, said: Message) -> None:
        """A line of the process of that number."""
        if said.get("say") == "can resize":
            self._able.add(number)
            most = said.get("may_lose")
            self._may_lose = most if isinstance(most, int) and most > 0 else 0
        elif said.get("say") == "ready":  # it says more at the end of its first step
            self._able.add(number)
        elif said.get("say") == "saving":
            self._saving_since = time.monotonic()
        elif said.get("say") in ("saved", "not saved"):
            self._saving_since = None
        if self.active is not None:
            self.active.heard(number, said)

    def is_saving(self, now: float) -> bool:
        """Whether it writes a checkpoint now, as far as is known."""
        return self._saving_since is not None and now < self._saving_since + LONGEST_SAVE_S

    # -- orders ----------------------------------------------------------------------------------

    def assignment(self, run: RunFile, target: RunFile) -> RankAssignment | None:
        """Who has which rank of `target`; None where it has to be restarted."""
        numbers = [rank.number for rank in self._gang.ranks]
        if not self._able.issuperset(numbers) or run.container_engine or target.prerun_ms:
            return None
        if any(rank.code is not None for rank in self._gang.ranks):
            return None
        if len(run.slots) != len(numbers) or len(target.slots) != len(target.ranks):
            return None  # a file of an earlier version
        if run.sharing != target.sharing:
            return None
        found = assigned_ranks(numbers, run.slots, target.slots)
        return found if found.staying else None

    def begin(
        self, run: RunFile, target: RunFile, found: RankAssignment, order_ms: int, folder: str
    ) -> None:
        # Not that of a try that was called off when a rank was lost.
        number = target.generation * PER_GENERATION + self._lost
        self._begin(target, found, number, run.grace_ms, order_ms, folder)
        self.lost_rank = None

    def _begin(
        self,
        target: RunFile,
        found: RankAssignment,
        number: int,
        grace_ms: int,
        order_ms: int,
        folder: str,
    ) -> None:
        self.active = InPlaceResize(
            target, self._gang, found, number, self._ask, grace_ms / 1000, order_ms
        )
        self.active.begin(folder)

    # -- losses ----------------------------------------------------------------------------------

    def can_lose(self, run: RunFile, rank: RankProcess) -> bool:
        """Whether the others go on without this rank."""
        others = {each.number for each in self._gang.ranks if each is not rank}
        is_whole = all(
            (run.env | each.env).get("WORLD_SIZE") == str(len(run.ranks)) for each in run.ranks
        )  # else others of the gang are on other machines
        return (
            bool(others)
            and self._able >= others
            and self._lost < self._may_lose
            and is_whole
            and len(run.ranks) == len(self._gang.ranks) == len(run.slots)
        )

    def lose(self, run: RunFile, rank: RankProcess, folder: str) -> None:
        """Have the others form a group without it."""
        self._lost += 1
        place = self._gang.ranks.index(rank)
        self._gang.ranks.remove(rank)
        self._gang.leaving.append(rank)
        target = without_rank(run, place, free_port())
        found = RankAssignment(
            {each.number: at for at, each in enumerate(self._gang.ranks)}, (), ()
        )
        number = run.generation * PER_GENERATION + self._lost
        self._begin(target, found, number, run.grace_ms, 0, folder)
        self.lost_rank = rank


def without_rank(run: RunFile, place: int, port: int) -> RunFile:
    """The same run without one of its ranks; the others meet at another port."""
    ranks = [rank for at, rank in enumerate(run.ranks) if at != place]
    renumbered = (_placed(rank, at, len(ranks)) for at, rank in enumerate(ranks))
    return replace(
        run,
        env=run.env | {"MASTER_PORT": str(port)},
        ranks=tuple(renumbered),
        slots=tuple(slot for at, slot in enumerate(run.slots) if at != place),
    )


def _placed(rank: RankSpec, number: int, world: int) -> RankSpec:
    said = {"RANK": str(number), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
    if "LOCAL_RANK" in rank.env:
        said["LOCAL_RANK"] = str(number)
    return replace(rank, env=rank.env | said)


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
