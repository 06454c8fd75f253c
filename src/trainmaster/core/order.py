"""Who goes first: jobs kept in line under the rank that the policy declares.

A rank is a straight line in time. Waiting jobs are kept in one sorted list per group (jobs of a group
fit or do not fit alike), running ones in one sorted list per slope: among lines of equal slope the
order never changes, so nothing is ever sorted again, and a pass looks only at the heads and tails.
The index is a cache: `forget` drops it, and the next pass builds the same one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count

from trainmaster.core.lifecycle import HOLDING, WAITING
from trainmaster.core.state import JobRecord
from trainmaster.model.plan import Rank

Entry = tuple[int, int, int, int, JobRecord]
"""(level, value, submit, seq, record): the seq is unique, so records are never compared."""
Key = tuple[int, int, int, int]

RankOf = Callable[[JobRecord], Rank]
GroupOf = Callable[[JobRecord], Hashable]


class Line:
    """One sorted list of jobs whose ranks move at the same rate."""

    __slots__ = ("entries", "rate")

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.entries: list[Entry] = []


class Order:
    """The index over all live jobs; kept by the view from pass to pass."""

    def __init__(self) -> None:
        self.waiting: dict[tuple[Hashable, int], Line] = {}
        self.running: dict[int, Line] = {}
        self._place: dict[int, tuple[Line, Entry, int | None]] = {}
        """By seq: where a job stands, and until when its rank holds."""
        self._expiries: list[tuple[int, int, JobRecord]] = []

    def refresh(
        self,
        changed: Iterable[JobRecord],
        rank: RankOf,
        group: GroupOf,
        *,
        with_running: bool,
    ) -> None:
        """Put every changed job where it now belongs."""
        for record in changed:
            standing = self._place.pop(record.seq, None)
            if standing is not None:
                _remove(*standing[:2])
            phase = record.phase
            if phase in WAITING:
                self._insert(record, rank(record), group(record), self.waiting)
            elif with_running and phase in HOLDING:
                self._insert(record, rank(record), None, self.running)

    def _insert(
        self, record: JobRecord, rank: Rank, group: Hashable, lines: dict[object, Line]
    ) -> None:
        level, value, rate, until = rank
        key = rate if lines is self.running else (group, rate)
        line = lines.get(key)
        if line is None:
            line = lines[key] = Line(rate)
        entry = (level, value, record.job.submit_ms, record.seq, record)
        insort(line.entries, entry)
        self._place[record.seq] = (line, entry, until)
        if until is not None:
            heappush(self._expiries, (until, record.seq, record))

    def expired(self, now: int) -> list[JobRecord]:
        """Jobs whose rank has run out: to be ranked again."""
        found = []
        while self._expiries and self._expiries[0][0] <= now:
            until, seq, record = heappop(self._expiries)
            standing = self._place.get(seq)
            if standing is not None and standing[2] == until:
                found.append(record)
        return found

    def next_expiry(self) -> int | None:
        """When the next rank runs out; stale entries are thrown away on the way."""
        while self._expiries:
            until, seq, _ = self._expiries[0]
            standing = self._place.get(seq)
            if standing is not None and standing[2] == until:
                return until
            heappop(self._expiries)
        return None

    def has_waiting(self) -> bool:
        return any(line.entries for line in self.waiting.values())

    def candidates(self, now: int) -> Candidates:
        return Candidates(self.waiting, now)

    def tail(self, now: int) -> Tail:
        return Tail(self.running.values(), now)

    def key(self, record: JobRecord, now: int) -> Key:
        """Where the job stands now: comparable between any two jobs."""
        line, entry, _ = self._place[record.seq]
        return (entry[0], entry[1] + line.rate * now, entry[2], entry[3])


def _remove(line: Line, entry: Entry) -> None:
    entries = line.entries
    del entries[bisect_left(entries, entry)]


class Candidates:
    """Waiting jobs, best rank first, merged over the groups; a group can be dropped for the pass."""

    def __init__(self, waiting: dict[tuple[Hashable, int], Line], now: int) -> None:
        self._now = now
        self._heap: list[tuple[int, int, int, int, int, int, Hashable, Line | JobRecord]] = []
        for number, ((group, rate), line) in enumerate(waiting.items()):
            if line.entries:
                level, value, submit, seq, _ = line.entries[0]
                self._heap.append((level, value + rate * now, submit, seq, number, 0, group, line))
        heapify(self._heap)
        self._dropped: set[Hashable] = set()

    def drop(self, group: Hashable) -> None:
        """Nothing more of this group fits in this pass."""
        self._dropped.add(group)

    def put_back(self, key: Key, group: Hashable, record: JobRecord) -> None:
        """A job that the draft has just evicted waits again, at its rank."""
        heappush(self._heap, (*key, -1, 0, group, record))

    def __iter__(self) -> Iterator[tuple[Key, Hashable, JobRecord]]:
        heap, dropped = self._heap, self._dropped
        while heap:
            level, value, submit, seq, number, index, group, source = heap[0]
            if isinstance(source, JobRecord):
                heappop(heap)
                if group not in dropped:
                    yield (level, value, submit, seq), group, source
                continue
            record = source.entries[index][4]
            index += 1
            if group in dropped or index == len(source.entries):
                heappop(heap)
                if group in dropped:
                    continue
            else:
                after = source.entries[index]
                heapreplace(
                    heap,
                    (
                        after[0],
                        after[1] + source.rate * self._now,
                        after[2],
                        after[3],
                        number,
                        index,
                        group,
                        source,
                    ),
                )
            yield (level, value, submit, seq), group, record


class Tail:
    """Running jobs, worst rank first, merged over the slopes; can be walked back and forth."""

    def __init__(self, lines: Iterable[Line], now: int) -> None:
        self._heap: list[tuple[int, int, int, int, int, int, Line]] = []
        self._now = now
        numbers = count()
        for line in lines:
            if line.entries:
                self._push(line, len(line.entries) - 1, next(numbers))
        self._returned: list[tuple[int, int, int, int, JobRecord]] = []

    def _push(self, line: Line, index: int, number: int) -> None:
        level, value, submit, seq, _ = line.entries[index]
        value += line.rate * self._now
        heappush(self._heap, (-level, -value, -submit, -seq, number, index, line))

    def peek(self) -> Key | None:
        """The key of the worst job that is left."""
        worst = self._heap[0] if self._heap else None
        back = self._returned[0] if self._returned else None
        if back is not None and (worst is None or back[:4] < worst[:4]):
            worst = back
        if worst is None:
            return None
        return (-worst[0], -worst[1], -worst[2], -worst[3])

    def pop(self) -> JobRecord:
        """Take the worst job out."""
        if self._returned and (not self._heap or self._returned[0][:4] < self._heap[0][:4]):
            return heappop(self._returned)[4]
        _, _, _, _, number, index, line = heappop(self._heap)
        if index:
            self._push(line, index - 1, number)
        return line.entries[index][4]

    def give_back(self, key: Key, record: JobRecord) -> None:
        """Put a job back: it keeps its GPUs after all, or has just been started."""
        level, value, submit, seq = key
        heappush(self._returned, (-level, -value, -submit, -seq, record))
