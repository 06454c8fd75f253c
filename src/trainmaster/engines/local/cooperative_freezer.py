"""Freezes a run whose program gives back its GPU memory itself, at the end of a step, through the SDK.

All ranks are asked; each answers when it has released its memory, and waits. What is left on the GPUs is what
the driver counts there, and what the ranks say where it does not list them. Only the standard library is
imported here: supervisors load it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from trainmaster.engines.local.freezer import Freezer, Result
from trainmaster.engines.local.memory_meter import Meter
from trainmaster.engines.local.process_freezer import Members
from trainmaster.gpu.freeze_conditions import Refusal
from trainmaster.gpu.freeze_end import FROZEN, RUNNING, STUCK
from trainmaster_sdk.wire import Message

RELEASE_S = 30.0
"""How long a rank may take to end its step and release its memory."""
LEAST_S = 120.0
BYTES_PER_S = 1_000_000_000
"""How long it may take to come back: programs themselves wait a minute for a GPU that is still full."""


@dataclass(slots=True)
class Declared:
    """What processes of a run have said of themselves, by their numbers: it outlasts a resize."""

    able: set[int] = field(default_factory=set)
    """They can give back GPU memory."""
    settled: set[int] = field(default_factory=set)
    """They have come to the end of a step, where they would have said that they can."""

    def keep(self, numbers: Iterable[int]) -> None:
        """Forget the others: they have left."""
        kept = set(numbers)
        self.able &= kept
        self.settled &= kept


class CooperativeFreezer:
    """Asks all ranks by `tell`; `ranks` are those that are connected, `rank_count` how many processes run.

    `are_steps_counted` says whether there are processes that train without the SDK. `members` are all
    processes of the run, `rank_pids` those that were started as its ranks.
    """

    name = "cooperative"
    why = "Its program gives back GPU memory by itself."

    def __init__(
        self,
        tell: Callable[[Message], None],
        ranks: Callable[[], set[int]],
        rank_count: Callable[[], int],
        are_steps_counted: Callable[[], bool],
        is_mps_client: bool,
        mover: Freezer,
        members: Members,
        rank_pids: Members,
        meter: Meter,
        declared: Declared,
    ) -> None:
        self._tell = tell
        self._ranks = ranks
        self._rank_count = rank_count
        self._are_steps_counted = are_steps_counted
        self._is_mps_client = is_mps_client
        self._mover = mover
        """Takes what is left to another GPU: the CUDA context."""
        self._members = members
        self._rank_pids = rank_pids
        self._meter = meter
        self._is_measuring = False
        self._declared = declared
        self._number = 0
        """Of the last request."""
        self._asked = ""
        """What is being waited for: release, take back or nothing."""
        self._last_asked = ""
        """What the ranks were asked for last, whether they have answered or not."""
        self._until = 0.0
        self._released: dict[int, Message] = {}
        self._back: set[int] = set()
        self._why = ""
        """Why a release was called off."""
        self._broken = ""
        """Why it cannot go on."""
        self._is_restoring = False
        self._moves: Mapping[str, str] = {}
        self._is_taken_out = False

    @property
    def due_at(self) -> float | None:
        if self._moves:
            return self._mover.due_at
        if self._asked == "release" and self._is_measuring:
            return self._meter.due_at
        return self._until if self._asked else None

    def refusal(self) -> Refusal | None:
        connected = self._ranks()
        if self._is_mps_client:
            return Refusal("Clients of MPS are not suspended in memory.", True)
        is_complete = len(connected) >= self._rank_count()
        able, settled = self._declared.able, self._declared.settled
        if not able or not is_complete or connected - able:
            is_known = is_complete or self._are_steps_counted()  # else some have not come so far
            is_final = is_known and connected <= settled
            return Refusal("Its program does not give back GPU memory by itself.", is_final)
        return None

    def release(self) -> None:
        self._number += 1
        self._released, self._back = {}, set()
        self._why, self._is_restoring, self._is_measuring = "", False, False
        self._meter.start()
        self._ask("release", RELEASE_S)

    def turn_back(self) -> None:
        if self._asked == "release":
            self._call_off("It was not to be suspended any more.")

    def restore(self, moves: Mapping[str, str]) -> None:
        self._is_restoring = True
        refused = self._mover.refusal() if moves else None
        if refused is not None:  # on its old GPUs it must not go on either: others have them
            self._broken = f"It cannot go on on other GPUs. {refused.why}"
            self._asked = "take back"
        elif moves:
            self._moves, self._is_taken_out = moves, False
            self._mover.release()
        elif not self._back.issuperset(self._released):
            size = sum(_count(said, "bytes") for said in self._released.values())
            self._ask("take back", LEAST_S + size / BYTES_PER_S)
        else:
            self._asked = "take back"

    def result(self, now: float) -> Result | None:
        if self._moves:
            return self._moved(now)
        waited_for = self._ranks()
        if self._asked == "release":
            if waited_for and waited_for <= self._released.keys():
                return self._measured(now)
            if now >= self._until:
                silent = len(waited_for - self._released.keys())
                self._call_off(
                    f"{silent} of its {len(waited_for)} processes did not give back GPU memory within "
                    f"{RELEASE_S:.0f} s."
                )
        if self._asked == "take back":
            if self._broken:
                self._asked = ""
                return Result(STUCK, self._broken, True)
            if waited_for & self._released.keys() <= self._back:
                self._asked = ""
                return Result(RUNNING, "" if self._is_restoring else self._why)
            if now >= self._until:
                self._asked = ""
                return Result(STUCK, "Its program did not take its GPU memory again.", True)
        return None

    def heard(self, rank: int, said: Message) -> None:
        word, number = said.get("say"), said.get("n")
        if word == "can release":
            self._declared.able.add(rank)
        elif word == "heeds stops":
            self._declared.settled.add(rank)
        elif word == "hello" and self._number > 0:  # connected again: it may have missed a line
            self._tell({"ask": self._last_asked, "n": self._number})
        elif word == "released" and number == self._number:
            self._released[rank] = said
        elif word == "taken back" and number == self._number:
            self._back.add(rank)
        elif word == "not released" and number == self._number and self._asked == "release":
            self._call_off(f"Its program could not give back GPU memory ({said.get('why')}).")
        elif word == "not taken back" and number == self._number:
            self._broken = f"Its program could not take its GPU memory again ({said.get('why')})."

    def close(self) -> None:
        self._asked, self._moves = "", {}
        self._meter.close()

    def _ask(self, what: str, within_s: float) -> None:
        self._asked = self._last_asked = what
        self._until = time.monotonic() + within_s
        self._tell({"ask": what, "n": self._number})

    def _call_off(self, why: str) -> None:
        self._why = why
        self._ask("take back", LEAST_S)

    def _measured(self, now: float) -> Result | None:
        """All have released: what the driver still counts there, where it lists at least as many."""
        if not self._is_measuring:
            self._is_measuring = True
            self._meter.ask([*self._members()])
        held = self._meter.held(now)
        if held is None:
            return None
        self._asked = ""
        left = sum(held.values()) if len(held) >= len(self._released) else self._sum("left")
        is_all_on_gpus = held.keys() >= set(self._rank_pids())
        return Result(
            FROZEN,
            host_bytes=self._sum("host_bytes"),
            gpu_bytes=left,
            is_all_on_gpus=is_all_on_gpus,
        )

    def _moved(self, now: float) -> Result | None:
        """The rest of it is taken to the other GPU by the driver; then the program fills it again."""
        result = self._mover.result(now)
        if result is None:
            return None
        if result.end == FROZEN and not self._is_taken_out:
            self._is_taken_out = True
            self._mover.restore(self._moves)
            return self._moved(now)
        self._moves = {}
        if result.end == RUNNING and self._is_taken_out:
            self.restore({})
            return None
        return Result(STUCK, result.why, True)

    def _sum(self, name: str) -> int:
        return sum(_count(said, name) for said in self._released.values())


def _count(said: Message, name: str) -> int:
    value = said.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
