"""Work spread over processes: one piece each at a time, and none lost when a process dies.

`multiprocessing.Pool` waits for ever for a piece whose process was killed, and the executors of
`concurrent.futures` cannot be stopped before running pieces have ended: hence these few lines.
"""

from __future__ import annotations

import gc
import signal
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from threading import current_thread, main_thread
from typing import Generic, TypeVar

P = TypeVar("P")
R = TypeVar("R")

SPAWN = get_context("spawn")
"""Fresh interpreters: what they find cannot depend on what this one has imported or drawn."""
PATIENCE_S = 10.0
"""For a process that was told to end."""
SWEEPING = 0.05
"""Part of a process's time that freeing memory may take."""


@dataclass(frozen=True, slots=True)
class Done(Generic[R]):
    """What became of the piece at that place of the list: a result, or the reason why there is none."""

    place: int
    result: R | None
    error: str | None
    trace: str = ""
    """Where the error came from, for those who look for it."""


def spread(
    work: Callable[[P], R], pieces: Sequence[P], processes: int
) -> Generator[Done[R], None, None]:
    """Results as they come; closing the iterator ends the processes at once."""
    crew: list[_Hand[P, R]] = []
    left = iter(range(len(pieces)))
    try:
        for place in islice(left, processes):
            crew.append(_Hand(work))
            crew[-1].give(place, pieces[place])
        while any(hand.is_busy for hand in crew):
            for hand in _ready(crew):
                yield hand.take()
                for place in islice(left, 1):
                    hand.give(place, pieces[place])
    finally:
        for hand in crew:
            hand.dismiss()


def _ready(crew: Sequence[_Hand[P, R]]) -> list[_Hand[P, R]]:
    """Hands that have answered, or will never."""
    by_pipe = {hand.pipe: hand for hand in crew if hand.is_busy}
    return [by_pipe[pipe] for pipe in wait(list(by_pipe)) if isinstance(pipe, Connection)]


class _Hand(Generic[P, R]):
    """One process and the piece that it works on."""

    def __init__(self, work: Callable[[P], R]) -> None:
        self._work = work
        self._place: int | None = None
        self._hire()

    def _hire(self) -> None:
        self.pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(theirs, self._work), daemon=True)
        with _deaf_to_ctrl_c():
            self._process.start()
        theirs.close()

    @property
    def is_busy(self) -> bool:
        return self._place is not None

    def give(self, place: int, piece: P) -> None:
        self._place = place
        try:
            self.pipe.send(piece)
        except OSError:
            return  # it has died: `take` finds out

    def take(self) -> Done[R]:
        """The answer; of a process that died, that it did, and a new one takes its place."""
        assert self._place is not None
        place, self._place = self._place, None
        try:
            result, error, trace = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join(PATIENCE_S)
            code = self._process.exitcode
            self.dismiss()
            self._hire()
            return Done(place, None, f"its process ended with {code}; is there enough memory?")
        return Done(place, result, error, trace)

    def dismiss(self) -> None:
        self.pipe.close()
        self._process.terminate()
        self._process.join(PATIENCE_S)


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """A process that starts now never hears Ctrl-C, which is its parent's business."""
    if current_thread() is not main_thread():  # where signals cannot be set, none arrive either
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(pipe: Connection, work: Callable[[P], R]) -> None:
    """A process's life: take a piece, answer, until the pipe closes."""
    broom = Broom()
    while True:
        try:
            piece = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer: tuple[R | None, str | None, str] = (work(piece), None, "")
        except Exception as error:
            answer = (None, _worded(error), traceback.format_exc())
        try:
            pipe.send(answer)
        except OSError:
            return
        broom.sweep()


class Broom:
    """Frees what finished pieces leave behind, in a small part of the time at most.

    The parts of a simulation know each other, so that it outlives its trial until somebody looks for
    cycles; and the interpreter looks among old ones so rarely that thousands pile up to gigabytes.
    """

    def __init__(
        self,
        collect: Callable[[], object] = gc.collect,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._collect = collect
        self._clock = clock
        self._swept_at = clock()
        self._took = 0.0

    def sweep(self) -> None:
        """Unless the last time took more than its part of the time since: the more lives, the longer."""
        now = self._clock()
        if self._took > SWEEPING * (now - self._swept_at):
            return
        self._collect()
        self._swept_at = self._clock()
        self._took = self._swept_at - now


def _worded(error: Exception) -> str:
    """Errors of our own are sentences; of others the kind tells more than the words."""
    kind = type(error)
    is_ours = kind.__module__.partition(".")[0] == __name__.partition(".")[0]
    return str(error) if is_ours else f"{kind.__name__}: {error}"
