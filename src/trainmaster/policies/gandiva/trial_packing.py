"""Two jobs on the same GPUs at once, tried, measured, and undone where it does not pay (Gandiva).

Every job runs alone first: that is its profile. While jobs take turns on a server, the one that keeps a
GPU least busy is put onto the GPUs that are least busy, if the memory of both fits. After `trial_s` the
measured speeds decide: the pair stays iff together they do more than one of them alone at a time would,
that is, iff the sum of their speeds relative to alone is above 1.
A pair that failed is remembered, by jobs and by models, and not tried again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import permutations

from trainmaster.core.lifecycle import WAITING
from trainmaster.core.state import JobRecord
from trainmaster.model.codec import stored_as
from trainmaster.model.packing_score import Evidence, PackingScore, Verdict
from trainmaster.model.placement import Placement, Role, Sharing
from trainmaster.model.units import NOMINAL, WHOLE
from trainmaster.placement.gang import bits
from trainmaster.policies.gandiva.affinity import home_of
from trainmaster.policies.gandiva.time_slicing import TimeSlicing, measured_at

Pair = tuple[str, str]
"""Two jobs, or two models, in order of their names."""
MODEL = "model "
"""What the name of a model begins with in a pair."""


@stored_as("gandiva.Packed")
@dataclass(frozen=True, slots=True)
class Packed:
    """A pair on shared GPUs."""

    guest: str
    """The job that was put onto the other's GPUs."""
    host: str
    guest_alone: int
    """Its speed alone, in parts per million."""
    host_alone: int
    is_kept: bool = False
    """Whether it has been measured and found worth it."""

    @property
    def pair(self) -> Pair:
        return pair_of(self.guest, self.host)


def pair_of(one: str, other: str) -> Pair:
    return (one, other) if one <= other else (other, one)


def models_of(one: JobRecord, other: JobRecord) -> Pair:
    return pair_of(MODEL + one.job.model, MODEL + other.job.model)


def score(guest: int, guest_alone: int, host: int, host_alone: int) -> int:
    """What both do together, in parts per million of what either would do alone."""
    return guest * NOMINAL // max(1, guest_alone) + host * NOMINAL // max(1, host_alone)


def is_worth_it(guest: int, guest_alone: int, host: int, host_alone: int) -> bool:
    """Whether packed speeds beat taking turns, which makes 1 in all."""
    return score(guest, guest_alone, host, host_alone) > NOMINAL


class TrialPacking:
    """The pairs of one pass: as remembered, and as changed."""

    def __init__(
        self,
        slicing: TimeSlicing,
        trial_ms: int,
        pairs: Mapping[Pair, Packed],
        refuted: Iterable[Pair],
        alone: Mapping[str, int],
    ) -> None:
        self.slicing = slicing
        self.draft, self.jobs, self.now = slicing.draft, slicing.view.jobs, slicing.now
        self.index = slicing.index
        self.trial_ms = trial_ms
        self.pairs = {pair: packed for pair, packed in pairs.items() if self._lasts(packed)}
        self.refuted = set(refuted)
        """Pairs of jobs and of models that were not worth it."""
        self.alone = dict(alone)
        """Speed alone of every job that has ever been part of a pair."""
        self.by_job: dict[str, Packed] = {}
        for packed in self.pairs.values():
            self._record(packed)
            if not packed.is_kept:
                slicing.fixed |= {packed.guest, packed.host}
        slicing.partner, slicing.start_pair = self._partner, self._start_pair

    def _record(self, packed: Packed) -> None:
        self.pairs[packed.pair] = self.by_job[packed.guest] = self.by_job[packed.host] = packed

    def _lasts(self, packed: Packed) -> bool:
        """Whether both live, and neither has gone on alone."""
        guest, host = self.jobs.get(packed.guest), self.jobs.get(packed.host)
        if guest is None or host is None:
            return False
        if guest.placement is None or host.placement is None:
            return packed.is_kept and guest.placement is host.placement
        return set(guest.placement.gpus()) == set(host.placement.gpus())

    # -- judging ---------------------------------------------------------------------------------

    def judge(self) -> None:
        """Keep the pairs that gain, and separate the others."""
        for packed, guest, host, rates in self._measured():
            if not is_worth_it(*rates):
                self._separate(packed.pair, guest, host)
            elif not packed.is_kept:
                self.pairs[packed.pair] = replace(packed, is_kept=True)

    def _measured(self) -> Iterator[tuple[Packed, JobRecord, JobRecord, tuple[int, int, int, int]]]:
        """Pairs that have run side by side for long enough: guest, host, and speeds now and alone."""
        for packed in list(self.pairs.values()):
            guest, host = self.jobs[packed.guest], self.jobs[packed.host]
            due = measured_at((guest, host), self.trial_ms)
            if due is None or due > self.now:
                continue
            if self.draft.is_touched(guest) or self.draft.is_touched(host):
                continue
            assert host.placement is not None
            if self.draft.space.is_open(host.placement):
                speeds = (guest.speed_ppm, packed.guest_alone, host.speed_ppm, packed.host_alone)
                yield packed, guest, host, speeds

    def _separate(self, pair: Pair, guest: JobRecord, host: JobRecord) -> None:
        """Undo: the host has its GPUs for itself again, the guest waits for its turn there."""
        del self.pairs[pair]
        del self.by_job[guest.id], self.by_job[host.id]
        self.refuted.add(pair)
        if guest.job.model and host.job.model:
            self.refuted.add(models_of(guest, host))
        self.slicing.suspend(guest)
        assert host.placement is not None
        self.draft.suspend(host)
        self.draft.start(host, _on_gpus_of(host.placement, host, WHOLE, Sharing.EXCLUSIVE))

    def separate_if_idle(self) -> None:
        """No job waits: guests move to idle GPUs of their own where sharing slows them down."""
        for packed, guest, _, rates in self._measured():
            if not packed.is_kept or score(*rates) * 100 >= 2 * 99 * NOMINAL:
                continue
            self.draft.suspend(guest)
            placement = self.slicing.free_place(guest)
            if placement is None:
                self.draft.restore(guest)
            else:
                self.draft.start(guest, placement)
                self.index.assume(guest, home_of(placement))
                del self.pairs[packed.pair]

    # -- trying ----------------------------------------------------------------------------------

    def try_pairs(self) -> None:
        """On every server that jobs wait for, one new pair: least busy job, least busy GPUs."""
        if not self.index.packable:
            return
        by_node: dict[int, list[JobRecord]] = {}
        for record in self.index.packable.values():
            home = self.index.home(record)
            if home is not None and len(home) == 1 and self._is_profiled(record):
                by_node.setdefault(home[0][0], []).append(record)
        for node in sorted(self._crowded().intersection(by_node)):
            jobs = sorted(by_node[node], key=lambda job: (job.util_ppm or 0, job.seq))
            for one, other in permutations(jobs, 2):
                if self._may_share(one, other) and self._start(one, other):
                    break

    def _crowded(self) -> set[int]:
        """Servers that jobs wait for: their own, or all of their affinity if they have none yet."""
        found: set[int] = set()
        candidates = self.index.line.candidates(self.now)
        for _, group, record in candidates:
            home = self.index.home(record)
            if self.draft.is_touched(record):
                continue
            if home is not None:
                found |= {node for node, _ in home}
            elif record.is_whole:
                nodes = self.index.servers.with_affinity(record.demand.nominal.count)
                found.update(bits(nodes))
                candidates.drop(group)
        return found

    def _is_profiled(self, record: JobRecord) -> bool:
        """Whether it has run alone for long enough, and its speed is that of running alone."""
        if record.id in self.by_job or self.draft.is_touched(record):
            return False
        if record.job.role is not Role.GUARANTEED:
            return False
        if record.phase in WAITING:
            return record.first_start_ms is not None
        if record.profile is not None and record.profile.gpu_util_ppm is not None:
            return True  # measured while it was alone
        due = measured_at((record,), self.trial_ms)
        return due is not None and due <= self.now

    def _may_share(self, guest: JobRecord, host: JobRecord) -> bool:
        if host.placement is None or guest.id in self.by_job or host.id in self.by_job:
            return False
        if guest.demand.nominal.count != len(host.placement.slices):
            return False
        if not self.slicing.guards.may_preempt(guest, self.now):
            return False
        if any(self._loses_work(each, host.placement) for each in (guest, host)):
            return False
        return self.refuted.isdisjoint((pair_of(guest.id, host.id), models_of(guest, host)))

    def _loses_work(self, record: JobRecord, where: Placement) -> bool:
        """Whether it would lose its work if it shared these GPUs; CPU slots it may change."""
        return self.draft.view.loses_work_at(record, _half_of(where, record))

    def _start(self, guest: JobRecord, host: JobRecord) -> bool:
        """Put both onto the host's GPUs, if they fit there together."""
        where = host.placement
        assert where is not None
        for record in (guest, host):
            self.alone[record.id] = self._alone(record)
        packed = Packed(guest.id, host.id, self.alone[guest.id], self.alone[host.id])
        going = [record for record in (guest, host) if record.placement is not None]
        if where == _half_of(where, host):
            going.remove(host)  # it shares already, with one that has ended
        for record in going:
            self.draft.suspend(record)
        joining = [record for record in (host, guest) if record is guest or record in going]
        if not self._place(joining, where):
            for record in reversed(going):
                self.draft.restore(record)
            return False
        self._record(packed)
        self.slicing.fixed |= {guest.id, host.id}
        return True

    def _alone(self, record: JobRecord) -> int:
        """What it does alone: measured now, or before it first shared."""
        is_alone = record.placement is not None and record.placement.sharing is Sharing.EXCLUSIVE
        return record.speed_ppm if is_alone else self.alone.get(record.id, record.speed_ppm)

    def _start_pair(self, one: JobRecord, other: JobRecord, where: Placement) -> None:
        """Start both on these idle GPUs; the first alone where the memory is not there."""
        if not self._place([one, other], where):
            self.draft.start(one, where)

    def _place(self, records: list[JobRecord], where: Placement) -> bool:
        """Start them on these GPUs, half of each for each, or leave all as it is."""
        space, mark = self.draft.space, self.draft.checkpoint()
        for record in records:
            placement = _half_of(where, record)
            if space.refusal(placement, record.demand) is not None:
                self.draft.roll_back(mark)
                return False
            self.draft.start(record, placement)
        for record in records:
            self.index.assume(record, home_of(where))
        return True

    def _partner(self, record: JobRecord) -> JobRecord | None:
        """The job that shares its GPUs whenever both run."""
        packed = self.by_job.get(record.id)
        if packed is None:
            return None
        return self.jobs[packed.host if packed.guest == record.id else packed.guest]


def packing_scores(
    jobs: Mapping[str, JobRecord],
    pairs: Iterable[Packed],
    refuted: Iterable[Pair],
    record: JobRecord,
) -> tuple[PackingScore, ...]:
    """The pair that a job is part of, and those that were undone."""
    found: list[PackingScore] = []
    for packed in pairs:
        guest, host = jobs.get(packed.guest), jobs.get(packed.host)
        if guest is None or host is None or record not in (guest, host):
            continue
        other = host if record is guest else guest
        if not packed.is_kept:
            found.append(PackingScore((other.id,), Verdict.ON_TRIAL))
            continue
        mine, beside = (
            each.speed_ppm * NOMINAL // max(1, alone)
            for each, alone in (
                (record, packed.guest_alone if record is guest else packed.host_alone),
                (other, packed.host_alone if record is guest else packed.guest_alone),
            )
        )
        found.append(PackingScore((other.id,), Verdict.PACKED, (beside, mine), Evidence.MEASURED))
    undone = [each for pair in refuted if record.id in pair for each in pair if each != record.id]
    live = sorted(each for each in undone if each in jobs)
    return (*found, *(PackingScore((each,), Verdict.UNDONE) for each in live))


def _on_gpus_of(where: Placement, record: JobRecord, share: int, sharing: Sharing) -> Placement:
    """So much of each GPU of a placement for a job."""
    is_shared = sharing is not Sharing.EXCLUSIVE
    memory = record.gpu_memory if is_shared else record.demand.nominal.memory
    slices = tuple(piece._replace(share=share, memory=memory) for piece in where.slices)
    return Placement(slices, where.span, sharing, record.job.role)


def _half_of(where: Placement, record: JobRecord) -> Placement:
    return _on_gpus_of(where, record, WHOLE // 2, Sharing.TIME)
