"""What a simulation found: one record per job, the summary of the contract, and curves over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from trainmaster.model.deadline_notices import DeadlineNotice
from trainmaster.model.failure_report import SimulatedFailures


class Status(Enum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNFINISHED = "unfinished"
    REJECTED = "rejected"


class Verdict(Enum):
    """What a policy made of a deadline."""

    ACCEPTED = "accepted"
    DECLINED = "declined"
    NONE = "none"
    """There was none, or the policy does not judge deadlines."""


@dataclass(frozen=True, slots=True)
class DeadlineResult:
    """The notices about a job's deadline, and whether it was met; times in ms."""

    deadline_ms: int
    is_asked: bool = True
    """Whether it was ever asked for: not by a job that was rejected, or not submitted by the horizon."""
    verdict: Verdict = Verdict.NONE
    predicted_finish_ms: int | None = None
    """At the latest, as it was said when the deadline was accepted."""
    feasible_ms: int | None = None
    """The earliest deadline that could have been accepted."""
    is_met: bool | None = None
    """None while the job is unfinished and its deadline has not passed, or if it was never asked for."""
    warned_ms: int | None = None
    """When it was first said that an accepted one would be missed."""
    notices: tuple[tuple[int, DeadlineNotice], ...] = ()
    """All notices, with their times."""

    @property
    def is_late(self) -> bool:
        """Accepted, and missed."""
        return self.verdict is Verdict.ACCEPTED and self.is_met is False

    @property
    def is_silently_late(self) -> bool:
        """Accepted and missed without a warning before the deadline."""
        is_warned = self.warned_ms is not None and self.warned_ms <= self.deadline_ms
        return self.is_late and not is_warned


@dataclass(frozen=True, slots=True)
class JobResult:
    """One job's story in numbers; times in ms, GPU time in thousandths of a GPU x ms."""

    job_id: str
    queue: str
    gpus_milli: int
    """Nominal size in thousandths of a GPU."""
    service_ms: int
    submit_ms: int
    start_ms: int | None
    finish_ms: int | None
    suspended_ms: int
    held: int
    """GPU time held: thousandths of a GPU x ms."""
    preemptions: int
    migrations: int
    status: Status
    rho: float | None
    cost: float | None = None
    """The price of the GPU time it held, by share; None where GPUs have no price."""
    cost_wasted: float | None = None
    """The part of it that went into switching, lost work and failed runs."""
    deadline: DeadlineResult | None = None

    @property
    def jct_ms(self) -> int | None:
        return None if self.finish_ms is None else self.finish_ms - self.submit_ms

    @property
    def queue_ms(self) -> int | None:
        return None if self.start_ms is None else self.start_ms - self.submit_ms


@dataclass(frozen=True, slots=True)
class Summary:
    """The `summary` of the JSON contract; None where the contract says null."""

    jobs: int
    finished: int
    rejected: int
    unfinished: int
    load: float | None
    avg_jct_s: float | None
    avg_excess_s: float | None
    avg_jct_lower_bound_s: float | None
    p50_jct_s: float | None
    p95_jct_s: float | None
    p99_jct_s: float | None
    avg_queue_s: float | None
    makespan_s: float | None
    gpu_util: float | None
    gpu_hours_wasted: float
    preemptions: int
    migrations: int
    max_rho: float | None
    p99_rho: float | None
    jain_index: float | None
    events: int
    cost: float | None = None
    """Of all jobs."""
    cost_wasted: float | None = None
    cost_idle: float | None = None
    """Of GPUs that no job held, over the makespan."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Jobs of one size class."""

    label: str
    jobs: int
    avg_jct_s: float | None
    p50_jct_s: float | None
    p95_jct_s: float | None
    avg_queue_s: float | None


@dataclass(frozen=True, slots=True)
class QueueCost:
    """What the jobs of one queue held and cost."""

    queue: str
    jobs: int
    gpu_s: float
    cost: float | None
    cost_wasted: float | None


@dataclass(frozen=True, slots=True)
class SizeDelays:
    """Job-seconds of waiting by cause, of jobs of one size class."""

    label: str
    fair_share_s: float
    fragmentation_s: float
    contention_s: float


@dataclass(frozen=True, slots=True)
class Delays:
    """Job-seconds of waiting by cause."""

    fair_share_s: float
    fragmentation_s: float
    contention_s: float
    """Too few GPUs free, or held back by the policy's order, with the queue inside its share."""
    by_size: tuple[SizeDelays, ...] = ()
    """The same for each size class in which a job waited."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A step function of time: `values[i]` holds from `times_s[i]` on."""

    times_s: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Stint:
    """One uninterrupted stay of a job on its GPUs, for the Gantt chart."""

    job_id: str
    gpus: tuple[int, ...]
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Result:
    """One policy's run over one trace."""

    policy: str
    options: Mapping[str, object]
    cluster: str
    gpus: int
    summary: Summary
    jobs: tuple[JobResult, ...]
    nodes: tuple[tuple[str, int], ...] = ()
    """Name and GPUs of each node, in the order of the GPU index."""
    bins: tuple[Bin, ...] = ()
    delays: Delays | None = None
    queues: tuple[QueueCost, ...] = ()
    utilisation: Curve = field(default=Curve((), ()))
    """Part of the cluster's GPUs that make progress."""
    queue_length: Curve = field(default=Curve((), ()))
    """Jobs that wait, suspended ones included."""
    fragmentation: Curve = field(default=Curve((), ()))
    """Part of the free GPUs that lie on partly used nodes."""
    stints: tuple[Stint, ...] = ()
    """Only kept for a report."""
    horizon_s: float | None = None
    """Where the run was cut, if it was."""
    warnings: tuple[str, ...] = ()
    failures: SimulatedFailures | None = None
    """Only where rules about failures were asked for."""
