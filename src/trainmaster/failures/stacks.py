"""What the stacks of a hung run's processes say, in one sentence for each rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3")
"""Parts of the paths of files that are not the user's own."""
WRAPPERS = frozenset({"wrapper", "inner", "wrapped", "decorate_context"})
"""Functions that only call another."""
LAUNCHERS = ("torch/distributed/run.py", "torch/distributed/launcher/", "accelerate/commands/")
WORKER_LOOP = "_worker_loop"
"""What the processes that load data for others are in."""
MOST_NAMES = 3
MOST_RANKS = 16
MOST_CHARS = 200
STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Frame:
    """One call: a function, and the line that it is at."""

    function: str
    file: str
    line: int

    @property
    def name(self) -> str:
        """Without the class or function that it is defined in."""
        return self.function.rpartition(".")[2]

    @property
    def place(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.line}"

    @property
    def is_users(self) -> bool:
        return not self.file.startswith("<") and not any(each in self.file for each in LIBRARIES)


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread of a Python program, the innermost call first."""

    name: str
    is_main: bool
    is_active: bool
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class ProcessStack:
    """One process of a run."""

    pid: int
    command: str
    rank: int | None = None
    state: str = ""
    """`sleeping`, `running`, `disk sleep`, `stopped`."""
    wchan: str = ""
    """The kernel's function that it waits in, where that may be read, ..."""
    kernel: tuple[str, ...] = ()
    """... and its stack there, which only root may read: for one without Python stacks."""
    threads: tuple[Thread, ...] = ()
    """Empty: no Python program, or its stacks could not be taken."""

    @property
    def trains(self) -> bool:
        """Whether it has Python frames, and neither launches others nor loads data for them."""
        frames = [frame for thread in self.threads for frame in thread.frames]
        is_other = any(
            frame.name == WORKER_LOOP or any(each in frame.file for each in LAUNCHERS)
            for frame in frames
        )
        return bool(frames) and not is_other

    @property
    def program(self) -> str:
        """The name of what it runs, without its folder and arguments."""
        return self.command.split(" ")[0].rpartition("/")[2]


def rank_sentences(processes: Iterable[ProcessStack]) -> tuple[str, ...]:
    """Where each rank is: `Rank 0 waits in all_reduce (train.py:41).`"""
    by_rank: dict[int | None, list[ProcessStack]] = {}
    for process in processes:
        by_rank.setdefault(process.rank, []).append(process)
    ranks = sorted(by_rank, key=lambda rank: (rank is None, rank or 0))
    said = [_printable(_sentence(rank, by_rank[rank])) for rank in ranks[:MOST_RANKS]]
    more = len(ranks) - MOST_RANKS
    return (*said, f"{more} more ranks are in the file.") if more > 0 else tuple(said)


def _printable(text: str) -> str:
    """Programs choose the names of their functions and files."""
    shown = "".join(each if each.isprintable() else "?" for each in text)
    return shown if len(shown) <= MOST_CHARS else f"{shown[: MOST_CHARS - 4]}...."


def _sentence(rank: int | None, processes: Sequence[ProcessStack]) -> str:
    who = "A process without a rank" if rank is None else f"Rank {rank}"
    training = next((each for each in processes if each.trains), None)
    if training is not None:
        return f"{who} {_place_words(training)}."
    names = ", ".join(dict.fromkeys(each.program for each in processes[:MOST_NAMES]))
    first = processes[-1]
    where = f" in {first.wchan}" if first.wchan else ""
    return f"{who} ({names}) shows no Python stack: process {first.pid} is {first.state}{where}."


def _place_words(process: ProcessStack) -> str:
    """What its training thread does: the one that waits in a library, else its main thread."""
    threads = sorted(process.threads, key=lambda thread: not thread.is_main)
    thread = next((each for each in threads if _call(each) is not None), threads[0])
    called, user = _call(thread), _users(thread)
    verb = "is" if thread.is_active else "waits"
    verb = "is stopped" if process.state == STOPPED else verb
    if user is None:
        frame = thread.frames[0]
        return f"{verb} in {frame.name} ({frame.place})"
    return f"{verb} in {(called or user).name} ({user.place})"


def _users(thread: Thread) -> Frame | None:
    """The innermost line of the user's own."""
    return next((frame for frame in thread.frames if frame.is_users), None)


def _call(thread: Thread) -> Frame | None:
    """What the user's own line has called, as far in as it has a public name; None: nothing."""
    user = _users(thread)
    if user is None:
        return None
    inside = thread.frames[: thread.frames.index(user)]
    is_public = (each for each in inside if not each.name.startswith(("_", "<")))
    return next((each for each in is_public if each.name not in WRAPPERS), None)
