"""Puts what happened and what would have happened side by side: the same numbers, made in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from trainmaster.daemon.whatif_rows import JobSide, QueueWait, WhatIfJob, WhatIfResult, WhatIfSide
from trainmaster.model.queue import Queue
from trainmaster.model.units import SECOND, WHOLE
from trainmaster.sim.accounting import Fairness, jain
from trainmaster.sim.metrics import mean, percentile
from trainmaster.text.formatting import duration, plural

MOST_LISTED = 200
"""Jobs that win or lose most, for each column."""
MOST_POINTS = 200
"""Of a curve."""
LEAST_CHANGE_MS = SECOND // 10
LEAST_PART = 0.01
"""A job wins or loses where its JCT changes by more than both."""


@dataclass(frozen=True, slots=True)
class CountedJob:
    """A job as all columns have it."""

    id: str
    name: str
    user: str
    queue: str
    gpus_milli: int
    submit_ms: int
    is_on_gpus: bool = True
    """Whether what it holds is counted in GPUs; jobs on CPU slots are not, beside GPUs."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one job in one column."""

    start_ms: int | None
    finish_ms: int | None
    held: int = 0
    """Thousandths of a GPU x ms."""


@dataclass(frozen=True, slots=True)
class Stay:
    """So much was held in this time."""

    begin_ms: int
    end_ms: int
    milli: int


@dataclass(frozen=True, slots=True)
class Column:
    """All that is known of one column."""

    name: str
    kind: str
    policy: str
    options: Mapping[str, str]
    gpus: int
    fates: Mapping[str, Fate]
    stays: Sequence[Stay] = ()
    preemptions: int | None = None
    migrations: int | None = None
    queues: Mapping[str, Queue] = field(default_factory=dict)


def compared(
    question: str,
    counted: Sequence[CountedJob],
    columns: Sequence[Column],
    span: tuple[int, int],
    notes: Iterable[str] = (),
) -> WhatIfResult:
    """`span` is the time that is looked at: its begin and end."""
    base = next(each for each in columns if each.kind == "in-force")
    changes = [_changes(counted, column, base) for column in columns]
    sides = [
        _side(counted, column, change, span, is_base=column is base)
        for column, change in zip(columns, changes, strict=True)
    ]
    real = next((each for each in sides if each.kind == "real"), None)
    own = next(each for each in sides if each.kind == "in-force")
    error = None
    if real is not None and real.mean_jct_s and own.mean_jct_s is not None:
        error = own.mean_jct_s / real.mean_jct_s - 1
    return WhatIfResult(
        question=question,
        headline=headline(sides, error),
        notes=list(notes),
        from_s=span[0] / SECOND,
        until_s=span[1] / SECOND,
        sides=sides,
        jobs=_listed(counted, columns, changes),
        jobs_counted=len(counted),
        model_error=_rounded(error),
    )


def headline(sides: Sequence[WhatIfSide], error: float | None) -> str:
    """Who does best, by how much, and how far the model is from what happened."""
    own = next(each for each in sides if each.kind == "in-force")
    others = [each for each in sides if each.kind == "other" and each.mean_jct_s is not None]
    model = "" if error is None else f" The model's mean is {_percent(error)} the real one."
    if own.mean_jct_s is None or not others:
        if own.mean_jct_s is None:
            return f"Not all jobs end under {own.name}.{model}"
        return f"Under {own.name} a job takes {_s(own.mean_jct_s)} on average.{model}"
    best = min(others, key=lambda each: each.mean_jct_s or 0.0)
    assert best.mean_jct_s is not None
    change = best.mean_jct_s / own.mean_jct_s - 1 if own.mean_jct_s else 0.0
    if abs(change) < LEAST_PART:
        said = (
            f"{best.name} makes next to no difference: a job takes {_s(best.mean_jct_s)} on average"
        )
    else:
        more = "less" if change < 0 else "more"
        said = (
            f"Under {best.name} a job takes {_s(best.mean_jct_s)} on average, {_part(change)} {more} than"
            f" the {_s(own.mean_jct_s)} under {own.name}"
        )
    wins, loses = best.winners or 0, best.losers or 0
    jobs = (
        f"{plural(wins, 'job')} {'wins' if wins == 1 else 'win'} and {loses}"
        f" {'loses' if loses == 1 else 'lose'}"
    )
    return f"{said}; {jobs}.{model}"


def _percent(error: float) -> str:
    if abs(error) < LEAST_PART:
        return "within 1 % of"
    return f"{_part(error)} {'above' if error > 0 else 'below'}"


def _part(value: float) -> str:
    return f"{abs(value) * 100:.0f} %"


def _s(seconds: float) -> str:
    return duration(seconds)


def _changes(counted: Sequence[CountedJob], column: Column, base: Column) -> dict[str, int]:
    """JCT less that in the base column, of jobs that end in both."""
    found = {}
    for job in counted:
        before, after = base.fates[job.id].finish_ms, column.fates[job.id].finish_ms
        if before is not None and after is not None:
            found[job.id] = after - before
    return found


def _side(
    counted: Sequence[CountedJob],
    column: Column,
    changes: Mapping[str, int],
    span: tuple[int, int],
    *,
    is_base: bool,
) -> WhatIfSide:
    ended = [
        (job, fate.finish_ms - job.submit_ms)
        for job in counted
        if (fate := column.fates[job.id]).finish_ms is not None
    ]
    jcts = sorted(jct / SECOND for _, jct in ended)
    is_whole = len(jcts) == len(counted)
    waits: dict[str, list[float]] = {}
    for job in counted:
        start = column.fates[job.id].start_ms
        if start is not None:
            waits.setdefault(job.queue, []).append((start - job.submit_ms) / SECOND)
    jct_of = {job.id: jct for job, jct in ended}
    compared_with = changes if not is_base and column.kind != "real" else None
    used = _used(column.stays, span)
    return WhatIfSide(
        name=column.name,
        kind=column.kind,
        policy=column.policy,
        options=dict(column.options),
        gpus=column.gpus,
        jobs=len(ended),
        mean_jct_s=_rounded(mean(jcts)) if is_whole else None,
        p50_jct_s=_rounded(percentile(jcts, 0.5)) if is_whole else None,
        p95_jct_s=_rounded(percentile(jcts, 0.95)) if is_whole else None,
        p99_jct_s=_rounded(percentile(jcts, 0.99)) if is_whole else None,
        mean_wait_s=_rounded(mean([each for queue in waits.values() for each in queue])),
        utilisation=_utilisation(used, column.gpus, span),
        fairness=_fairness(counted, column),
        preemptions=column.preemptions,
        migrations=column.migrations,
        winners=_count(compared_with, jct_of, lambda change: change < 0),
        losers=_count(compared_with, jct_of, lambda change: change > 0),
        queues=[_queue_wait(queue, each) for queue, each in sorted(waits.items())],
        jct_curve=_jct_curve(jcts),
        used_curve=[[at / SECOND, milli / WHOLE] for at, milli in _thinned(used)],
    )


def _count(
    changes: Mapping[str, int] | None, jcts: Mapping[str, int], is_one: Callable[[int], bool]
) -> int | None:
    if changes is None:
        return None
    return sum(is_one(ms) and _is_change(ms, jcts[job]) for job, ms in changes.items())


def _is_change(ms: int, jct_ms: int) -> bool:
    return abs(ms) > max(LEAST_CHANGE_MS, LEAST_PART * (jct_ms - ms))


def _queue_wait(queue: str, waits: list[float]) -> QueueWait:
    waits.sort()
    return QueueWait(
        queue=queue,
        jobs=len(waits),
        mean_wait_s=round(mean(waits) or 0.0, 3),
        p95_wait_s=round(percentile(waits, 0.95) or 0.0, 3),
    )


def _jct_curve(jcts: Sequence[float]) -> list[list[float]]:
    step = max(1, len(jcts) // MOST_POINTS)
    places = sorted({*range(step - 1, len(jcts), step), len(jcts) - 1} if jcts else ())
    return [[round(jcts[at], 3), round((at + 1) / len(jcts), 4)] for at in places]


def _used(stays: Sequence[Stay], span: tuple[int, int]) -> list[tuple[int, int]]:
    """What is held, from each time on at which that changes, within the span."""
    begin, end = span
    steps: dict[int, int] = {begin: 0, end: 0}
    for stay in stays:
        low, high = max(begin, stay.begin_ms), min(end, stay.end_ms)
        if low < high:
            steps[low] = steps.get(low, 0) + stay.milli
            steps[high] = steps.get(high, 0) - stay.milli
    times = sorted(steps)
    return list(zip(times, accumulate(steps[at] for at in times), strict=True))


def _utilisation(used: Sequence[tuple[int, int]], gpus: int, span: tuple[int, int]) -> float | None:
    length_ms = span[1] - span[0]
    if not gpus or length_ms <= 0:
        return None
    held = sum(milli * (later - at) for (at, milli), (later, _) in pairwise(used))
    return round(held / (gpus * WHOLE * length_ms), 4)


def _thinned(used: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """As many points as a chart shows, each the mean over its part of the time."""
    if len(used) <= MOST_POINTS:
        return list(used)
    begin, end = used[0][0], used[-1][0]
    width = max(1, (end - begin) // MOST_POINTS)
    sums = [0] * (MOST_POINTS + 1)
    for (at, milli), (later, _) in pairwise(used):
        while at < later:
            place = min((at - begin) // width, MOST_POINTS)
            until = later if place == MOST_POINTS else min(later, begin + (place + 1) * width)
            sums[place] += milli * (until - at)
            at = until
    found = [(begin + place * width, total // width) for place, total in enumerate(sums)]
    return [*found[:MOST_POINTS], (end, 0)]


def _fairness(counted: Sequence[CountedJob], column: Column) -> float | None:
    """Jain's index as the simulator has it, of the jobs that are counted."""
    shares = Fairness(column.queues, column.gpus * WHOLE)
    received: dict[str, int] = {}
    happened: list[tuple[int, int, str]] = []
    for job in counted:
        if not job.is_on_gpus:
            continue
        fate = column.fates[job.id]
        received[job.queue] = received.get(job.queue, 0) + fate.held
        happened.append((job.submit_ms, 0, job.queue))
        if fate.finish_ms is not None:
            happened.append((fate.finish_ms, 1, job.queue))
    last = 0
    for at, is_end, queue in sorted(happened):
        (shares.left if is_end else shares.joined)(queue, at)
        last = at
    shares.count_up_to(last)
    entitled = shares.entitled.items()
    return _rounded(jain([received.get(queue, 0) / part for queue, part in entitled if part]))


def _listed(
    counted: Sequence[CountedJob], columns: Sequence[Column], changes: Sequence[Mapping[str, int]]
) -> list[WhatIfJob]:
    """Those that win or lose most in any column, the greatest winners of the last column first."""
    chosen: set[str] = set()
    for column, change in zip(columns, changes, strict=True):
        if column.kind != "real" or len(columns) == 2:
            most = sorted(change, key=lambda job, c=change: -abs(c[job]))  # type: ignore[misc]
            chosen.update(most[:MOST_LISTED])
    last = changes[-1]
    jobs = sorted(
        (job for job in counted if job.id in chosen),
        key=lambda job: (last.get(job.id, 0), job.submit_ms),
    )
    return [
        WhatIfJob(
            job=job.id,
            name=job.name,
            user=job.user,
            queue=job.queue,
            gpus=job.gpus_milli / WHOLE,
            submit_s=job.submit_ms / SECOND,
            sides=[_job_side(job, column.fates[job.id]) for column in columns],
            changes_s=[
                None if (ms := each.get(job.id)) is None else ms / SECOND for each in changes
            ],
        )
        for job in jobs
    ]


def _job_side(job: CountedJob, fate: Fate) -> JobSide:
    finish = fate.finish_ms
    return JobSide(
        start_s=None if fate.start_ms is None else fate.start_ms / SECOND,
        finish_s=None if finish is None else finish / SECOND,
        jct_s=None if finish is None else (finish - job.submit_ms) / SECOND,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
