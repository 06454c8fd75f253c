"""Spread work over processes, one piece per process at a time; no piece is lost when a process dies.

`concurrent.futures` neither says which piece a process died of, nor stops pieces that run: pebble does.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass
from itertools import count
from multiprocessing import get_context, resource_tracker
from typing import Generic, TypeVar

from pebble import ProcessExpired, ProcessPool

P = TypeVar("P")
R = TypeVar("R")

SPAWN = get_context("spawn")
"""Fresh interpreters, so that results cannot depend on this process's imports or random state."""
COLLECT_EVERY = 8
"""Pieces after which a process collects garbage: the objects of a simulation form cycles, and Python's
own collector runs so rarely on old objects that thousands of simulations pile up to gigabytes."""
_pieces = count(1)


@dataclass(frozen=True, slots=True)
class PieceResult(Generic[R]):
    """The outcome of the piece at this place of the list: a result, or an error."""

    place: int
    result: R | None
    error: str | None


def _here(work: Callable[[P], R], pieces: Sequence[P]) -> Iterator[PieceResult[R]]:
    for place, piece in enumerate(pieces):
        try:
            yield PieceResult(place, work(piece), None)
        except Exception as error:
            yield PieceResult(place, None, _worded(error))


def spread(
    work: Callable[[P], R], pieces: Sequence[P], processes: int
) -> Generator[PieceResult[R], None, None]:
    """Results as they come; closing the iterator ends the processes at once. 0 processes: in this one.

    Ctrl-C is the parent's business. The pool starts its threads with the first piece, and a process has
    the signal mask of the thread that starts it: blocked here, SIGINT reaches no process, not even one
    that is still importing.
    """
    if not processes:
        yield from _here(work, pieces)
        return
    pool = ProcessPool(max_workers=processes, context=SPAWN)
    places: dict[Future[R], int] = {}
    try:
        resource_tracker.ensure_running()  # or the first process would start it, which unblocks SIGINT
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for place, piece in enumerate(pieces):
                places[pool.schedule(_work, args=(work, piece))] = place
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for future in as_completed(places):
            place = places.pop(future)  # its result need not stay
            try:
                yield PieceResult(place, future.result(), None)
            except ProcessExpired as expired:
                code = f"its process ended with {expired.exitcode}; is there enough memory?"
                yield PieceResult(place, None, code)
            except Exception as error:
                yield PieceResult(place, None, _worded(error))
    finally:
        pool.stop()  # type: ignore[no-untyped-call]
        pool.join()


def _work(work: Callable[[P], R], piece: P) -> R:
    try:
        return work(piece)
    finally:
        if next(_pieces) % COLLECT_EVERY == 0:
            gc.collect()


def _worded(error: Exception) -> str:
    """Our own errors are sentences; for others, the type is shown as well."""
    kind = type(error)
    is_ours = kind.__module__.partition(".")[0] == __name__.partition(".")[0]
    return str(error) if is_ours else f"{kind.__name__}: {error}"
