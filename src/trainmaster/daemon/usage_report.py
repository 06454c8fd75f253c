"""Who used how much GPU time, and what it cost: sums of the records of GPU time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from trainmaster.config.quotas import MICROS
from trainmaster.daemon.response_models import UsageReport, UsageRow
from trainmaster.model.units import HOUR, SECOND, WHOLE
from trainmaster.store.rows import ChargeRow

GPU_HOUR = WHOLE * HOUR
LENGTHS = {"day": 24 * HOUR, "hour": HOUR}
LOST_TO = "lost-to"
OUTCOME = "outcome"
SUMMED_BY = ("user", "queue", "job", "gpu-type", OUTCOME, "day", "hour", LOST_TO)
NOT_RECORDED = "not recorded"
Key = tuple[str, ...]


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
        lost = self.lost if names.get("lost_to") else min(self.lost, self.gpu_ms)
        return UsageRow(
            user=names.get("user"),
            queue=names.get("queue"),
            job=names.get("job"),
            gpu_type=names.get("gpu_type"),
            outcome=names.get("outcome"),
            begin_s=int(names["begin"]) / SECOND if "begin" in names else None,
            lost_to=names.get("lost_to"),
            jobs=len(self.jobs),
            gpu_s=round(self.gpu_ms / WHOLE) / SECOND,
            gpu_hours=round(self.gpu_ms / GPU_HOUR, 6),
            lost_gpu_hours=round(lost / GPU_HOUR, 6),
            cost=round(self.cost / (GPU_HOUR * MICROS), 6),
            unpriced_gpu_hours=round(self.unpriced / GPU_HOUR, 6),
        )


class UsageSums:
    """Of what was used in a time: of a stretch that reaches over its ends, the part within.

    Records are added as they are read, so that not all are in memory at once. `outcomes`: the state of each
    job, for sums by that.
    """

    def __init__(self, by: str, since_ms: int, until_ms: int, outcomes: Mapping[str, str]) -> None:
        self._by, self._since_ms, self._until_ms = by, since_ms, until_ms
        self._outcomes = outcomes
        self._sums: dict[Key, Sum] = {}
        self._total = Sum()

    def add(self, rows: Iterable[ChargeRow]) -> None:
        window = self._since_ms, self._until_ms
        for row in rows:
            gpu_ms, lost = _within(row, *window)
            if gpu_ms or lost:
                self._total.add(row, gpu_ms, lost)
                for key, part, lost_part in _parts(row, self._by, *window, self._outcomes):
                    self._sums.setdefault(key, Sum()).add(row, part, lost_part)

    def report(self, currency: str) -> UsageReport:
        names, ordered = _NAMES[self._by], _ordered(self._sums, self._by)
        return UsageReport(
            by=self._by,
            since_s=self._since_ms / SECOND,
            until_s=self._until_ms / SECOND,
            currency=currency,
            rows=[each.row(dict(zip(names, key, strict=True))) for key, each in ordered],
            total=self._total.row({}),
        )


_NAMES: Mapping[str, tuple[str, ...]] = {
    "user": ("user",),
    "queue": ("queue",),
    "job": ("job", "user", "queue"),
    "gpu-type": ("gpu_type",),
    OUTCOME: ("outcome",),
    "day": ("begin",),
    "hour": ("begin",),
    LOST_TO: ("lost_to",),
}
"""The columns that name a row."""


def _ordered(sums: Mapping[Key, Sum], by: str) -> list[tuple[Key, Sum]]:
    """Times in their order, all else the largest first."""
    if by in LENGTHS:
        return sorted(sums.items(), key=lambda item: int(item[0][0]))
    return sorted(sums.items(), key=lambda item: (-item[1].gpu_ms, -item[1].lost, item[0]))


def _parts(
    row: ChargeRow, by: str, since_ms: int, until_ms: int, outcomes: Mapping[str, str]
) -> Iterator[tuple[Key, int, int]]:
    """What of a stretch counts for which row."""
    if by in LENGTHS:
        yield from _by_time(row, LENGTHS[by], since_ms, until_ms)
        return
    gpu_ms, lost = _within(row, since_ms, until_ms)
    if by == LOST_TO:
        if lost:
            yield (row.lost_to or NOT_RECORDED,), 0, lost
        return
    yield _key(row, by, outcomes), gpu_ms, lost


def _key(row: ChargeRow, by: str, outcomes: Mapping[str, str]) -> Key:
    if by == OUTCOME:
        return (outcomes.get(row.job, "unknown"),)
    if by == "gpu-type":
        return (row.gpu_type or "unknown",)
    return tuple(getattr(row, name) for name in _NAMES[by])


def _by_time(
    row: ChargeRow, length: int, since_ms: int, until_ms: int
) -> Iterator[tuple[Key, int, int]]:
    """Its part in each day or hour; what was lost counts for that in which the stretch ended."""
    begin, end = max(row.from_ms, since_ms), min(row.to_ms, until_ms)
    last = (row.to_ms - (row.from_ms < row.to_ms)) // length
    for number in range(begin // length, last + 1):
        if begin < end:
            gpu_ms, _ = _within(row, max(begin, number * length), min(end, (number + 1) * length))
            _, lost = _within(row, since_ms, until_ms) if number == last else (0, 0)
        else:  # nothing but its end is within the time, or it is an instant
            gpu_ms, lost = _within(row, since_ms, until_ms)
        if gpu_ms or lost:
            yield (str(number * length),), gpu_ms, lost


def _within(row: ChargeRow, since_ms: int, until_ms: int) -> tuple[int, int]:
    """GPU time of a stretch within this time, and what was lost; it was found lost at its end."""
    lost = row.lost_gpu_ms if since_ms <= row.to_ms <= until_ms else 0
    if row.from_ms == row.to_ms:
        return (row.gpu_ms if since_ms <= row.to_ms <= until_ms else 0), lost
    begin, end = max(row.from_ms, since_ms), min(row.to_ms, until_ms)
    return (_until(row, end) - _until(row, begin) if begin < end else 0), lost


def _until(row: ChargeRow, at_ms: int) -> int:
    """GPU time of a stretch until a moment within it."""
    return row.gpu_ms * (at_ms - row.from_ms) // (row.to_ms - row.from_ms)
