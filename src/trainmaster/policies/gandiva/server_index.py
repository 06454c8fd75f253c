"""Which jobs each server hosts and which jobs wait, kept from pass to pass: a cache of view and homes.

A job that runs is at home where it runs; one that was suspended stays at home where it ran, until it
runs again. Dropped, the index is built again from the view and the memo's homes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping

from trainmaster.core.draft import Draft
from trainmaster.core.lifecycle import ALLOCATED, HIDDEN_PHASES
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.preemption_guards import PreemptionGuards
from trainmaster.mechanisms.resize import is_open
from trainmaster.model.plan import Rank
from trainmaster.policies.gandiva.affinity import Home, Servers, home_of

LONGEST_MS = 1 << 40
"""Longer than any job runs: 35 years."""
Homes = Mapping[str, Home]
"""Where suspended jobs ran."""


class ServerIndex:
    """The index behind a time-slicing policy."""

    def __init__(
        self, view: View, homes: Homes, guards: PreemptionGuards, quantum_ms: int, now: int
    ) -> None:
        self._guards = guards
        self._quantum = quantum_ms
        self.servers = Servers(view.topology)
        self.line = RankIndex()
        """Waiting jobs: the starving, then by the quantum in which they began to wait, then least run."""
        self.holding: dict[int, JobRecord] = {}
        self.gangs: dict[int, JobRecord] = {}
        """Jobs at home on more than one node."""
        self.elastic: dict[int, JobRecord] = {}
        self.packable: dict[int, JobRecord] = {}
        """Whole-GPU jobs whose memory and utilisation are known."""
        self._homes: dict[int, tuple[Home, int]] = {}
        self._known: dict[int, JobRecord] = {}
        self._assumed: list[tuple[JobRecord, Home | None]] = []
        """What the present pass has decided, with the homes before."""
        self._closed = frozenset(view.occupancy.closed)
        view.changes(ServerIndex).read_jobs()
        self._take(view.jobs.values(), homes, now)

    def keep_up(self, view: View, homes: Homes, now: int) -> bool:
        """Take in what has changed; False where that is not enough and it must be built again."""
        if self._closed != view.occupancy.closed:
            return False
        changed = {record.seq: record for record in view.ended}
        changed.update((record.seq, record) for record in self.line.expired(now))
        changed.update((record.seq, record) for record in view.changes(ServerIndex).read_jobs())
        self._take(changed.values(), homes, now)
        return len(self._known) == len(view.jobs)

    def _take(self, records: Iterable[JobRecord], homes: Homes, now: int) -> None:
        records = list(records)
        for record in records:
            self._drop(record.seq)
            if record.phase not in HIDDEN_PHASES:
                self._note(record, homes)

        def group(record: JobRecord) -> Hashable:
            return (record.group, record.id in homes)

        def rank(record: JobRecord) -> Rank:
            return self._guards.rank(record, Rank(0, self._turn(record, now)), now)

        self.line.refresh(records, rank, group, with_running=False)

    def _turn(self, record: JobRecord, now: int) -> int:
        """Its place in the round: by the quantum in which its wait began, then by how long it has run.

        By the ms, the job that is suspended faster, or was submitted before, would always be next.
        """
        ran = min(ran_ms(record, now), LONGEST_MS - 1)
        return record.waiting_since_ms // self._quantum * LONGEST_MS + ran

    def _drop(self, seq: int) -> None:
        for jobs in (self._known, self.holding, self.elastic, self.packable):
            jobs.pop(seq, None)
        self._unsettle(seq)

    def _note(self, record: JobRecord, homes: Homes) -> None:
        seq = record.seq
        self._known[seq] = record
        if record.phase in ALLOCATED:
            self.holding[seq] = record
            if record.demand.is_elastic:
                self.elastic[seq] = record
        if not takes_turns(record):
            return
        if is_measured(record):
            self.packable[seq] = record
        home = homes.get(record.id) if record.placement is None else home_of(record.placement)
        self._settle(record, home)

    def _settle(self, record: JobRecord, home: Home | None) -> None:
        self._unsettle(record.seq)
        if home is not None:
            counted = self._homes[record.seq] = (home, record.demand.nominal.count)
            self.servers.add(*counted)
            if len(home) > 1:
                self.gangs[record.seq] = record

    def _unsettle(self, seq: int) -> None:
        counted = self._homes.pop(seq, None)
        if counted is not None:
            self.servers.remove(*counted)
            self.gangs.pop(seq, None)

    def assume(self, record: JobRecord, home: Home) -> None:
        """Count a whole-GPU job as hosted there for the rest of the pass."""
        if takes_turns(record):
            self._assumed.append((record, self.home(record)))
            self._settle(record, home)

    def drop_assumptions(self) -> None:
        """Homes as before the pass: what really happens comes with the next changes."""
        while self._assumed:
            self._settle(*self._assumed.pop())

    def elastic_runs(self, draft: Draft) -> Iterator[JobRecord]:
        """Elastic jobs on open servers, in order of submission."""
        for _, record in sorted(self.elastic.items()):
            if record.placement is not None and is_open(draft.space, record.placement):
                yield record

    def home(self, record: JobRecord) -> Home | None:
        """Where it runs or waits for its turn."""
        counted = self._homes.get(record.seq)
        return None if counted is None else counted[0]


def takes_turns(record: JobRecord) -> bool:
    """Jobs for whole GPUs do."""
    return record.is_whole and record.demand.nominal.is_whole


def is_measured(record: JobRecord) -> bool:
    """Whether its GPU memory and utilisation are known, so that it can be packed with others."""
    return bool(record.gpu_memory) and record.util_ppm is not None


def ran_ms(record: JobRecord, now: int) -> int:
    """How long it has run in all, counted at its nominal size."""
    return record.attained_at(now) // record.demand.nominal.total_share
