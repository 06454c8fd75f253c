"""How fast a job would be on each number of GPUs, in the form that a division of GPUs needs.

Declared tables are taken as they are; else the estimator predicts the curve at best placements,
corrected by what runs have shown (`MeasuredSpeeds`, part of the policy's memo). Greedy division needs curves
that bend one way only: `SpeedupCurve.speeds` is the concave hull, and `useful` says how many of a number
of GPUs really speed the job up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from trainmaster.core.state import JobRecord
from trainmaster.estimators.throughput import NEWS, UNKNOWN, Estimator, key_of
from trainmaster.estimators.throughput_calibration import NOTHING_MEASURED, Corrections
from trainmaster.estimators.throughput_calibration import Measured as Measurements
from trainmaster.model.codec import stored_as
from trainmaster.model.job import Demand
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.plan import FrozenMap
from trainmaster.model.profile import Profile, speedup_at
from trainmaster.model.topology import Topology
from trainmaster.model.units import NOMINAL

SCALE = 1_000
"""Room for the hull between whole parts per million."""
SPARE_CURVES = 256
"""Curves of ended jobs are dropped when there are this many more than twice the live jobs."""


@dataclass(frozen=True, slots=True)
class SpeedupCurve:
    """Speeds of one job by its number of GPUs: 0, and `low` to `high`."""

    low: int
    high: int
    unit: int
    """What `speeds` calls the nominal speed."""
    speeds: tuple[int, ...]
    """By number of GPUs: the concave hull. Equal to the true curve where that is concave."""
    useful: tuple[int, ...]
    """By number of GPUs: the fewest of them that are as fast as any of the numbers up to there."""
    alone: int
    """Speed on one GPU, even where the job may not run on one."""

    def time_ms(self, work: int, count: int) -> int:
        """How long this work takes on `count` GPUs."""
        return work * self.unit // (self.speeds[count] * NOMINAL)

    def gain(self, count: int) -> tuple[int, int, int]:
        """(speed now, speed with one more, difference)."""
        now, more = self.speeds[count], self.speeds[count + 1]
        return now, more, more - now


@lru_cache(maxsize=4_096)
def curve_of(speeds: tuple[int, ...], low: int, high: int, unit: int) -> SpeedupCurve:
    """The curve of these true speeds on 1, 2, 3 … GPUs, of a job that takes low to high of them."""
    points = [(0, 0)] + [(n, speeds[n - 1] * SCALE) for n in range(low, high + 1)]
    useful, best = [0] * (high + 1), low
    for n, speed in points[1:]:
        if speed > speeds[best - 1] * SCALE:
            best = n
        useful[n] = best
    return SpeedupCurve(
        low, high, unit * SCALE, concave(points, high), tuple(useful), max(1, speeds[0]) * SCALE
    )


def concave(points: Iterable[tuple[int, int]], high: int) -> tuple[int, ...]:
    """The least concave curve that is nowhere below these points, at 0, 1 … high."""
    hull: list[tuple[int, int]] = []
    for n, speed in points:
        while len(hull) > 1 and _is_below(hull[-2], hull[-1], (n, speed)):
            hull.pop()
        hull.append((n, speed))
    values = [0] * (high + 1)
    for (left, slow), (right, fast) in pairwise(hull):
        for n in range(left, right + 1):
            values[n] = slow + (fast - slow) * (n - left) // (right - left)
    return tuple(values)


def _is_below(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> bool:
    """Whether b lies below the line from a to c."""
    return (b[1] - a[1]) * (c[0] - a[0]) < (c[1] - a[1]) * (b[0] - a[0])


@stored_as("throughput.Measured")
@dataclass(frozen=True, slots=True)
class MeasuredSpeeds:
    """Speeds observed so far; part of a policy's memo."""

    corrections: Corrections = NOTHING_MEASURED
    seen: FrozenMap[str, tuple[int, int]] = field(default_factory=FrozenMap)
    """By job: the run, and its number of GPUs, whose speed was last taken note of."""


class Curves:
    """Curves and speeds on one cluster; a cache, all of it."""

    def __init__(self, topology: Topology) -> None:
        self.estimator = Estimator(topology)
        self._room: dict[str | None, int] = {}
        self.known: dict[int, tuple[Profile | None, Measurements, SpeedupCurve]] = {}
        """By seq: the curve, and what it was made from. `learned` drops those of ended jobs in time."""

    def of(self, record: JobRecord, corrections: Corrections) -> SpeedupCurve:
        """The curve of an elastic job, as far as the cluster reaches."""
        measured = corrections.of(key_of(record.job)) if corrections.entries else ()
        known = self.known.get(record.seq)
        if known is not None and known[0] is record.profile and known[1] is measured:
            return known[2]
        curve = self._made(record, corrections, measured)
        self.known[record.seq] = (record.profile, measured, curve)
        return curve

    def speed(self, record: JobRecord, placement: Placement, corrections: Corrections) -> int:
        """Of this job there, in parts per million of its nominal speed."""
        where = self.estimator.allocation(placement)
        return self.estimator.speed(record.job, record.profile or UNKNOWN, where, corrections)

    def learned(
        self, records: Iterable[JobRecord], memo: MeasuredSpeeds, live: Mapping[str, JobRecord]
    ) -> MeasuredSpeeds:
        """The memo after observing the current speeds of these jobs, each once.

        A speed that was predicted to within a hundredth is ignored, and so is one that nobody measured.
        """
        self._drop_ended(live)
        corrections, news = memo.corrections, dict[str, tuple[int, int]]()
        estimator = self.estimator
        for record in records:
            placement = record.placement
            if record.since_ms is None or placement is None or record.is_speed_assumed:
                continue
            shown = (record.attempt, len(placement.slices))
            if memo.seen.get(record.id) == shown or placement.sharing is not Sharing.EXCLUSIVE:
                continue
            news[record.id] = shown
            job, profile, speed = record.job, record.profile or UNKNOWN, record.speed_ppm
            where = estimator.allocation(placement)
            predicted = estimator.speed(job, profile, where, corrections)
            if abs(predicted - speed) * NEWS >= speed:
                corrections = estimator.learned(job, profile, where, speed, corrections)
        if not news:
            return memo
        return MeasuredSpeeds(corrections, memo.seen.only(live).updated(news))

    def _drop_ended(self, live: Mapping[str, JobRecord]) -> None:
        """Forget the curves of ended jobs, once they are more than those of live ones can be."""
        if len(self.known) > 2 * len(live) + SPARE_CURVES:
            alive = {record.seq for record in live.values()}
            self.known = {seq: known for seq, known in self.known.items() if seq in alive}

    def _made(
        self, record: JobRecord, corrections: Corrections, measured: Measurements
    ) -> SpeedupCurve:
        demand, profile = record.demand, record.profile or UNKNOWN
        high = max(demand.min_count, min(demand.max_count, self._most(demand)))
        if profile.speedups and not measured:
            table = profile.speedups
            speeds = tuple(speedup_at(table, n) for n in range(1, high + 1))
            return curve_of(speeds, demand.min_count, high, speedup_at(table, demand.nominal.count))
        found = self.estimator.curve(record.job, profile, _samples(high), corrections)
        speeds = tuple(speedup_at(found, n) for n in range(1, high + 1))
        return curve_of(speeds, demand.min_count, high, NOMINAL)

    def _most(self, demand: Demand) -> int:
        """GPUs that one such job could have if it were alone."""
        found = self._room.get(demand.gpu_type)
        if found is None:
            nodes = self.estimator.topology.nodes
            found = sum(node.gpus for node in nodes if demand.allows(node.type.name))
            self._room[demand.gpu_type] = found
        return found


@lru_cache(maxsize=256)
def _samples(high: int) -> tuple[int, ...]:
    """Numbers of GPUs at which a curve is predicted: all small ones, ever fewer of the large."""
    found, step = [1], 1
    while found[-1] < high:
        step = max(step, found[-1] // 8)
        found.append(min(high, found[-1] + step))
    return tuple(found)
