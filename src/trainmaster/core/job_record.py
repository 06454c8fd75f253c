"""What the controller knows of one live job."""

from __future__ import annotations

from trainmaster.core.lifecycle import ENDED, Phase
from trainmaster.model.job import Demand, Estimate, Job, Oracle, Run
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.profile import Profile
from trainmaster.model.progress import Sample
from trainmaster.model.units import NOMINAL, ceil_div


class JobRecord:
    """One live job. Only `core` changes it; policies read it."""

    __slots__ = (
        "attained",
        "attempt",
        "demand",
        "estimate",
        "failures",
        "first_start_ms",
        "frozen",
        "group",
        "id",
        "is_held",
        "is_moving",
        "is_unplanned",
        "is_whole",
        "job",
        "job_time_before",
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
        self.job_time_before = 0
        """`State.job_time_integral` when it was submitted, less the time that it was on hold."""
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
        self.is_unplanned = False
        """Whether its last suspension was not the policy's."""
        self.is_held = False
        """Whether it is not to be started: it is held, or will be once it is off its GPUs."""

    def take(self, job: Job) -> None:
        """The job as its owner wants it now; what was measured of its splits stays if it asks the same."""
        if job.demand != self.job.demand:
            self.demand = job.demand
            self.is_whole = job.demand.mode is Sharing.EXCLUSIVE
        self.job = job

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
