"""How a run ended, from what its ranks returned and what it had been told."""

from __future__ import annotations

import signal
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from trainmaster.engines.local.rank_processes import NotStarted, RankProcess
from trainmaster.text.formatting import size
from trainmaster_sdk.wire import Message

HUNG = 124
"""Exit code of a run that was ended because it hung and left with 0: as `timeout` has it."""


class StopCause(Enum):
    """Why a run is being stopped, with the word that programs are sent; later ones win."""

    PRERUN = ("suspend", -1, "prerun")
    """It is a pre-run, and has shown enough."""
    RESIZE = ("resize", 0, "nothing")
    HALT = ("suspend", 1, "halt")
    HANG = ("suspend", 2, "nothing")
    """It hangs and is to be started again."""
    KILL = ("cancel", 3, "kill")
    FAILURE = ("", 4, "nothing")
    """One rank has failed, so the others cannot go on."""

    def __init__(self, asks: str, weight: int, asked: str) -> None:
        self.asks = asks
        self.weight = weight
        self.asked = asked

    def yields_to(self, other: StopCause) -> bool:
        return self.weight < other.weight


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """What the journal's last entry says."""

    code: int
    asked: str
    rank: int | None
    has_left: bool
    was_killed: bool
    why: str
    tail: str
    hung: bool = False
    signal: str = ""
    """That ended the deciding rank; empty where it exited."""

    @property
    def is_success(self) -> bool:
        """It ended by itself with all its work done."""
        return self.code == 0 and self.asked == "nothing" and not self.has_left

    def said(self) -> Message:
        return {name: getattr(self, name) for name in self.__slots__}


def withdrawal(said: Message) -> Message:
    """What a journal says of a kill: whether the run was ended for good, and why."""
    return {"cancelled": said.get("cancels") is True, "end": said.get("end")}


def start_failure(why: str, code: int = 126, rank: int | None = None) -> ExitStatus:
    """The exit status of a run that could not be started."""
    return ExitStatus(code, "nothing", rank, False, False, why, "")


def exit_status_of(
    ranks: Sequence[RankProcess],
    first: RankProcess | None,
    not_started: NotStarted | None,
    cause: StopCause | None,
    was_killed: bool,
    has_left: bool,
    has_saved: bool,
    done: Collection[int],
    limit: int | None,
    oom_ranks: Collection[int],
    machine_oom: bool,
    hang: str = "",
) -> ExitStatus:
    """Success only if all ranks returned 0, and it was not told to leave before it was done.

    A run whose ranks had reported that they were done before our signal ended them has succeeded
    as well; what one rank says does not hold for another that never came so far. A program that reported
    that it has saved and leaves has done so, whatever its launcher returns: torchrun returns 1 after SIGTERM.
    Exit code 0 alone says nothing of saving: many programs end like that on any SIGTERM.
    """
    if not_started is not None:
        return start_failure(not_started.why, not_started.code, not_started.rank)
    deciding = first or next((rank for rank in ranks if rank.code), None)
    code = 0 if deciding is None else deciding.code or 0
    was_late = cause in (StopCause.HALT, StopCause.RESIZE, StopCause.HANG) and all(
        rank.code == 0 or (rank.code == 128 + signal.SIGTERM and rank.number in done)
        for rank in ranks
    )
    is_success = (bool(code) and was_late) or (
        code == 0 and not was_killed and (cause in (None, StopCause.FAILURE) or bool(done))
    )
    if is_success and cause is not StopCause.KILL:
        return ExitStatus(0, "nothing", None, False, False, "", ranks[0].log.tail())
    why, is_hung = "", cause is StopCause.HANG
    if is_hung:
        why, code = f"It hung and was ended. {hang}", code or HUNG
    elif deciding is not None and cause in (None, StopCause.FAILURE):
        why = _why(deciding, limit, oom_ranks, machine_oom)
    was_asked = cause in (StopCause.HALT, StopCause.RESIZE)
    return ExitStatus(
        code=0 if was_asked and has_left else code,
        asked="nothing" if cause is None else cause.asked,
        rank=deciding.number
        if deciding is not None and cause in (None, StopCause.FAILURE)
        else None,
        has_left=cause is StopCause.RESIZE
        or (was_asked and (has_left or (has_saved and code == 0 and not was_killed))),
        was_killed=was_killed,
        why=why,
        tail=(deciding or ranks[0]).log.tail(),
        hung=is_hung,
        signal="" if deciding is None else deciding.signal,
    )


def _why(
    rank: RankProcess, limit: int | None, oom_ranks: Collection[int], machine_oom: bool
) -> str:
    """One sentence for an end that the exit code alone does not explain."""
    if rank.number in oom_ranks and limit is not None:
        who = f"Rank {rank.number}"
        return f"{who} used more host memory than the {size(limit)} that it may; raise `memory`."
    was_killed = rank.signal == "SIGKILL" or (
        rank.code == 128 + signal.SIGKILL and "Killed" in rank.log.tail()  # as shells say it
    )
    if was_killed and machine_oom:
        return (
            f"Rank {rank.number} was killed, probably by the kernel: the machine ran out of memory."
        )
    if not rank.signal:  # it exited, though shells say 128 + n of a child that signal n ended
        return ""
    return f"Rank {rank.number} was ended by {rank.signal}, which Trainmaster did not send."
