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

LOOPBACK = "127.0.0.1"
PER_GANG = 1_000_000
"""Numbers of requests between two resizes of a gang on several machines: for those of one part alone."""
LONGEST_SAVE_S = 1800.0
"""How long a checkpoint is waited for of which no end is told."""


class RunResizing:
    """Of one generation of a run."""

    def __init__(self, gang: Gang, ask: Callable[[int, Message], None]) -> None:
        self._gang = gang
        self._ask = ask
        self._able: set[int] = set()
        """Processes that have said that they can be resized."""
        self.may_lose = 0
        self._lost = 0
        self._last = 0
        """The number of the last request."""
        self._saving_since: float | None = None
        """When it began to write the checkpoint that it writes now."""
        self.active: InPlaceResize | None = None
        self.lost_rank: RankProcess | None = None
        """The rank that `active` is for; None: a policy has ordered it."""
        self.queued: Message | None = None
        """An order that came meanwhile: the newest."""
        self.without_lost: RunFile | None = None
        """Of a gang on several machines that has lost a rank here: what is left, until all regroup."""

    def heard(self, number: int, said: Message) -> None:
        """A line of the process of that number."""
        if said.get("say") == "can resize":
            self._able.add(number)
            most = said.get("may_lose")
            self.may_lose = most if isinstance(most, int) and most > 0 else 0
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

    def can_resize(self, run: RunFile) -> bool:
        """Whether all of its ranks have said that they can, and nothing else is in the way."""
        numbers = [rank.number for rank in self._gang.ranks]
        is_able = bool(numbers) and self._able.issuperset(numbers)
        return (
            is_able
            and not (run.container_engine or run.prerun_ms)
            and len(run.slots) == len(run.ranks) == len(numbers)
        )

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
        return found if found.staying or target.in_place else None

    def begin(
        self, run: RunFile, target: RunFile, found: RankAssignment, order_ms: int, folder: str
    ) -> None:
        number = self._next_number(target)
        is_whole = not target.in_place
        self._begin(target, found, number, run.grace_ms, order_ms, folder, is_whole=is_whole)
        self.lost_rank = None

    def is_old(self, target: RunFile) -> bool:
        """Whether that resize of a gang was begun here before."""
        return target.in_place and target.gang_generation * PER_GANG <= self._last

    def join(self, run: RunFile, number: int) -> None:
        """All ranks here were started to join those on other machines."""
        self._last = number
        none = RankAssignment({}, (), ())
        self.active = InPlaceResize(
            run, self._gang, none, number, self._ask, run.grace_ms / 1000, 0, is_whole=False
        )
        self.active.begin_started()

    def regroup(self, run: RunFile, said: Message, folder: str) -> None:
        """All parts of the gang are ready, or go on without ranks that were lost: ask the ranks here."""
        number, active = said["number"] * PER_GANG, self.active
        if active is not None and active.number == number:
            active.go()
        if number <= self._last:
            return
        if active is not None:
            active.call_off()
        left, first = self.without_lost or run, said["first"]
        ranks = tuple(
            _placed(rank, first + at, said["world"], at, len(left.ranks))
            for at, rank in enumerate(left.ranks)
        )
        meeting = {"MASTER_ADDR": said["host"], "MASTER_PORT": str(said["port"])}
        if len(ranks) == said["world"]:  # nobody is left on other machines
            meeting = {"MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(free_port())}
        target = replace(left, env=left.env | meeting, ranks=ranks, first_rank=first)
        self.without_lost, self._last = None, number
        staying = {rank.number: at for at, rank in enumerate(self._gang.ranks)}
        self._begin(
            target, RankAssignment(staying, (), ()), number, run.grace_ms, 0, folder, is_whole=False
        )
        assert self.active is not None
        self.active.go()

    def leave(self, run: RunFile, said: Message, folder: str) -> None:
        """The gang goes on without this machine: all ranks here leave."""
        number = said["number"] * PER_GANG
        if number <= self._last:
            return
        self._last = number
        leaving = tuple(rank.number for rank in self._gang.ranks)
        found = RankAssignment({}, leaving, ())
        self._begin(run, found, number, run.grace_ms, 0, folder, is_whole=False)
        assert self.active is not None
        self.active.go()

    def _next_number(self, target: RunFile) -> int:
        """Greater than those before, also of a try that was called off when a rank was lost."""
        number = target.gang_generation * PER_GANG
        if not target.in_place:
            number = max(target.generation * PER_GENERATION + self._lost, self._last + 1)
        self._last = number
        return number

    def _begin(
        self,
        target: RunFile,
        found: RankAssignment,
        number: int,
        grace_ms: int,
        order_ms: int,
        folder: str,
        *,
        is_whole: bool = True,
    ) -> None:
        self.active = InPlaceResize(
            *(target, self._gang, found, number, self._ask, grace_ms / 1000, order_ms),
            is_whole=is_whole,
        )
        self.active.begin(folder)

    # -- losses ----------------------------------------------------------------------------------

    def can_lose(self, run: RunFile, rank: RankProcess) -> bool:
        """Whether the others here go on without this rank; those on other machines may have lost some too."""
        others = {each.number for each in self._gang.ranks if each is not rank}
        return (
            bool(others)
            and self._able >= others
            and self._lost < self.may_lose
            and len(run.ranks) == len(self._gang.ranks) == len(run.slots)
        )

    def lose(self, run: RunFile, rank: RankProcess, folder: str) -> None:
        """Have the others form a group without it; on several machines as soon as all are told."""
        self._lost += 1
        place = self._gang.ranks.index(rank)
        self._gang.ranks.remove(rank)
        self._gang.leaving.append(rank)
        target = without_rank(run, place, free_port())
        if not is_whole(run):
            self.lost_rank, self.without_lost, self.active = rank, target, None
            return
        found = RankAssignment(
            {each.number: at for at, each in enumerate(self._gang.ranks)}, (), ()
        )
        number = max(run.generation * PER_GENERATION + self._lost, self._last + 1)
        self._last = number
        self._begin(target, found, number, run.grace_ms, 0, folder)
        self.lost_rank = rank


def is_whole(run: RunFile) -> bool:
    """Whether no rank of its gang is on another machine."""
    return all((run.env | each.env).get("WORLD_SIZE") == str(len(run.ranks)) for each in run.ranks)


def without_rank(run: RunFile, place: int, port: int) -> RunFile:
    """The same run without one of its ranks; the others meet at another port."""
    ranks = [rank for at, rank in enumerate(run.ranks) if at != place]
    count = len(ranks)
    renumbered = (_placed(rank, at, count, at, count) for at, rank in enumerate(ranks))
    return replace(
        run,
        env=run.env | {"MASTER_PORT": str(port)},
        ranks=tuple(renumbered),
        slots=tuple(slot for at, slot in enumerate(run.slots) if at != place),
    )


def _placed(rank: RankSpec, number: int, world: int, local: int, local_world: int) -> RankSpec:
    said = {"RANK": str(number), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(local_world)}
    if "LOCAL_RANK" in rank.env:
        said["LOCAL_RANK"] = str(local)
    return replace(rank, env=rank.env | said)


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
