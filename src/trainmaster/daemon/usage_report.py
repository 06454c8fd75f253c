"""Who used how much GPU time, and what it cost: sums of the records of GPU time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from trainmaster.config.quotas import MICROS
from trainmaster.daemon.response_models import UsageReport, UsageRow
from trainmaster.model.units import HOUR, SECOND, WHOLE
from trainmaster.store.rows import ChargeRow

GPU_HOUR = WHOLE * HOUR
KEYS: Mapping[str, Callable[[ChargeRow], tuple[tuple[str, str], ...]]] = {
    "user": lambda row: (("user", row.user),),
    "queue": lambda row: (("queue", row.queue),),
    "job": lambda row: (("job", row.job), ("user", row.user), ("queue", row.queue)),
    "gpu-type": lambda row: (("gpu_type", row.gpu_type or "unknown"),),
}
"""What can be summed up by, and the columns that name a row."""


@dataclass(slots=True)
class Sum:
    """GPU time of one row; integers, so that sums agree whatever they are summed up by."""

    jobs: set[str] = field(default_factory=set)
    gpu_ms: int = 0
    lost: int = 0
    unpriced: int = 0
    cost: int = 0
    """Millionths x thousandths of a GPU x ms."""

    def add(self, row: ChargeRow, gpu_ms: int, lost: int) -> None:
        self.jobs.add(row.job)
        self.gpu_ms += gpu_ms
        self.lost += lost
        if row.price is None:
            self.unpriced += gpu_ms
        else:
            self.cost += gpu_ms * row.price

    def row(self, names: Mapping[str, str]) -> UsageRow:
        return UsageRow(
            user=names.get("user"),
            queue=names.get("queue"),
            job=names.get("job"),
            gpu_type=names.get("gpu_type"),
            jobs=len(self.jobs),
            gpu_s=round(self.gpu_ms / WHOLE) / SECOND,
            gpu_hours=round(self.gpu_ms / GPU_HOUR, 6),
            lost_gpu_hours=round(min(self.lost, self.gpu_ms) / GPU_HOUR, 6),
            cost=round(self.cost / (GPU_HOUR * MICROS), 6),
            unpriced_gpu_hours=round(self.unpriced / GPU_HOUR, 6),
        )


def usage_report(
    rows: Iterable[ChargeRow], by: str, since_ms: int, until_ms: int, currency: str
) -> UsageReport:
    """Sums of what was used in this time: of a stretch that reaches over its ends, the part within."""
    sums: dict[tuple[tuple[str, str], ...], Sum] = {}
    total = Sum()
    for row in rows:
        gpu_ms, lost = _within(row, since_ms, until_ms)
        if gpu_ms or lost:
            for each in (sums.setdefault(KEYS[by](row), Sum()), total):
                each.add(row, gpu_ms, lost)
    largest_first = sorted(sums.items(), key=lambda item: (-item[1].gpu_ms, item[0]))
    return UsageReport(
        by=by,
        since_s=since_ms / SECOND,
        until_s=until_ms / SECOND,
        currency=currency,
        rows=[each.row(dict(names)) for names, each in largest_first],
        total=total.row({}),
    )


def _within(row: ChargeRow, since_ms: int, until_ms: int) -> tuple[int, int]:
    """GPU time of a stretch within this time, and what was lost; it was found lost at its end."""
    begin, end = max(row.from_ms, since_ms), min(row.to_ms, until_ms)
    lost = row.lost_gpu_ms if since_ms <= row.to_ms <= until_ms else 0
    length = row.to_ms - row.from_ms
    if begin >= end:
        is_instant = length == 0 and since_ms <= row.to_ms <= until_ms
        return (row.gpu_ms if is_instant else 0), lost
    return row.gpu_ms * (end - row.from_ms) // length - row.gpu_ms * (
        begin - row.from_ms
    ) // length, lost
