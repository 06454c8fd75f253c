"""The rank index: jobs sorted by the rank that the policy declares.

A rank is a linear function of time. Waiting jobs are kept in one sorted list per group (jobs of a group
fit or do not fit alike), running ones in one sorted list per rate. Ranks of equal rate never change their
order, so nothing is sorted again, and a pass looks only at the ends of the lists.
The index is a cache: `forget` drops it, and the next pass builds the same one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace

from trainmaster.core.lifecycle import ALLOCATED, WAITING
from trainmaster.core.state import JobRecord
from trainmaster.model.plan import Rank

Entry = tuple[int, int, int, int, JobRecord]
"""(level, value, submit, seq, record): the seq is unique, so records are never compared."""
Key = tuple[int, int, int, int]

PROTECTED = -(1 << 90)
"""Level of a run that must not be preempted: before everything that a policy ranks."""

RankOf = Callable[[JobRecord], Rank]
GroupOf = Callable[[JobRecord], Hashable]


@dataclass(slots=True, eq=False)
class RankList:
    """One sorted list of jobs whose ranks move at the same rate."""

    rate: int
    is_waiting: bool
    entries: list[Entry] = field(default_factory=list)


class RankIndex:
    """The index over all live jobs; kept by the view from pass to pass."""

    def __init__(self) -> None:
        self.waiting: dict[tuple[Hashable, int], RankList] = {}
        self.running: dict[int, RankList] = {}
        self._place: dict[int, tuple[RankList, Entry, int | None]] = {}
        """By seq: a job's list, its entry there, and until when its rank holds."""
        self._expiries: list[tuple[int, int, JobRecord]] = []
        self._waiting = 0

    def refresh(
        self,
        changed: Iterable[JobRecord],
        rank: RankOf,
        group: GroupOf,
        *,
        with_running: bool,
    ) -> None:
        """Put every changed job where it now belongs."""
        places = self._place
        for record in changed:
            known = places.pop(record.seq, None)
            if known is not None:
                jobs, entry, _ = known
                del jobs.entries[bisect_left(jobs.entries, entry)]
                if jobs.is_waiting:
                    self._waiting -= 1
            phase = record.phase
            if phase in WAITING:
                self._waiting += 1
                ranked = rank(record)
                key = (group(record), ranked.rate)
                waiting = self.waiting.get(key)
                if waiting is None:
                    waiting = self.waiting[key] = RankList(ranked.rate, is_waiting=True)
                self._insert(record, ranked, waiting)
            elif with_running and phase in ALLOCATED:
                ranked = Rank(PROTECTED, record.seq) if record.is_protected else rank(record)
                running = self.running.get(ranked.rate)
                if running is None:
                    running = self.running[ranked.rate] = RankList(ranked.rate, is_waiting=False)
                self._insert(record, ranked, running)

    def _insert(self, record: JobRecord, rank: Rank, jobs: RankList) -> None:
        level, value, _, until = rank
        entry = (level, value, record.job.submit_ms, record.seq, record)
        insort(jobs.entries, entry)
        self._place[record.seq] = (jobs, entry, until)
        if until is not None:
            heappush(self._expiries, (until, record.seq, record))

    def expired(self, now: int) -> list[JobRecord]:
        """Jobs whose rank has run out: to be ranked again."""
        found = []
        while self._expiries and self._expiries[0][0] <= now:
            until, seq, record = heappop(self._expiries)
            known = self._place.get(seq)
            if known is not None and known[2] == until:
                found.append(record)
        return found

    def next_expiry(self) -> int | None:
        """When the next rank runs out; stale entries are thrown away on the way."""
        while self._expiries:
            until, seq, _ = self._expiries[0]
            known = self._place.get(seq)
            if known is not None and known[2] == until:
                return until
            heappop(self._expiries)
        return None

    def has_waiting(self) -> bool:
        return self._waiting > 0

    def has_running(self) -> bool:
        return any(jobs.entries for jobs in self.running.values())

    def best_waiting(self, now: int) -> Key | None:
        """The rank key of the best waiting job."""
        keys = [
            (entry[0], entry[1] + jobs.rate * now, entry[2], entry[3])
            for jobs in self.waiting.values()
            for entry in jobs.entries[:1]
        ]
        return min(keys, default=None)

    def first_waiting(self, now: int) -> JobRecord | None:
        """The best waiting job."""
        heads = [
            ((entry[0], entry[1] + jobs.rate * now, entry[2], entry[3]), entry[4])
            for jobs in self.waiting.values()
            for entry in jobs.entries[:1]
        ]
        return min(heads, default=(None, None))[1]

    def heads(self) -> Iterator[JobRecord]:
        """The first waiting job of each group."""
        return (jobs.entries[0][4] for jobs in self.waiting.values() if jobs.entries)

    def ages(self) -> bool:
        """Whether some running job's rank gets worse with time."""
        return any(jobs.rate > 0 and jobs.entries for jobs in self.running.values())

    def candidates(self, now: int) -> Candidates:
        return Candidates(self.waiting, now)

    def worst_running(self, now: int) -> WorstFirst:
        return WorstFirst(self.running.values(), now)

    def worst_first(self, now: int) -> Iterator[JobRecord]:
        """Running jobs, worst rank first."""
        tail = self.worst_running(now)
        while tail.worst is not None:
            yield tail.pop()

    def key_of(self, record: JobRecord, now: int) -> Key | None:
        """A job's rank key now; None if it is not in the index."""
        known = self._place.get(record.seq)
        if known is None:
            return None
        jobs, entry, _ = known
        return (entry[0], entry[1] + jobs.rate * now, entry[2], entry[3])


class Candidates:
    """Waiting jobs, best rank first, merged over the groups; a group can be dropped for the pass."""

    def __init__(self, waiting: dict[tuple[Hashable, int], RankList], now: int) -> None:
        self._now = now
        heap: list[tuple[int, int, int, int, int, Hashable, RankList | JobRecord]] = []
        for (group, rate), jobs in waiting.items():
            if jobs.entries:
                level, value, submit, seq, _ = jobs.entries[0]
                heap.append((level, value + rate * now, submit, seq, 0, group, jobs))
        if len(heap) > 1:
            heapify(heap)
        self._heap = heap
        self._dropped: set[Hashable] = set()

    def drop(self, group: Hashable) -> None:
        """Nothing more of this group fits in this pass."""
        self._dropped.add(group)

    def put_back(self, key: Key, group: Hashable, record: JobRecord) -> None:
        """A job that the draft has just evicted waits again, at its rank."""
        heappush(self._heap, (*key, 0, group, record))

    def __iter__(self) -> Iterator[tuple[Key, Hashable, JobRecord]]:
        heap, dropped = self._heap, self._dropped
        while heap:
            level, value, submit, seq, index, group, source = heap[0]
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
                first, second, third, fourth, _ = source.entries[index]
                second += source.rate * self._now
                heapreplace(heap, (first, second, third, fourth, index, group, source))
            yield (level, value, submit, seq), group, record


class WorstFirst:
    """Running jobs, worst rank first, merged over the rates; jobs can be taken out and put back."""

    def __init__(self, lists: Iterable[RankList], now: int) -> None:
        self._now = now
        self._lists = [jobs for jobs in lists if jobs.entries]
        self._heap: list[tuple[int, int, int, int, int, RankList | None, JobRecord]] | None = None
        """(negated key, index, list, record), no list for a job put back; made at the first `pop`."""
        self.worst: Key | None = None
        """The key of the worst job that is left."""
        for jobs in self._lists:
            level, value, submit, seq, _ = jobs.entries[-1]
            key = (level, value + jobs.rate * now, submit, seq)
            if self.worst is None or key > self.worst:
                self.worst = key

    def pop(self) -> JobRecord:
        """Take the worst job out."""
        heap = self._made_heap()
        _, _, _, _, index, jobs, record = heappop(heap)
        if jobs is not None and index:
            heappush(heap, self._item(jobs, index - 1))
        if heap:
            level, value, submit, seq, _, _, _ = heap[0]
            self.worst = (-level, -value, -submit, -seq)
        else:
            self.worst = None
        return record

    def put_back(self, key: Key, record: JobRecord) -> None:
        """Put a job back: it keeps its GPUs after all."""
        level, value, submit, seq = key
        heappush(self._made_heap(), (-level, -value, -submit, -seq, 0, None, record))
        if self.worst is None or key > self.worst:
            self.worst = key

    def _made_heap(self) -> list[tuple[int, int, int, int, int, RankList | None, JobRecord]]:
        if self._heap is None:
            self._heap = [self._item(jobs, len(jobs.entries) - 1) for jobs in self._lists]
            heapify(self._heap)
        return self._heap

    def _item(
        self, jobs: RankList, index: int
    ) -> tuple[int, int, int, int, int, RankList | None, JobRecord]:
        level, value, submit, seq, record = jobs.entries[index]
        return (-level, -value - jobs.rate * self._now, -submit, -seq, index, jobs, record)
