"""What the controller knows of one live job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from trainmaster.core.frozen_memory import KeptMemory
from trainmaster.core.lifecycle import ENDED, Phase
from trainmaster.model.codec import stored_as
from trainmaster.model.job import Demand, Estimate, Job, Oracle, Run
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.profile import Profile
from trainmaster.model.progress import Sample
from trainmaster.model.topology import GpuType
from trainmaster.model.units import MIB, NOMINAL, ceil_div

MEMORY_MARGIN_PERCENT = 10
"""What is booked on top of a measured peak: the next epoch may need more than the last."""


def with_margin(peak: int) -> int:
    """What to book for a run that used so many bytes."""
    return ceil_div(peak * (100 + MEMORY_MARGIN_PERCENT), 100 * MIB) * MIB


@stored_as("core.ScopeKey")
class ScopeKey(NamedTuple):
    """What a quota applies to: a queue, a user, or a user in a queue; the other is empty."""

    queue: str
    user: str


UNKNOWN_GUEST_PART = 4
"""An opportunistic job of unknown memory gets a quarter of the memory of a GPU that it shares."""


@dataclass(slots=True, eq=False)
class JobRecord:
    """One live job. Only `core` changes it; policies read it."""

    job: Job
    seq: int
    """Order of submission: the last tie-break of every policy."""
    group: int
    """Number of its demand: jobs of one group fit or do not fit alike."""
    estimate: Estimate | None
    oracle: Oracle | None
    id: str = field(init=False)
    siblings: list[JobRecord] = field(init=False, default_factory=list)
    """Jobs of its source submitted shortly before and after it, ended ones too; while it lives."""
    demand: Demand = field(init=False)
    """What it asks for now: until its pre-run has passed, one device."""
    demand_after_prerun: Demand | None = field(init=False, default=None)
    """What it asks for when its pre-run has passed; None: it needs none, or no more."""
    is_whole: bool = field(init=False)
    """Whether it wants GPUs for itself."""
    most_gpus: int | None = field(init=False, default=None)
    """More than these its program cannot use, as it has said; None: it has said nothing."""
    prerun_endings: int = field(init=False, default=0)
    """How often its pre-run was ended for others. It is left alone then: it might never end."""
    profile: Profile | None = field(init=False, default=None)
    samples: tuple[Sample, ...] = field(init=False, default=())
    """Reports of its progress, oldest first, where a policy asked for them."""
    phase: Phase = field(init=False, default=Phase.PENDING)
    attempt: int = field(init=False, default=0)
    run: Run = field(init=False)
    failures: int = field(init=False, default=0)
    losses: int = field(init=False, default=0)
    """How often it was lost in a row: without progress, or a failure of its own, in between."""
    retry_at_ms: int | None = field(init=False, default=None)
    """When it may be tried again after a failure or a loss; None = now."""
    over_quota: ScopeKey | None = field(init=False, default=None)
    """The quota that has no room for it, so that policies do not see it; None: all have."""
    kept_out_by: int | None = field(init=False, default=None)
    """The reservation that keeps it from all devices that it could use; None: none does."""
    avoid_until_ms: int | None = field(init=False, default=None)
    """Until when it waits for other devices than `demand.avoid`; None: it does not."""
    placement: Placement | None = field(init=False, default=None)
    """The GPUs allocated to it; None while it waits."""
    frozen: Placement | None = field(init=False, default=None)
    """Where a frozen run of it is bound."""
    kept: KeptMemory | None = field(init=False, default=None)
    """What its frozen run keeps; once it is thawed, what it kept when it was frozen last."""
    first_start_ms: int | None = field(init=False, default=None)
    since_ms: int | None = field(init=False, default=None)
    """When it began to make progress at its current speed; None while it makes none."""
    waiting_since_ms: int = field(init=False)
    """When it last began to wait; while it runs, when the wait before this run began."""
    run_since_ms: int | None = field(init=False, default=None)
    """When its current run started to train; None while it has none."""
    switch_ms: int = field(init=False, default=0)
    """What a switch cost when its current run started: `View.switch_ms` with its own start, if suspended."""
    suspend_ordered_ms: int | None = field(init=False, default=None)
    launched_ms: int | None = field(init=False, default=None)
    """When its present run was ordered to start."""
    job_time_before: int = field(init=False, default=0)
    """`State.job_time_integral` when it was submitted, less the time that it was on hold."""
    speed_ppm: int = field(init=False, default=0)
    is_speed_assumed: bool = field(init=False, default=False)
    """Whether its present speed has not been measured: it says nothing about its placement."""
    own_speeds: tuple[tuple[str, int], ...] = field(init=False, default=())
    """Its measured speed, alone and at its nominal size, on each type of device, where types differ."""
    rate: int = field(init=False, default=0)
    """Thousandths of a GPU that its attained service grows by while it runs."""
    attained: int = field(init=False, default=0)
    """Service received up to `since_ms`: thousandths of a GPU x ms of running."""
    attained_ms: int = field(init=False, default=0)
    """When it received the last of that, while it receives none."""
    work: int = field(init=False, default=0)
    """Work done up to `since_ms`: ms x parts per million."""
    saved_work: int = field(init=False, default=0)
    """Work in its last durable checkpoint: what is left if its run is lost."""
    saved_ms: int = field(init=False)
    """When the run last had no unsaved work: its last checkpoint, or its start from one."""
    preemptions: int = field(init=False, default=0)
    migrations: int = field(init=False, default=0)
    is_moving: bool = field(init=False, default=False)
    is_unplanned: bool = field(init=False, default=False)
    """Whether its last suspension was not the policy's."""
    cannot_save: bool = field(init=False, default=False)
    """Whether it loses what it has not saved when its run is ended: it has not shown that it saves."""
    lost_work: int = field(init=False, default=0)
    """Work that was lost because its runs were ended for others."""
    endings: int = field(init=False, default=0)
    """How often that happened."""
    protected_until_ms: int | None = field(init=False, default=None)
    """Until when policies must leave its run alone, so that its work is not lost (core/last_resort.py)."""
    is_held: bool = field(init=False, default=False)
    """Whether it is not to be started: it is held, or will be once it is off its GPUs."""
    may_end: bool = field(init=False, default=False)
    """Whether its run may be ended for that hold, even if its work is lost."""
    still_since_ms: int | None = field(init=False, default=None)
    """Since when its run has been held back wholly for a guaranteed one beside it; None: it makes steps."""
    freeze_refusals: int = field(init=False, default=0)
    """How often its present run was to be frozen and could not be."""
    is_without_mps: bool = field(init=False, default=False)
    """Whether its run shares its GPU by time-slicing, although it was placed to share it by MPS."""
    cannot_freeze: bool = field(init=False, default=False)
    """Whether its present run was found unable to be frozen, for as long as it runs."""
    no_freeze_before_ms: int = field(init=False, default=0)
    """When the next try to freeze its present run may be made."""

    def __post_init__(self) -> None:
        job = self.job
        self.id = job.id
        self.demand = job.demand
        self.is_whole = job.demand.mode is Sharing.EXCLUSIVE
        self.run = Run(job.id, 0)
        self.waiting_since_ms = self.saved_ms = job.submit_ms

    def take(self, job: Job) -> None:
        """Change the job as its owner asks; measured splits are kept if the demand is the same."""
        if job.demand != self.job.demand:
            was_prerun = self.is_prerun
            self.demand, self.demand_after_prerun = job.demand, None
            self.most_gpus = None
            self.is_whole = job.demand.mode is Sharing.EXCLUSIVE
            if was_prerun:
                self.begin_with_prerun()
        self.job = job

    @property
    def is_prerun(self) -> bool:
        """Whether its next run, or its present one, is its pre-run on one device."""
        return self.demand_after_prerun is not None

    def begin_with_prerun(self) -> None:
        """Ask for one device until a pre-run has passed, if it wants more; its runs have nothing to lose."""
        if self.demand.can_prerun:
            self.demand_after_prerun, self.demand = self.demand, self.demand.on_one_device()
            self.cannot_save = False

    def end_prerun(self, *, cannot_save: bool) -> None:
        """Ask for all devices from now on; what its pre-run did does not count as work."""
        assert self.demand_after_prerun is not None
        self.demand, self.demand_after_prerun = self.demand_after_prerun, None
        self.cannot_save = cannot_save
        self.samples = ()
        self.work = self.saved_work = 0

    @property
    def is_protected(self) -> bool:
        """Whether policies must not suspend, move or resize its run: its owner says so, or work is at stake.

        Policies have reasons of their own to leave a run alone for a while (`PreemptionGuards.may_preempt`).
        """
        is_again = self.is_prerun and self.prerun_endings > 0
        return self.protected_until_ms is not None or not self.job.preemptible or is_again

    @property
    def loses_work_elsewhere(self) -> bool:
        """Whether it has a run, running or frozen, that would lose its work if it were started elsewhere."""
        return self.cannot_save and (self.frozen is not None or self.placement is not None)

    @property
    def is_movable(self) -> bool:
        """Whether its frozen run could go on on other GPUs, where the engine can do that."""
        return self.kept is None or self.kept.is_movable

    @property
    def was_started(self) -> bool:
        """Whether it has run, or has a run that was frozen before it was seen to train."""
        return self.first_start_ms is not None or self.frozen is not None

    @property
    def util_ppm(self) -> int | None:
        """Part of a GPU's cycles that it keeps busy when alone: as stated, else as measured."""
        stated = self.job.gpu_util_ppm
        return stated if stated is not None or self.profile is None else self.profile.gpu_util_ppm

    @property
    def gpu_memory(self) -> int:
        """Bytes to book on each of its GPUs: as stated, else as measured, with a margin; 0 = unknown."""
        return self.demand.nominal.memory or self.measured_memory

    @property
    def measured_memory(self) -> int:
        """The top of what it is expected to need on each of its GPUs; 0 = unknown.

        Where it was seen to use more, or nothing was estimated: what it used, with a margin.
        """
        if self.profile is None:
            return 0
        peak, estimate = self.profile.gpu_memory, self.profile.memory_estimate
        return with_margin(peak) if estimate is None or estimate.high < peak else estimate.high

    def memory_on(self, kind: GpuType) -> int:
        """Bytes to book on a GPU of that type, at most all where they are measured or unknown."""
        return self.demand.nominal.memory or min(self.gpu_memory or kind.memory, kind.memory)

    def memory_beside(self, kind: GpuType) -> int:
        """Bytes to book there as a guest of other runs: a part of the GPU's where they are unknown."""
        return self.memory_on(kind) if self.gpu_memory else kind.memory // UNKNOWN_GUEST_PART

    def speed_on(self, kind: GpuType) -> int:
        """Its speed on devices of that type: as it was measured there, else the type's."""
        return dict(self.own_speeds).get(kind.name, kind.speed_ppm)

    @property
    def is_live(self) -> bool:
        return self.phase not in ENDED

    @property
    def may_start(self) -> bool:
        """Whether nothing keeps it from policies: a hold, a delay before a retry, a quota, a reservation."""
        is_free = self.over_quota is None and self.kept_out_by is None
        return is_free and not self.is_held and self.retry_at_ms is None

    def next_attempt(self) -> None:
        """Every launch is a new attempt: messages of the old one are ignored from now on."""
        self.take_run(Run(self.id, self.attempt + 1))

    def take_run(self, run: Run) -> None:
        """This is its run from now on, of which nothing is known yet."""
        self.attempt, self.run = run.attempt, run
        self.kept = self.still_since_ms = None
        self.is_without_mps = False
        self.freeze_refusals, self.cannot_freeze, self.no_freeze_before_ms = 0, False, 0

    def may_be_frozen(self, now: int) -> bool:
        """Whether a try to freeze its run may be made: none failed for good, or a short while ago."""
        return not self.cannot_freeze and now >= self.no_freeze_before_ms

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
        """When `needed` work will be done at its current speed, or at nominal speed while it waits."""
        left = max(0, needed - self.work_at(now))
        return now + ceil_div(left, self.speed_ppm if self.since_ms is not None else NOMINAL)

    def update_service(self, now: int) -> None:
        """Add the service and work since `since_ms`; the job makes no progress from now on."""
        if self.since_ms is not None:
            self.attained += (now - self.since_ms) * self.rate
            self.work += (now - self.since_ms) * self.speed_ppm
            self.since_ms, self.attained_ms = None, now

    def record_checkpoint(self, work: int, now: int) -> None:
        """This much of its work is in a durable checkpoint from now on."""
        if work > self.saved_work:
            self.losses = 0
        self.saved_work, self.saved_ms = work, now

    def progress(self, now: int, speed_ppm: int) -> None:
        """Make progress from now on at this speed."""
        self.since_ms = now
        self.speed_ppm = speed_ppm
        assert self.placement is not None
        self.rate = self.placement.total_share
