"""Jobs that are held until other jobs have ended, or until their array has a free place."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator

from trainmaster.model import events as e
from trainmaster.model.submission import Dependency, When
from trainmaster.model.trace import Outcome


def is_met(wanted: Dependency, outcome: Outcome) -> bool:
    """Whether a job that ended so is what another one waits for."""
    if wanted.when is When.ANY:
        return True
    return (outcome is Outcome.SUCCEEDED) is (wanted.when is When.OK)


class Dependencies:
    """Which jobs are held for which, as a live manager holds them."""

    def __init__(self) -> None:
        self._open: dict[str, set[str]] = {}
        """By job: those that it still waits for."""
        self._dependents: defaultdict[str, list[tuple[str, Dependency]]] = defaultdict(list)
        self._ended: dict[str, Outcome] = {}
        self._array_of: dict[str, str] = {}
        """Jobs whose array has a limit."""
        self._free_places: dict[str, int] = {}
        self._waiting: defaultdict[str, deque[str]] = defaultdict(deque)
        """By array: its elements that wait for a place."""
        self._without_place: set[str] = set()

    def submitted(
        self,
        job: str,
        depends_on: Iterable[Dependency] = (),
        array: str = "",
        limit: int | None = None,
        *,
        has_place: bool = False,
    ) -> bool:
        """Whether it is held. `has_place`: it has one of its array already."""
        for wanted in depends_on:
            if wanted.job not in self._ended:
                self._open.setdefault(job, set()).add(wanted.job)
                self._dependents[wanted.job].append((job, wanted))
        if array and limit is not None:
            self._array_of[job] = array
            free = self._free_places.setdefault(array, limit)
            if has_place or free > 0:
                self._free_places[array] = free - 1
            else:
                self._without_place.add(job)
                self._waiting[array].append(job)
        return job in self._open or job in self._without_place

    def is_hopeless(self, depends_on: Iterable[Dependency]) -> bool:
        """Whether a job that it waits for has ended otherwise than it should."""
        return any(
            wanted.job in self._ended and not is_met(wanted, self._ended[wanted.job])
            for wanted in depends_on
        )

    def ended(self, job: str, outcome: Outcome) -> Iterator[e.Event]:
        """What follows for others: they may start, or never will."""
        if job in self._ended:
            return
        self._ended[job] = outcome
        yield from self._free_place_of(job)
        for dependent, wanted in self._dependents.pop(job, ()):
            if dependent not in self._open:
                continue
            if not is_met(wanted, outcome):
                del self._open[dependent]
                yield e.JobWithdrawn(dependent)
                continue
            self._open[dependent].discard(job)
            if not self._open[dependent]:
                del self._open[dependent]
                if dependent not in self._without_place:
                    yield e.JobReleased(dependent)

    def _free_place_of(self, job: str) -> Iterator[e.Event]:
        array = self._array_of.pop(job, None)
        if array is None:
            return
        if job in self._without_place:  # it was withdrawn before it had one
            self._without_place.discard(job)
            return
        self._free_places[array] += 1
        line = self._waiting[array]
        while line and self._free_places[array] > 0:
            found = line.popleft()
            if found in self._without_place:
                self._without_place.discard(found)
                self._free_places[array] -= 1
                if found not in self._open:
                    yield e.JobReleased(found)
