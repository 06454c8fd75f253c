"""A resize of a run that goes on training: ranks that stay keep their processes.

New ranks are started beside the others and import and build while those train. Once all are ready, the
others are asked; at the end of a step they form a new group (trainmaster_sdk/elastic.py), and ranks that are
not needed leave. Whatever goes wrong before all are in the new group ends in a restart from a checkpoint.
Only the standard library is imported here: supervisors load it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from trainmaster.engines.local.rank_processes import Gang, RankProcess, free_numbers, joining
from trainmaster.engines.local.runfile import RunFile
from trainmaster_sdk.wire import Message

WARM_UP_S = 600.0
"""How long new ranks may take until they are ready; the others train meanwhile."""
PER_GENERATION = 1000
"""Numbers of requests for each generation: one for its resize, others for each rank that is lost later."""


class Step(Enum):
    """What is being waited for."""

    WARM_UP = "warm up"
    """New ranks are not ready yet."""
    READY = "ready"
    """They are, and those on other machines may not be: nobody is asked yet."""
    BOUNDARY = "boundary"
    """The ranks were asked, and have not all formed the new group."""
    LEAVING = "leaving"
    """Ranks that are not needed have not ended yet."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class RankAssignment:
    """Who has which rank after a resize: processes that stay by their number, and the others' places."""

    staying: dict[int, int]
    """New rank by the number of the process."""
    leaving: tuple[int, ...]
    """Numbers of processes."""
    empty: tuple[int, ...]
    """Ranks for which processes have to be started."""


def assigned_ranks(
    numbers: Sequence[int], slots: Sequence[str], target: Sequence[str]
) -> RankAssignment:
    """Each process keeps its slot, where that is still among those of the run.

    `numbers` and `slots` are of the processes that run, in the order of their ranks; `target` are the slots
    of the ranks to be.
    """
    left = [*zip(numbers, slots, strict=True)]
    staying: dict[int, int] = {}
    empty: list[int] = []
    for rank, slot in enumerate(target):
        found = next((each for each in left if each[1] == slot), None)
        if found is None:
            empty.append(rank)
            continue
        left.remove(found)
        staying[found[0]] = rank
    return RankAssignment(staying, tuple(number for number, _ in left), tuple(empty))


class InPlaceResize:
    """One resize, from its order to the last rank that leaves.

    `ask` sends a line to the process of a number. `grace_s` is how long ranks may take to form the new group
    once they are asked, not counting the time in which they write a checkpoint.
    """

    def __init__(
        self,
        target: RunFile,
        gang: Gang,
        wanted: RankAssignment,
        number: int,
        ask: Callable[[int, Message], None],
        grace_s: float,
        order_ms: int,
        *,
        is_whole: bool = True,
    ) -> None:
        """`is_whole`: no rank of it is on another machine, so that it need not be told when to ask."""
        self.target = target
        self.number = number
        self.is_whole = is_whole
        self.is_arrival = False
        """Whether all ranks here are new."""
        self.is_late = False
        """Whether ranks have not regrouped in time; on another machine one may be writing a checkpoint."""
        self.is_late_told = False
        self.is_ready_told = False
        """Whether the gang knows that its new ranks are ready."""
        self.step = Step.WARM_UP
        self.failure = ""
        """Why it cannot be done in place."""
        self._gang = gang
        self._wanted = wanted
        self._ask = ask
        self._grace_s = grace_s
        self._ready: set[int] = set()
        self._resized: dict[int, Message] = {}
        self._removed: set[int] = set()
        self._new: dict[int, int] = {}
        """Ranks of the processes that were started for it."""
        now = time.monotonic()
        self._began, self._asked, self._joined = now, now, now
        self._until = now + WARM_UP_S
        self.phases: dict[str, int] = {"order_ms": order_ms}
        """How long its parts took."""

    # -- orders ----------------------------------------------------------------------------------

    def begin(self, folder: str) -> None:
        """Start the new ranks; ask at once where there are none."""
        taken = {rank.number for rank in (*self._gang.ranks, *self._gang.leaving)}
        count = len(self._wanted.empty)
        given = [number for number in self.target.numbers if number not in taken]
        numbers = given if self.target.in_place else free_numbers(taken, count, self._gang.first)
        if len(numbers) < count:
            self.failure = f"it was given {len(numbers)} numbers for {count} new ranks"
            return
        self._new = dict(zip(numbers, self._wanted.empty, strict=False))
        wanted = [
            (number, place, joining(self.number, number)) for number, place in self._new.items()
        ]
        problem = self._gang.start_joining(self.target, folder, wanted) if wanted else None
        if problem is not None:
            self.failure = problem.why
        self.tick(time.monotonic())

    def begin_started(self) -> None:
        """All ranks here have just been started, to join others on other machines."""
        self.is_arrival = True
        self._new = {rank.number: place for place, rank in enumerate(self._gang.ranks)}

    def go(self) -> None:
        """All ranks are ready, on all machines: ask those that train."""
        if self.step is Step.READY:
            self._ask_all(time.monotonic())

    def call_off(self) -> None:
        """It does not come about: new ranks end, the others are told."""
        for rank in [*self._gang.ranks]:
            self._ask(rank.number, {"ask": "call off", "n": self.number})
        self._gang.kill_ranks(self._gang.joining)
        self._gang.leaving += self._gang.joining
        self._gang.joining = []

    @property
    def is_joined(self) -> bool:
        """Whether the new group has been formed: from then on new ranks are ranks like others."""
        return bool(self._resized)

    @property
    def why_late(self) -> str:
        return f"ranks did not regroup within {self._grace_s:g} s"

    @property
    def due_at(self) -> float:
        return self._until

    # -- what is heard ---------------------------------------------------------------------------

    def heard(self, number: int, said: Message) -> None:
        """A line of a process."""
        word = said.get("say")
        if word in ("saved", "not saved"):
            self._until = max(self._until, time.monotonic() + self._grace_s)
        elif word == "hello" and self.step is Step.BOUNDARY:  # it may have missed the line
            self._ask_one(number)
        elif word == "ready" and number in self._new:
            self._ready.add(number)
        elif said.get("n") != self.number:
            return
        elif word == "resized":
            self._resized[number] = said
        elif word == "first step":
            self.phases["first_step_ms"] = _count(said, "ms")
        elif word == "removed":
            self._removed.add(number)
            self._gang.leaving += [each for each in self._gang.ranks if each.number == number]
            self._gang.ranks = [each for each in self._gang.ranks if each.number != number]
        elif word == "not resized" and not self.failure:
            self.failure = str(said.get("why", ""))

    def ended(self, rank: RankProcess) -> None:
        """A process that was to join has ended."""
        if rank in self._gang.joining and self.step is not Step.DONE and not self.failure:
            how = f"by {rank.signal}" if rank.signal else f"with {rank.code}"
            self.failure = f"a new rank ended {how} before it had joined"

    def tick(self, now: float, *, is_saving: bool = False) -> None:
        """Go on as far as it is possible now; ranks that write a checkpoint may take longer."""
        if self.failure:
            return
        if self.step is Step.WARM_UP and self._ready >= self._new.keys():
            self.step = Step.READY
            if self.is_whole:
                self._ask_all(now)
        if self.step in (Step.READY, Step.BOUNDARY) and self._has_formed:
            self._note_times(now)
            self.step, self._until = Step.LEAVING, now + self._grace_s
        if self.step is Step.LEAVING:
            self._end_leaving(now)
        elif self.step is not Step.READY and now >= self._until and not is_saving:
            waited = (
                "new ranks were not ready" if self.step is Step.WARM_UP else "ranks did not regroup"
            )
            limit = WARM_UP_S if self.step is Step.WARM_UP else self._grace_s
            self.is_late = self.step is Step.BOUNDARY and not self.is_whole
            self.failure = "" if self.is_late else f"{waited} within {limit:g} s"
            self._until = now + self._grace_s

    def members(self) -> list[RankProcess]:
        """The ranks after it, in their order."""
        by_rank = self._wanted.staying | self._new
        running = [*self._gang.ranks, *self._gang.joining]
        return sorted(running, key=lambda rank: by_rank.get(rank.number, len(by_rank)))

    # -- steps -----------------------------------------------------------------------------------

    @property
    def _has_formed(self) -> bool:
        return self._resized.keys() >= self._wanted.staying.keys() | self._new.keys() and (
            self._removed.issuperset(self._wanted.leaving)
        )

    def _ask_all(self, now: float) -> None:
        self.phases["warm_up_ms"] = _ms(now - self._began)
        self.step, self._asked, self._until = Step.BOUNDARY, now, now + self._grace_s
        for number in (*self._wanted.staying, *self._wanted.leaving):
            self._ask_one(number)

    def _ask_one(self, number: int) -> None:
        request: Message = {"ask": "resize", "n": self.number, "rank": None}
        place = self._wanted.staying.get(number)
        if number in self._new:
            return
        if place is not None:
            env = self.target.env | self.target.ranks[place].env
            request |= {
                "rank": int(env["RANK"]),
                "world": int(env["WORLD_SIZE"]),
                "local_rank": int(env.get("LOCAL_RANK", "0")),
                "local_world": int(env["LOCAL_WORLD_SIZE"]),
                "host": env["MASTER_ADDR"],
                "port": int(env["MASTER_PORT"]),
            }
        self._ask(number, request)

    def _note_times(self, now: float) -> None:
        """What the slowest rank took; the rest of the time they were on their way to the end of a step."""
        regroup = max((_count(said, "regroup_ms") for said in self._resized.values()), default=0)
        broadcast = max(
            (_count(said, "broadcast_ms") for said in self._resized.values()), default=0
        )
        self.phases |= {"regroup_ms": regroup, "broadcast_ms": broadcast}
        if self.step is Step.BOUNDARY:  # ranks that have only come have waited for the others
            waited = max(0, _ms(now - self._asked) - regroup - broadcast)
            self.phases["boundary_ms"] = waited
        self._joined = now

    def _end_leaving(self, now: float) -> None:
        """Their devices are free once nothing of them runs."""
        gone = [rank for rank in self._gang.leaving if rank.code is not None]
        if now >= self._until:
            self._gang.kill_ranks(self._gang.leaving)
        elif gone:
            self._gang.kill_ranks(gone)  # what they have started, such as loaders of data
        if len(gone) == len(self._gang.leaving) and not self._gang.in_groups(
            rank.pid for rank in gone
        ):
            self.step = Step.DONE
            if self._wanted.leaving:
                self.phases["leave_ms"] = _ms(now - self._joined)


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))


def _count(said: Message, name: str) -> int:
    value = said.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
