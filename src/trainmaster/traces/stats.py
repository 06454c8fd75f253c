"""Statistics of a trace: sizes, ends, run times, arrivals, tenants, models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from trainmaster.model.placement import Role
from trainmaster.model.trace import Outcome, Trace, TracedJob
from trainmaster.model.units import DAY, HOUR, WHOLE, to_seconds

SIZE_CLASSES = (("<1", WHOLE - 1), ("1", WHOLE), ("2-4", 4 * WHOLE), ("5-8", 8 * WHOLE))
"""Size classes of the Philly study, with fractions before them, by their upper end; then >8."""
LARGEST_CLASS = ">8"
TOP = 10


@dataclass(frozen=True, slots=True)
class SizeCount:
    gpus: float
    jobs: int


@dataclass(frozen=True, slots=True)
class OutcomeShare:
    outcome: Outcome
    jobs: int
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Run times of one size class in seconds; percentile p of n is value[min(n-1, int(p·n))]."""

    label: str
    jobs: int
    mean_s: float
    p10_s: float
    p50_s: float
    p90_s: float
    p95_s: float
    p99_s: float
    longest_s: float


@dataclass(frozen=True, slots=True)
class GroupUsage:
    """Jobs and GPU hours of one queue, user or model."""

    name: str
    jobs: int
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class TraceStats:
    """Statistics of a trace; GPU hours are GPUs x service, without failed attempts."""

    jobs: int
    first_submit_s: float
    span_s: float
    """From the first submission to the last."""
    gpu_hours: float
    largest_gpus: float
    sizes: tuple[SizeCount, ...]
    outcomes: tuple[OutcomeShare, ...]
    run_times: tuple[RunTimes, ...]
    arrivals_by_hour: tuple[int, ...]
    """24 counts; hour 0 begins at time 0 of the trace."""
    queues: tuple[GroupUsage, ...]
    """The ten with the most GPU hours, largest first; so too users and models."""
    users: tuple[GroupUsage, ...]
    models: tuple[GroupUsage, ...]
    queue_count: int
    user_count: int
    model_count: int
    elastic: int
    fractional: int
    opportunistic: int
    with_failures: int
    failed_attempts: int
    failed_gpu_hours: float
    gpus: int | None
    load: float | None
    """Offered to `gpus` GPUs: work / (GPUs x span); None without GPUs or without a span."""
    notes: tuple[str, ...]


def describe(trace: Trace, gpus: int | None = None) -> TraceStats:
    """All statistics of a trace, with the load that it offers to `gpus` GPUs."""
    jobs = trace.jobs
    submits = [traced.job.submit_ms for traced in jobs]
    first = min(submits, default=0)
    span = max(submits, default=0) - first
    work = sum(map(_work, jobs))
    sizes = Counter(traced.job.demand.nominal.total_share for traced in jobs)
    hours = Counter(submit % DAY // HOUR for submit in submits)
    queues, users, models = (
        _portions(jobs, name)
        for name in (lambda t: t.job.queue, lambda t: t.job.user, lambda t: t.job.model)
    )
    failures = [traced for traced in jobs if traced.failed_attempts_ms]
    return TraceStats(
        jobs=len(jobs),
        first_submit_s=to_seconds(first),
        span_s=to_seconds(span),
        gpu_hours=_gpu_hours(work),
        largest_gpus=max(sizes, default=0) / WHOLE,
        sizes=tuple(SizeCount(size / WHOLE, n) for size, n in sorted(sizes.items())),
        outcomes=_outcomes(jobs),
        run_times=_run_times(jobs),
        arrivals_by_hour=tuple(hours[hour] for hour in range(24)),
        queues=queues[:TOP],
        users=users[:TOP],
        models=models[:TOP],
        queue_count=len(queues),
        user_count=len(users),
        model_count=len(models),
        elastic=sum(traced.job.demand.is_elastic for traced in jobs),
        fractional=sum(not traced.job.demand.nominal.is_whole for traced in jobs),
        opportunistic=sum(traced.job.role is Role.OPPORTUNISTIC for traced in jobs),
        with_failures=len(failures),
        failed_attempts=sum(len(traced.failed_attempts_ms) for traced in failures),
        failed_gpu_hours=_gpu_hours(
            sum(
                each.job.demand.nominal.total_share * sum(each.failed_attempts_ms)
                for each in failures
            )
        ),
        gpus=gpus,
        load=work / (gpus * WHOLE * span) if gpus and span else None,
        notes=trace.notes,
    )


def _work(traced: TracedJob) -> int:
    """Thousandths of a GPU x ms."""
    return traced.job.demand.nominal.total_share * traced.service_ms


def _gpu_hours(work: int) -> float:
    return work / (WHOLE * HOUR)


def _outcomes(jobs: Sequence[TracedJob]) -> tuple[OutcomeShare, ...]:
    ends = {end: [traced for traced in jobs if traced.outcome is end] for end in Outcome}
    return tuple(
        OutcomeShare(end, len(ended), _gpu_hours(sum(map(_work, ended))))
        for end, ended in ends.items()
    )


def _run_times(jobs: Iterable[TracedJob]) -> tuple[RunTimes, ...]:
    by_class: dict[str, list[int]] = {label: [] for label, _ in SIZE_CLASSES}
    by_class[LARGEST_CLASS] = []
    for traced in jobs:
        by_class[size_class(traced.job.demand.nominal.total_share)].append(traced.service_ms)
    return tuple(_summary(label, sorted(times)) for label, times in by_class.items() if times)


def size_class(share: int) -> str:
    """The size class of a job with this share, in thousandths of a GPU."""
    return next((label for label, largest in SIZE_CLASSES if share <= largest), LARGEST_CLASS)


def _summary(label: str, times: list[int]) -> RunTimes:
    count = len(times)
    ranks = [min(count - 1, int(part * count)) for part in (0.10, 0.50, 0.90, 0.95, 0.99, 1.0)]
    mean = to_seconds(sum(times)) / count
    return RunTimes(label, count, mean, *(to_seconds(times[rank]) for rank in ranks))


def _portions(
    jobs: Iterable[TracedJob], name_of: Callable[[TracedJob], str]
) -> tuple[GroupUsage, ...]:
    """Jobs and GPU hours by name, the most hours first; the nameless are not counted."""
    counts: Counter[str] = Counter()
    work: Counter[str] = Counter()
    for traced in jobs:
        name = name_of(traced)
        if name:
            counts[name] += 1
            work[name] += _work(traced)
    order = sorted(counts, key=lambda name: (-work[name], name))
    return tuple(GroupUsage(name, counts[name], _gpu_hours(work[name])) for name in order)
