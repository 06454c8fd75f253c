"""One pass over guaranteed and opportunistic jobs (AntMan): starts, upgrades, evictions, reservations.

Guaranteed jobs go first, queue by queue; opportunistic ones come after them, and leave where their
memory is needed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush, merge

from trainmaster.core.draft import Draft
from trainmaster.core.lifecycle import ALLOCATED, Phase
from trainmaster.core.rank_index import Candidates, Key, RankIndex, RankList
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.gpu_occupants import remaining_jobs
from trainmaster.mechanisms.measured_memory import measured_placement
from trainmaster.mechanisms.preemption_guards import PreemptionGuards
from trainmaster.model.actions import OpenTo
from trainmaster.model.placement import Placement, Role
from trainmaster.model.units import MINUTE, SECOND, WHOLE
from trainmaster.policies.antman.opportunistic_colocation import (
    SpareCycles,
    guaranteed_shares,
    guaranteed_size,
    memory_on,
    parts_of,
    place_guaranteed,
    unguaranteed,
    utilisation,
)
from trainmaster.policies.antman.quotas import QueueLimits, Quotas

GUARANTEED, LATE, OPPORTUNISTIC = "guaranteed", "late", "opportunistic"
"""Classes of waiting jobs: guaranteed only; guaranteed or opportunistic (late); opportunistic only."""
STANDSTILL_MS = MINUTE
"""How long a run may be kept from making a step before it is suspended."""
Host = tuple[str, int]
"""A guaranteed job, and the part of its GPUs that it used."""


@dataclass(frozen=True, slots=True)
class AntManTerms:
    """What the options say, in the units of a pass."""

    util_limit_ppm: int
    share: int
    """Of a GPU's guaranteed layer, for each guaranteed run."""
    reserves: bool
    upgrades: bool
    guards: PreemptionGuards


@dataclass(slots=True)
class AntManPass:
    """The decisions of one pass, in the order in which they are made."""

    draft: Draft
    now: int
    rules: AntManTerms
    quotas: Quotas
    opportunistic: list[JobRecord]
    """Opportunistic runs, in order of submission."""
    lines: Mapping[str, RankIndex]
    """Of the queues in which jobs wait."""
    held: dict[str, int]
    """Per queue: thousandths of a GPU that its guaranteed runs hold."""
    limits: QueueLimits
    """Of all that queues hold; an opportunistic run counts with the GPUs that it asked for."""
    busier: dict[int, int] = field(default_factory=dict)
    """Utilisation that this pass adds, by GPU."""
    unbearable: dict[str, tuple[Host, ...]] = field(default_factory=dict)
    """By opportunistic job: guaranteed ones beside which it stood still, and what they used then."""
    evicted: list[JobRecord] = field(default_factory=list)
    again_at: int | None = None
    """When to look again, although nothing may happen until then."""

    # -- memory ----------------------------------------------------------------------------------

    def rebook_measured(self) -> None:
        """Book runs with their measured memory; where one has grown, opportunistic ones leave."""
        for record in self.draft.view.measured_runs():
            better = measured_placement(self.draft, record)
            if better is None:
                continue
            leaving: list[JobRecord] = []
            for run in reversed(self.opportunistic):
                if self.draft.fits_instead(record, better):
                    break
                if run is not record and self._is_evictable(run) and _are_together(run, record):
                    self._leave(run)
                    leaving.append(run)
            if self.draft.fits_instead(record, better):
                self.draft.resize(record, better)
                self.evicted += leaving
            else:
                for run in leaving:
                    self._stay(run)

    # -- guaranteed ------------------------------------------------------------------------------

    def serve_guaranteed(self) -> None:
        """The queue that holds the smallest part of its quota starts its first job, and so on."""
        upgradable = {
            record.job.queue: None for record in self.opportunistic if self._can_upgrade(record)
        }
        queues = sorted({*self.lines, *upgradable})
        waiting = {queue: iter(self._in_line(queue)) for queue in queues}
        turns: list[tuple[int, int, int, str, JobRecord]] = []

        def take_turn(queue: str) -> None:
            first = next(waiting[queue], None)
            if first is not None:
                part = self.quotas.used(queue, self.held[queue])
                heappush(turns, (part, first.job.submit_ms, first.seq, queue, first))

        for queue in waiting:
            take_turn(queue)
        while turns:
            _, _, _, queue, record = heappop(turns)
            if self._serve(queue, record):
                take_turn(queue)

    def _in_line(self, queue: str) -> Iterable[JobRecord]:
        """Waiting guaranteed jobs of the queue, and its runs that could be upgraded, in rank order."""
        ranks = self.lines.get(queue)
        lines = {} if ranks is None else ranks.waiting
        mine = {key: line for key, line in lines.items() if _tag(key[0]) != OPPORTUNISTIC}
        waiting = ((key, record) for key, _, record in Candidates(mine, self.now))
        running = [
            (_key(record), record)
            for record in self.opportunistic
            if self._can_upgrade(record) and record.job.queue == queue
        ]
        for _, record in merge(waiting, sorted(running, key=lambda each: each[0])):
            yield record

    def _can_upgrade(self, record: JobRecord) -> bool:
        is_plain = record.job.role is Role.GUARANTEED and record.phase is Phase.RUNNING
        return self.rules.upgrades and is_plain

    def _serve(self, queue: str, record: JobRecord) -> bool:
        """Start or upgrade it; False where the queue must wait behind it."""
        size = guaranteed_size(record, self.rules.share)
        if not self.quotas.allow(queue, size):
            return True  # never guaranteed: it does not stand in the others' way
        has_quota = self.quotas.allow(queue, self.held[queue] + size)
        if record.placement is not None:
            more = size - record.demand.nominal.total_share
            has_quota = has_quota and self.limits.has_room(queue, more)
            if has_quota and self._upgrade(record):
                self._charge(queue, size, more)
            return True
        leaving = self._make_way(queue, size) if has_quota else None
        if leaving is None:
            return False
        placement = self._place(record) or self._make_room(record)
        if placement is None:
            for run in leaving:
                self._stay(run)
            if self.rules.reserves:
                self._reserve(record)
            return False
        self.evicted += leaving
        self._charge(queue, size, size)
        self._busy_with(record, placement)
        return True

    def _charge(self, queue: str, guaranteed: int, more: int) -> None:
        self.held[queue] += guaranteed
        self.limits.give(queue, more)

    def _make_way(self, queue: str, size: int) -> list[JobRecord] | None:
        """The latest opportunistic runs, which leave to keep a queue within its maximum; None: too few."""
        leaving: list[JobRecord] = []
        for run in reversed(self.opportunistic):
            if self.limits.has_room(queue, size):
                break
            if not self.limits.is_in_the_way(run.job.queue, queue, size):
                continue
            if self._is_evictable(run):
                self._leave(run)
                leaving.append(run)
            elif not self.rules.guards.may_preempt(run, self.now):
                self._look_again(self.now + SECOND)
        if self.limits.has_room(queue, size):
            return leaving
        for run in leaving:
            self._stay(run)
        return None

    def _leave(self, run: JobRecord) -> None:
        self.draft.suspend(run)
        self.limits.give(run.job.queue, -run.demand.nominal.total_share)

    def _stay(self, run: JobRecord) -> None:
        self.draft.restore(run)
        self.limits.give(run.job.queue, run.demand.nominal.total_share)

    def _place(self, record: JobRecord) -> Placement | None:
        placement = place_guaranteed(self.draft.space, record, self.rules.share)
        if placement is not None:
            self.draft.start(record, placement)
        return placement

    def _make_room(self, record: JobRecord) -> Placement | None:
        """Place it on GPUs that only opportunistic runs use; runs that do not fit next to it are evicted."""
        draft = self.draft
        if not self.opportunistic or self._is_hopeless(record):
            return None
        able = [run for run in self.opportunistic if self._is_evictable(run)]
        if len(able) < len(self.opportunistic):
            self._look_again(self.now + SECOND)
        going, placement = self._fewest_going(record, able)
        if placement is None:
            return None
        draft.start(record, placement)
        for run in going:
            if not draft.keep(run):
                self.evicted.append(run)
                self.limits.give(run.job.queue, -run.demand.nominal.total_share)
        return placement

    def _fewest_going(
        self, record: JobRecord, able: list[JobRecord]
    ) -> tuple[list[JobRecord], Placement | None]:
        """The latest opportunistic runs that must go, suspended by now, and a place as if all went."""
        draft, space, share = self.draft, self.draft.space, self.rules.share
        for run in able:
            draft.suspend(run)
        best = place_guaranteed(space, record, share)
        staying, too_many = 0, len(able)
        if best is None:
            staying = self._let_stay(able, 0, too_many)
        stay = staying
        while best is not None and too_many - staying > 1:
            stay = self._let_stay(able, stay, (staying + too_many) // 2)
            found = place_guaranteed(space, record, share)
            if found is not None and _spread(found) <= _spread(best):
                staying, best = stay, found
            else:
                too_many = stay
        self._let_stay(able, stay, staying)
        return able[staying:], best

    def _let_stay(self, able: list[JobRecord], before: int, after: int) -> int:
        """Let this many of the oldest runs stay, instead of as many as before."""
        for run in able[before:after]:
            self.draft.restore(run)
        for run in able[after:before]:
            self.draft.suspend(run)
        return after

    def _is_hopeless(self, record: JobRecord) -> bool:
        """Whether even without opportunistic runs too few GPUs would be left."""
        need = len(parts_of(record.demand.nominal))
        found = unguaranteed(self.draft.space, record.demand, need)
        return self.rules.share == WHOLE and len(found) < need

    def _is_evictable(self, run: JobRecord) -> bool:
        if run.phase not in ALLOCATED or self.draft.is_touched(run):
            return False
        assert run.placement is not None
        is_open = self.draft.space.is_open(run.placement)
        return is_open and self.rules.guards.may_preempt(run, self.now)

    def _reserve(self, record: JobRecord) -> None:
        """Reserve the free GPUs for it: closed to other guaranteed jobs, open to opportunistic ones."""
        need = len(parts_of(record.demand.nominal))
        found = unguaranteed(self.draft.space, record.demand, need)
        if found and need > 1:
            self.draft.reserve(record, found, None, OpenTo.OPPORTUNISTIC)

    def _upgrade(self, record: JobRecord) -> bool:
        """Guaranteed from now on: where it runs, else on unused GPUs."""
        draft, space, placement = self.draft, self.draft.space, record.placement
        assert placement is not None
        if draft.is_touched(record):
            return False
        shares = guaranteed_shares(record, self.rules.share)
        parts = parts_of(record.demand.nominal)
        slices = tuple(
            piece._replace(
                share=share, memory=max(piece.memory, memory_on(space, piece.gpu, record, part))
            )
            for piece, share, part in zip(placement.slices, shares, parts, strict=True)
        )
        better = replace(placement, slices=slices, role=Role.GUARANTEED)
        if draft.fits_instead(record, better):
            draft.resize(record, better)
            return True
        if not draft.space.is_open(placement):
            return False
        draft.suspend(record)
        elsewhere = self._place(record)
        if elsewhere is None:
            draft.restore(record)
            return False
        self._busy_with(record, elsewhere)
        return True

    # -- opportunistic ---------------------------------------------------------------------------

    def suspend_still_runs(self) -> None:
        """Suspend runs that guaranteed ones beside them have kept from making any step for a while.

        Their memory is free then. They come back when those have left, or use less of the GPU.
        """
        for run in self.opportunistic:
            if run.still_since_ms is None or self.draft.is_touched(run):
                continue
            due = run.still_since_ms + STANDSTILL_MS
            if due > self.now:
                self._look_again(due)
                continue
            hosts = self._guaranteed_beside(run)
            if hosts and self._is_evictable(run):
                self._leave(run)
                self.evicted.append(run)
                self.unbearable[run.id] = tuple((host.id, utilisation(host)) for host in hosts)

    def _guaranteed_beside(self, run: JobRecord) -> list[JobRecord]:
        assert run.placement is not None
        found = {
            record.seq: record
            for gpu in run.placement.gpus()
            for record, placement in remaining_jobs(self.draft, gpu)
            if placement.role is Role.GUARANTEED
        }
        return [found[seq] for seq in sorted(found)]

    def avoided(self, record: JobRecord) -> set[int]:
        """GPUs of jobs beside which it stood still, and which use as much of them as then."""
        return gpus_of_unbearable(self.draft.view, self.unbearable.get(record.id, ()))

    def serve_opportunistic(self) -> None:
        """Start opportunistic jobs in order of submission, each on the least busy GPUs."""
        lines: dict[tuple[Hashable, int], RankList] = {
            ((queue, group), rate): line
            for queue, ranks in self.lines.items()
            for (group, rate), line in ranks.waiting.items()
            if _tag(group) != GUARANTEED and line.entries
        }
        if not lines and not self.evicted:
            return
        spare = SpareCycles(self.draft.space, self._busy, self.rules.util_limit_ppm)
        for run in self.evicted:
            if run.phase in (Phase.RUNNING, Phase.STARTING) and not run.loses_work_elsewhere:
                self._join(spare, run)
        full: set[int] = set()
        candidates = Candidates(lines, self.now)
        for _, group, record in candidates:
            if self.draft.is_touched(record):
                continue
            size = record.demand.nominal.total_share
            if not self.limits.has_room(record.job.queue, size):
                candidates.drop(group)
            elif record.id in self.unbearable:
                self._join(spare, record)
            elif record.group in full or not self._join(spare, record):
                full.add(record.group)
                candidates.drop(group)

    def _join(self, spare: SpareCycles, record: JobRecord) -> bool:
        """Start it where there is room for it and its queue's maximum allows."""
        queue, size = record.job.queue, record.demand.nominal.total_share
        has_room = self.limits.has_room(queue, size)
        placement = spare.place(record, self.avoided(record)) if has_room else None
        if placement is None:
            return False
        self.unbearable.pop(record.id, None)
        self.limits.give(queue, size)
        if self.draft.unreserve(record):
            self._look_again(self.now + 1)  # others may have what it gives back
        self.draft.start(record, placement)
        spare.note(record, placement)
        return True

    def _busy_with(self, record: JobRecord, placement: Placement) -> None:
        for gpu in placement.gpus():
            self.busier[gpu] = self.busier.get(gpu, 0) + utilisation(record)

    def _busy(self, gpu: int) -> int:
        """How much of a GPU is in use, by what this pass leaves there."""
        staying = (utilisation(record) for record, _ in remaining_jobs(self.draft, gpu))
        return self.busier.get(gpu, 0) + sum(staying)

    # -- both ------------------------------------------------------------------------------------

    def leave_draining(self) -> None:
        """Move runs off draining nodes where there is room elsewhere."""
        view = self.draft.view
        for node in sorted(view.draining):
            for record in list(view.residents(node)):
                if record.phase is Phase.RUNNING and not self.draft.is_touched(record):
                    self._move(record)

    def _move(self, record: JobRecord) -> None:
        assert record.placement is not None
        self.draft.suspend(record)
        if record.placement.role is Role.GUARANTEED:
            placement = place_guaranteed(self.draft.space, record, self.rules.share)
        else:
            limit = self.rules.util_limit_ppm
            placement = SpareCycles(self.draft.space, self._busy, limit).place(record)
        if placement is None:
            self.draft.restore(record)
        else:
            self.draft.start(record, placement)
            self._busy_with(record, placement)

    def _look_again(self, time: int) -> None:
        self.again_at = time if self.again_at is None else min(self.again_at, time)


def gpus_of_unbearable(view: View, hosts: Iterable[Host]) -> set[int]:
    """The GPUs of these jobs, as far as they use no less of them than then."""
    found: set[int] = set()
    for job, used in hosts:
        host = view.jobs.get(job)
        if host is not None and host.placement is not None and utilisation(host) >= used:
            found.update(host.placement.gpus())
    return found


def _are_together(one: JobRecord, other: JobRecord) -> bool:
    """Whether they share a GPU."""
    if one.placement is None or other.placement is None:
        return False
    return not set(one.placement.gpus()).isdisjoint(other.placement.gpus())


def _tag(group: object) -> object:
    assert isinstance(group, tuple)
    return group[0]


def _spread(placement: Placement) -> tuple[int, int]:
    """How far apart its GPUs are."""
    return len(placement.nodes), -placement.span


def _key(record: JobRecord) -> Key:
    job = record.job
    return (-job.priority, job.submit_ms, job.submit_ms, record.seq)
