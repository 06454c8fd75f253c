"""Two jobs on the same GPUs at once, tried, measured, and undone where it does not pay (Gandiva).

Every job runs alone first: that is its profile. While jobs take turns on a server, the one that keeps a
GPU least busy is put onto the GPUs that are least busy, if the memory of both fits. After `trial_s` the
measured speeds decide: the pair stays iff together they do more than one of them alone at a time would,
that is, iff the sum of their speeds relative to alone is above 1.
A pair that failed is remembered, by jobs and by models, and not tried again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trainmaster.core.draft import Draft
from trainmaster.core.lifecycle import WAITING, Phase
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model.codec import stored_as
from trainmaster.model.placement import Placement, Role, Sharing
from trainmaster.model.units import NOMINAL, WHOLE
from trainmaster.placement.affinity import home_of
from trainmaster.policies.gandiva.server_index import ServerIndex
from trainmaster.policies.gandiva.time_slicing import TimeSlicing

Pair = tuple[str, str]
"""Two jobs, or two models, in order of their names."""
MODEL = "model "
"""What the name of a model begins with in a pair."""


@stored_as("gandiva.Packed")
@dataclass(frozen=True, slots=True)
class Packed:
    """A pair on shared GPUs."""

    guest: str
    """Who was put onto the other's GPUs."""
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


@dataclass(slots=True)
class TrialPacking:
    """The pairs of one pass: as remembered, and as changed."""

    view: View
    draft: Draft
    roster: ServerIndex
    shift: TimeSlicing
    trial_ms: int
    now: int
    pairs: dict[Pair, Packed]
    refuted: set[Pair]
    """Pairs of jobs and of models that were not worth it."""
    alone: dict[str, int]
    """Speed alone of every job that has ever been part of a pair."""
    by_job: dict[str, Packed] = field(init=False)

    def __post_init__(self) -> None:
        self.by_job = {}
        for pair in [pair for pair, packed in self.pairs.items() if not self._lasts(packed)]:
            del self.pairs[pair]
        for packed in self.pairs.values():
            self.by_job[packed.guest] = self.by_job[packed.host] = packed
            if not packed.is_kept:
                self.shift.fixed |= {packed.guest, packed.host}

    def _lasts(self, packed: Packed) -> bool:
        """Whether both live, and neither has gone on alone."""
        guest, host = self.view.jobs.get(packed.guest), self.view.jobs.get(packed.host)
        if guest is None or host is None:
            return False
        if guest.placement is None or host.placement is None:
            return packed.is_kept and guest.placement is host.placement
        return set(guest.placement.gpus()) == set(host.placement.gpus())

    # -- judging ---------------------------------------------------------------------------------

    def judge(self) -> None:
        """Keep the pairs that have proved themselves, and part those that have not."""
        for pair, packed in list(self.pairs.items()):
            guest, host = self.view.jobs[packed.guest], self.view.jobs[packed.host]
            if not self._is_measured(guest, host):
                continue
            rates = (guest.speed_ppm, packed.guest_alone, host.speed_ppm, packed.host_alone)
            if not is_worth_it(*rates):
                self._part(pair, guest, host)
            elif not packed.is_kept:
                self.pairs[pair] = Packed(
                    packed.guest, packed.host, packed.guest_alone, packed.host_alone, is_kept=True
                )

    def _is_measured(self, guest: JobRecord, host: JobRecord) -> bool:
        due = trial_end(guest, host, self.trial_ms)
        is_free = not self.draft.is_touched(guest) and not self.draft.is_touched(host)
        if due is None or due > self.now or not is_free:
            return False
        assert host.placement is not None
        return self.draft.space.closed.isdisjoint(host.placement.nodes)

    def _part(self, pair: Pair, guest: JobRecord, host: JobRecord) -> None:
        """Undo: the host has its GPUs for itself again, the guest waits for its turn there."""
        del self.pairs[pair]
        del self.by_job[guest.id], self.by_job[host.id]
        self.refuted.add(pair)
        if guest.job.model and host.job.model:
            self.refuted.add(models_of(guest, host))
        self.shift.suspend(guest)
        assert host.placement is not None
        self.draft.suspend(host)
        self.draft.start(host, _alone_on(host, host.placement))

    def part_where_idle(self) -> None:
        """Nobody waits: guests move to idle GPUs of their own where sharing slows them down."""
        for pair, packed in list(self.pairs.items()):
            guest, host = self.view.jobs[packed.guest], self.view.jobs[packed.host]
            if not packed.is_kept or not self._is_measured(guest, host):
                continue
            rates = (guest.speed_ppm, packed.guest_alone, host.speed_ppm, packed.host_alone)
            if score(*rates) * 100 >= 2 * 99 * NOMINAL:
                continue
            self.draft.suspend(guest)
            placement = self.shift.free_place(guest)
            if placement is None:
                self.draft.restore(guest)
            else:
                self.draft.start(guest, placement)
                self.roster.assume(guest, home_of(placement))
                del self.pairs[pair]

    # -- trying ----------------------------------------------------------------------------------

    def try_pairs(self) -> None:
        """On every server where somebody waits, one new pair: least busy job, least busy GPUs."""
        if not self.roster.packable:
            return
        by_node: dict[int, list[JobRecord]] = {}
        for record in self.roster.packable.values():
            home = self.roster.home(record)
            if home is not None and len(home) == 1 and self._is_profiled(record):
                by_node.setdefault(home[0][0], []).append(record)
        crowd = self._crowded()
        for node in sorted(by_node):
            if node in crowd:
                self._try_on(sorted(by_node[node], key=_least_busy_first))

    def _crowded(self) -> set[int]:
        """Servers that somebody waits for: his own, or all of his affinity if he has none yet."""
        found: set[int] = set()
        candidates = self.roster.line.candidates(self.now)
        for _, group, record in candidates:
            home = self.roster.home(record)
            if self.draft.is_touched(record):
                continue
            if home is not None:
                found |= {node for node, _ in home}
            elif record.is_whole:
                nodes = self.roster.servers.with_affinity(record.demand.nominal.count)
                found |= {node for node in range(nodes.bit_length()) if nodes >> node & 1}
                candidates.drop(group)
        return found

    def _try_on(self, jobs: list[JobRecord]) -> None:
        for guest in jobs:
            for host in jobs:
                if guest is not host and self._may_share(guest, host) and self._start(guest, host):
                    return

    def _is_profiled(self, record: JobRecord) -> bool:
        """Whether it has run alone for long enough, and its speed is that of running alone."""
        if record.id in self.by_job or self.draft.is_touched(record):
            return False
        if record.job.role is not Role.GUARANTEED:
            return False
        if record.phase in WAITING:
            return record.first_start_ms is not None
        since = record.run_since_ms
        is_running = record.phase is Phase.RUNNING and since is not None
        return is_running and self.now - (since or 0) >= self.trial_ms

    def _may_share(self, guest: JobRecord, host: JobRecord) -> bool:
        if host.placement is None or guest.id in self.by_job or host.id in self.by_job:
            return False
        if guest.demand.nominal.count != len(host.placement.slices):
            return False
        if self.shift.guards.is_protected(guest, self.now):
            return False
        models = models_of(guest, host)
        return self.refuted.isdisjoint((pair_of(guest.id, host.id), models))

    def _start(self, guest: JobRecord, host: JobRecord) -> bool:
        """Put both onto the host's GPUs, if they fit there together."""
        where = host.placement
        assert where is not None
        for record in (guest, host):
            self.alone[record.id] = self._alone(record)
        packed = Packed(guest.id, host.id, self.alone[guest.id], self.alone[host.id])
        going = [record for record in (guest, host) if record.placement is not None]
        if where == _half_of(host, where):
            going.remove(host)  # it shares already, with one that has ended
        for record in going:
            self.draft.suspend(record)
        joining = [record for record in (host, guest) if record is guest or record in going]
        if not self._place(joining, where):
            for record in reversed(going):
                self.draft.restore(record)
            return False
        self.pairs[packed.pair] = self.by_job[guest.id] = self.by_job[host.id] = packed
        self.shift.fixed |= {guest.id, host.id}
        return True

    def _alone(self, record: JobRecord) -> int:
        """What it does alone: measured now, or before it first shared."""
        is_alone = record.placement is not None and record.placement.sharing is Sharing.EXCLUSIVE
        return record.speed_ppm if is_alone else self.alone.get(record.id, record.speed_ppm)

    def start_pair(self, one: JobRecord, other: JobRecord, where: Placement) -> None:
        """Start both on these idle GPUs; the first alone where the memory is not there."""
        if not self._place([one, other], where):
            self.draft.start(one, where)

    def _place(self, records: list[JobRecord], where: Placement) -> bool:
        """Start them on these GPUs, half of each for each, or leave all as it is."""
        space, mark = self.draft.space, self.draft.checkpoint()
        for record in records:
            placement = _half_of(record, where)
            if space.refusal(placement, record.demand) is not None:
                self.draft.roll_back(mark)
                return False
            self.draft.start(record, placement)
        for record in records:
            self.roster.assume(record, home_of(where))
        return True

    def partner(self, record: JobRecord) -> JobRecord | None:
        """Who shares its GPUs whenever both run."""
        packed = self.by_job.get(record.id)
        if packed is None:
            return None
        return self.view.jobs[packed.host if packed.guest == record.id else packed.guest]


def trial_end(guest: JobRecord, host: JobRecord, trial_ms: int) -> int | None:
    """When both will have run side by side for long enough; None while they do not."""
    if guest.phase is not Phase.RUNNING or host.phase is not Phase.RUNNING:
        return None
    assert guest.run_since_ms is not None
    assert host.run_since_ms is not None
    return max(guest.run_since_ms, host.run_since_ms) + trial_ms


def trial_ends(
    jobs: Mapping[str, JobRecord], pairs: Mapping[Pair, Packed], trial_ms: int
) -> Iterator[int]:
    """When each unmeasured pair will have been measured."""
    for packed in pairs.values():
        guest, host = jobs.get(packed.guest), jobs.get(packed.host)
        if not packed.is_kept and guest is not None and host is not None:
            due = trial_end(guest, host, trial_ms)
            if due is not None:
                yield due


def _least_busy_first(record: JobRecord) -> tuple[int, int]:
    return (record.job.gpu_util_ppm or 0, record.seq)


def _half_of(record: JobRecord, where: Placement) -> Placement:
    memory = record.demand.nominal.memory
    slices = tuple(piece._replace(share=WHOLE // 2, memory=memory) for piece in where.slices)
    return Placement(slices, where.span, Sharing.TIME, record.job.role)


def _alone_on(record: JobRecord, where: Placement) -> Placement:
    memory = record.demand.nominal.memory
    slices = tuple(piece._replace(share=WHOLE, memory=memory) for piece in where.slices)
    return Placement(slices, where.span, Sharing.EXCLUSIVE, record.job.role)
