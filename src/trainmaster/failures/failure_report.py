"""What failures cost: failed attempts summed up by reason, as in the table of Microsoft's Philly study.

One function from rows to tables: the manager's history, the simulator and the tests use the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from trainmaster.model.failure_report import (
    FailedRun,
    FailureReport,
    FailureSource,
    JobEnd,
    ReasonRow,
    StatusRow,
)
from trainmaster.model.units import HOUR, MINUTE, WHOLE

SIZES = (("1", WHOLE), ("2-4", 4 * WHOLE), (">4", None))
"""Size classes of the study: label, and the most thousandths of a GPU in it."""
MOST_REASONS = 3
"""Reasons that are named with each of them."""


def failure_report(
    attempts: Iterable[FailedRun], ends: Iterable[JobEnd] = (), most_sources: int | None = None
) -> FailureReport:
    """Sum up failed attempts, and the ends of all jobs.

    `most_sources`: programs, users, nodes, devices and inputs that are listed, each; None: all.
    """
    rows = tuple(attempts)
    run_ms, gpu_ms = sum(row.run_ms for row in rows), sum(row.gpu_ms for row in rows)
    by_reason: defaultdict[str, list[FailedRun]] = defaultdict(list)
    for row in rows:
        by_reason[row.reason].append(row)
    reasons = [_reason(reason, those, run_ms, gpu_ms) for reason, those in by_reason.items()]
    programs, users, nodes, devices, inputs = (
        _sources(rows, of, gpu_ms)[:most_sources] for of in _SOURCES
    )
    return FailureReport(
        trials=len(rows),
        jobs=len({row.job for row in rows}),
        gpu_hours=_gpu_hours(gpu_ms),
        reasons=tuple(sorted(reasons, key=lambda row: (-row.gpu_hours, -row.trials, row.reason))),
        programs=programs,
        users=users,
        nodes=nodes,
        devices=devices,
        inputs=inputs,
        statuses=_statuses(ends),
    )


def nearest_rank(ordered: Sequence[int], percent: int) -> int:
    """The smallest value that at least so many percent of the values do not exceed."""
    return ordered[-(-percent * len(ordered) // 100) - 1]


def size_class(gpus: int) -> int:
    """Index in `SIZES` of so many thousandths of a GPU."""
    return next(at for at, (_, most) in enumerate(SIZES) if most is None or gpus <= most)


def _reason(reason: str, rows: Sequence[FailedRun], run_ms: int, gpu_ms: int) -> ReasonRow:
    times = sorted(row.run_ms for row in rows)
    lost = sum(row.gpu_ms for row in rows)
    sizes = Counter(size_class(row.gpus) for row in rows)
    p50, p90, p95 = (nearest_rank(times, percent) / MINUTE for percent in (50, 90, 95))
    return ReasonRow(
        reason=reason,
        blame=",".join(sorted({str(row.blame) for row in rows})),
        trials=len(rows),
        jobs=len({row.job for row in rows}),
        users=len({row.user for row in rows}),
        p50_min=p50,
        p90_min=p90,
        p95_min=p95,
        run_share=_part(sum(times), run_ms),
        sizes=tuple(sizes[at] for at in range(len(SIZES))),
        gpu_hours=_gpu_hours(lost),
        gpu_share=_part(lost, gpu_ms),
    )


_Names = Callable[[FailedRun], tuple[str, ...]]
"""What an attempt is counted under; its GPU time is divided evenly where there are several."""

_SOURCES: tuple[_Names, ...] = (
    lambda row: (row.program,) if row.program else (),
    lambda row: (row.user,) if row.user else (),
    lambda row: tuple(device.rpartition(":")[0] or device for device in row.devices),
    lambda row: row.devices,
    lambda row: (row.path,) if row.path else (),
)


def _sources(rows: Sequence[FailedRun], names_of: _Names, gpu_ms: int) -> tuple[FailureSource, ...]:
    trials: Counter[str] = Counter()
    jobs: defaultdict[str, set[str]] = defaultdict(set)
    lost: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        names = names_of(row)
        trials.update(set(names))
        for name in names:
            jobs[name].add(row.job)
            lost[name][row.reason] += row.gpu_ms // len(names)
    found = [
        FailureSource(
            name=name,
            trials=count,
            jobs=len(jobs[name]),
            gpu_hours=_gpu_hours(lost[name].total()),
            gpu_share=_part(lost[name].total(), gpu_ms),
            reasons=tuple(reason for reason, _ in lost[name].most_common(MOST_REASONS)),
        )
        for name, count in trials.items()
    ]
    found.sort(key=lambda source: (-source.gpu_hours, -source.trials, source.name))
    return tuple(found)


def _statuses(ends: Iterable[JobEnd]) -> tuple[StatusRow, ...]:
    jobs: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for end in ends:
        jobs[end.status] += 1
        held[end.status] += end.gpu_ms
    return tuple(
        StatusRow(
            status=status,
            jobs=count,
            share=_part(count, jobs.total()),
            gpu_hours=_gpu_hours(held[status]),
            gpu_share=_part(held[status], held.total()),
        )
        for status, count in jobs.most_common()
    )


def _part(amount: int, whole: int) -> float:
    return amount / whole if whole else 0.0


def _gpu_hours(gpu_ms: int) -> float:
    return gpu_ms / (WHOLE * HOUR)
