"""What the controller knows: a record per live job, the occupancy, nodes, queues and promises."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.core.lifecycle import EDGES, ENDED, WAITING, Cause, LifecycleError, Phase
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.siblings import Sources
from trainmaster.model.actions import Order, Reserve
from trainmaster.model.job import Demand, Estimate, Job, Oracle, Run
from trainmaster.model.placement import Placement, Sharing, Slice
from trainmaster.model.profile import Profile
from trainmaster.model.progress import Sample
from trainmaster.model.queue import Queue
from trainmaster.model.reasons import Refused
from trainmaster.model.topology import Topology
from trainmaster.model.units import MIB, NOMINAL, SECOND, ceil_div

FROZEN_GPU_MEMORY = 4 * MIB
"""What a run frozen by the CUDA driver leaves on each GPU (measured, docs/design/0001)."""
PROMISE_SLACK = 60 * SECOND
"""How long after its grace period a release may still come before its node is set aside."""


class JobRecord:
    """One live job. Only `core` changes it; policies read it."""

    __slots__ = (
        "attained",
        "attempt",
        "crowd_before",
        "demand",
        "estimate",
        "failures",
        "first_start_ms",
        "frozen",
        "group",
        "id",
        "is_moving",
        "is_whole",
        "job",
        "launched_ms",
        "migrations",
        "oracle",
        "phase",
        "placement",
        "preemptions",
        "profile",
        "rate",
        "run",
        "run_since_ms",
        "samples",
        "saved_ms",
        "saved_work",
        "seq",
        "siblings",
        "since_ms",
        "speed_ppm",
        "suspend_ordered_ms",
        "waiting_since_ms",
        "work",
    )

    def __init__(
        self, job: Job, seq: int, group: int, estimate: Estimate | None, oracle: Oracle | None
    ) -> None:
        self.job = job
        self.id = job.id
        self.seq = seq
        """Order of submission: the last tie-break of every policy."""
        self.siblings: list[JobRecord] = []
        """Jobs of its source submitted shortly before and after it, ended ones too; while it lives."""
        self.group = group
        """Number of its demand: jobs of one group fit or do not fit alike."""
        self.demand: Demand = job.demand
        self.is_whole = job.demand.mode is Sharing.EXCLUSIVE
        """Whether it wants GPUs for itself."""
        self.estimate = estimate
        self.oracle = oracle
        self.profile: Profile | None = None
        self.samples: tuple[Sample, ...] = ()
        """Reports of its progress, oldest first, where a policy asked for them."""
        self.phase = Phase.PENDING
        self.attempt = 0
        self.run = Run(job.id, 0)
        self.failures = 0
        self.placement: Placement | None = None
        """What it is entitled to; None while it waits."""
        self.frozen: Placement | None = None
        """Where a frozen run of it is bound."""
        self.first_start_ms: int | None = None
        self.since_ms: int | None = None
        """When it began to make progress at the present speed; None while it does not."""
        self.waiting_since_ms = job.submit_ms
        """When it last began to wait; while it runs, when the wait before this run began."""
        self.run_since_ms: int | None = None
        """When the present run started; None while it has none that trains."""
        self.suspend_ordered_ms: int | None = None
        self.launched_ms: int | None = None
        """When its present run was ordered to start."""
        self.crowd_before = 0
        """Job-milliseconds of crowd before it was submitted."""
        self.speed_ppm = 0
        self.rate = 0
        """Thousandths of a GPU that its attained service grows by while it runs."""
        self.attained = 0
        """Service received up to `since_ms`: thousandths of a GPU x ms of running."""
        self.work = 0
        """Work done up to `since_ms`: ms x parts per million."""
        self.saved_work = 0
        """Work that a durable checkpoint keeps: what is left should its run be gone."""
        self.saved_ms = job.submit_ms
        """When that was last all there was: its last save, or the start from it."""
        self.preemptions = 0
        self.migrations = 0
        self.is_moving = False

    @property
    def is_live(self) -> bool:
        return self.phase not in ENDED

    def next_attempt(self) -> None:
        """Every launch is a new attempt: messages of the old one are ignored from now on."""
        self.attempt += 1
        self.run = Run(self.id, self.attempt)

    def attained_at(self, now: int) -> int:
        """Service received so far, in thousandths of a GPU x ms."""
        if self.since_ms is None:
            return self.attained
        return self.attained + (now - self.since_ms) * self.rate

    def work_at(self, now: int) -> int:
        if self.since_ms is None:
            return self.work
        return self.work + (now - self.since_ms) * self.speed_ppm

    def finish_at(self, needed: int, now: int) -> int:
        """When `needed` work will be done at the present speed, at nominal speed while it waits."""
        left = max(0, needed - self.work_at(now))
        return now + ceil_div(left, self.speed_ppm if self.since_ms is not None else NOMINAL)

    def accrue(self, now: int) -> None:
        """Credit what has been done since, and stand still."""
        if self.since_ms is not None:
            self.attained += (now - self.since_ms) * self.rate
            self.work += (now - self.since_ms) * self.speed_ppm
            self.since_ms = None

    def saved(self, work: int, now: int) -> None:
        """So much of its work is durable from now on."""
        self.saved_work, self.saved_ms = work, now

    def unsaved_at(self, now: int) -> int:
        """Work that is gone if its run is."""
        return max(0, self.work_at(now) - self.saved_work)

    def progress(self, now: int, speed_ppm: int) -> None:
        """Make progress from now on at this speed."""
        self.since_ms = now
        self.speed_ppm = speed_ppm
        assert self.placement is not None
        self.rate = self.placement.total_share


@dataclass(slots=True)
class Switches:
    """How long runs have taken to let go of GPUs, and others to begin to train on them."""

    suspensions: int = 0
    suspending_ms: int = 0
    launches: int = 0
    launching_ms: int = 0

    @property
    def mean_ms(self) -> int:
        """GPU time that a change of hands costs on each GPU, as far as seen."""
        out = self.suspending_ms // self.suspensions if self.suspensions else 0
        return out + (self.launching_ms // self.launches if self.launches else 0)


@dataclass(slots=True)
class Promise:
    """A launch held back until every run still on its GPUs has left them."""

    record: JobRecord
    awaiting: set[Run]
    expires_ms: int


class State:
    """All of it. Changed only by the reducer and by admitted plans."""

    def __init__(
        self, topology: Topology, *, can_freeze: bool = False, saves_on_demand: bool = True
    ) -> None:
        self.topology = topology
        self.can_freeze = can_freeze
        self.saves_on_demand = saves_on_demand
        """Whether a run that is suspended saves first; else it falls back to its last checkpoint."""
        self.occupancy = Occupancy(topology, can_freeze=can_freeze)
        self.jobs: dict[str, JobRecord] = {}
        self.residents: list[dict[int, JobRecord]] = [{} for _ in topology.nodes]
        """Per node: the jobs entitled to GPUs there, by seq."""
        self.touched: set[int] = set()
        """Nodes where room may have come up since a policy last took note."""
        self.queues: dict[str, Queue] = {}
        self.groups: dict[Demand, int] = {}
        self._group_of: dict[int, tuple[Demand, int]] = {}
        """The same by identity: hashing a demand anew for each job is slow."""
        self.promises: dict[str, Promise] = {}
        self.awaited: dict[Run, list[str]] = {}
        """Jobs whose promised launch waits for a run to leave, or did."""
        self.releasing: dict[int, set[Run]] = {}
        """Runs that have been told to leave a GPU and have not said yet that they did."""
        self.leaving: dict[Run, tuple[Slice, ...]] = {}
        """The same by run: what it has been told to leave."""
        self.reservations: dict[str, Reserve] = {}
        self.draining: set[int] = set()
        self.away: set[int] = set()
        self.set_aside: dict[int, set[Run]] = {}
        """Nodes that broke a promise, with the runs that overstayed."""
        self.submitted = 0
        self.crowd = 0
        """Job-milliseconds: how many jobs were live, summed over all time so far."""
        self.switches = Switches()
        self.sources = Sources()
        self.waiting = 0
        """Jobs that hold nothing and may be started."""
        self.changed: dict[int, JobRecord] = {}
        """Records whose place in line may have changed since the last pass."""
        self.stirred: set[str] = set()
        """Queues of such records; unlike those, kept until a pass has been made."""
        self.needs_pass = False
        self.has_news = False
        """Whether the present pass was called for by facts, not by mere passing of time."""
        self.is_quiet = False
        """Whether the last pass found nothing to do."""
        self.outbox: list[Order] = []
        self.ended: list[JobRecord] = []
        """Jobs that have ended since the last pass."""
        self.given_up: list[tuple[str, Phase]] = []
        """Jobs that ended in this step, failed or cancelled."""

    def group_of(self, demand: Demand) -> int:
        """The number of this demand: equal demands have equal numbers."""
        known = self._group_of.get(id(demand))
        if known is None:
            known = (demand, self.groups.setdefault(demand, len(self.groups)))
            self._group_of[id(demand)] = known
        return known[1]

    def move(self, record: JobRecord, cause: Cause) -> None:
        """Follow the edge of the lifecycle table, or fail loudly."""
        old = record.phase
        new = EDGES[old].get(cause)
        if new is None:
            raise LifecycleError(f"job {record.id}: no edge from {old.name} by {cause.name}")
        record.phase = new
        self.waiting += (new in WAITING) - (old in WAITING)
        self.note_change(record)

    def note_change(self, record: JobRecord) -> None:
        """Its place in line may be another one now."""
        self.changed[record.seq] = record
        self.stirred.add(record.job.queue)

    def end(self, record: JobRecord, cause: Cause) -> None:
        """Let go of everything and forget the job."""
        self.let_go(record)
        self.drop_reservation(record.id)
        self.move(record, cause)
        assert record.phase in ENDED
        if record.phase is not Phase.SUCCEEDED:
            self.given_up.append((record.id, record.phase))
        del self.jobs[record.id]
        self.ended.append(record)
        self.needs_pass = True

    def forget_ended(self) -> None:
        """A pass has taken note of the jobs that ended before it."""
        for record in self.ended:
            record.siblings = []
        self.ended = []

    def let_go(self, record: JobRecord) -> None:
        """Give its entitlement and whatever a frozen run of it keeps back to the cluster."""
        if record.placement is not None:
            self.disentitle(record)
        if record.frozen is not None:
            self.forget_frozen(record)
        if self.promises:
            self.promises.pop(record.id, None)

    def entitle(self, record: JobRecord, placement: Placement) -> Refused | None:
        """These slices are the job's from now on, unless something is in the way: then why."""
        thaws = self.resumes_in_place(record, placement)
        if thaws:
            self._leave_behind(record, -1)
        why = self.occupancy.refusal(placement, record.demand)
        if why is not None:
            if thaws:
                self._leave_behind(record, 1)
            return why
        self._take(record, placement)
        return None

    def restore(self, record: JobRecord, placement: Placement) -> None:
        """Give back what was just taken from it, even on a node that is closed to others."""
        if self.resumes_in_place(record, placement):
            self._leave_behind(record, -1)
        self._take(record, placement)

    def _take(self, record: JobRecord, placement: Placement) -> None:
        self.occupancy.book(placement, record.demand)
        record.placement = placement
        last = None
        for piece in placement.slices:
            if piece.node != last:
                last = piece.node
                self.residents[last][record.seq] = record

    def disentitle(self, record: JobRecord) -> Placement:
        """The job's slices are free for others; returns what it had."""
        placement = record.placement
        assert placement is not None
        self.occupancy.unbook(placement, record.demand)
        record.placement = None
        last = None
        for piece in placement.slices:
            if piece.node != last:
                last = piece.node
                self.residents[last].pop(record.seq, None)
                self.touched.add(last)
        if record.frozen is not None and self.resumes_in_place(record, placement):
            self._leave_behind(record, 1)
        return placement

    def resumes_in_place(self, record: JobRecord, placement: Placement) -> bool:
        """Whether a frozen run of it, not told to leave, could be thawed there."""
        frozen = record.frozen
        return (
            frozen is not None
            and frozen.slices == placement.slices
            and record.run not in self.leaving
        )

    def open_node(self, node: int) -> None:
        """Offer a node again, unless another reason keeps it closed."""
        if node in self.draining or node in self.away or node in self.set_aside:
            return
        self.occupancy.open(node)
        self.touched.add(node)
        self.needs_pass = True

    def touch(self, record: JobRecord) -> None:
        """Its rank may have fallen: others may now come before it on its nodes."""
        if record.placement is not None:
            self.touched.update([piece.node for piece in record.placement.slices])

    def freeze(self, record: JobRecord, placement: Placement) -> None:
        """Its run stays bound to its node, and books what it leaves there."""
        record.frozen = placement
        self._leave_behind(record, 1)

    def forget_frozen(self, record: JobRecord) -> None:
        """Nothing of its frozen run is left."""
        self._leave_behind(record, -1)
        record.frozen = None

    def _leave_behind(self, record: JobRecord, sign: int) -> None:
        """Book (1) or unbook (-1) what a frozen run keeps on its GPUs and in host memory."""
        assert record.frozen is not None
        host = self.frozen_host(record, record.frozen)
        self.touched.update([piece.node for piece in record.frozen.slices])
        gpus = record.frozen.gpus()
        self.occupancy.leave_behind(gpus, sign * FROZEN_GPU_MEMORY, sign * host)

    def frozen_host(self, record: JobRecord, placement: Placement) -> int:
        """Host memory per GPU that holds the frozen run's GPU memory."""
        return frozen_host(self.topology, record.demand, placement)

    def drop_reservation(self, job: str) -> None:
        reservation = self.reservations.pop(job, None) if self.reservations else None
        if reservation is not None:
            self.occupancy.give_back(reservation.slices)
            self.touched.update([piece.node for piece in reservation.slices])


def frozen_host(topology: Topology, demand: Demand, placement: Placement) -> int:
    """Host memory per GPU that a run frozen there would hold: its GPU memory."""
    return demand.nominal.memory or topology.type_of_gpu[placement.slices[0].gpu].memory
