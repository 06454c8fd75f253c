"""How many jobs of a class to put on one GPU: measured, not guessed.

The measure: four unit jobs come at once to one GPU that runs `factor`
of them together; the best factor has the least mean completion time. What k jobs on a GPU cost each is
learned from runs: work done while k of the class were together, against alone. Factors are tried one
after another, 1, 2, 4, while more jobs together get more done, on one GPU at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model.codec import stored_as
from trainmaster.model.plan import FrozenMap
from trainmaster.model.units import NOMINAL, ceil_div

UNIT_JOBS = 4
FACTORS = (1, 2, 4)
"""Tried in this order."""


def total_jct(factor: int, slowdowns: Mapping[int, int], jobs: int = UNIT_JOBS) -> int | None:
    """Completion times of unit jobs, added up, in parts per million; None where a time is unknown.

    `slowdowns` says how many times as long each of k jobs takes that run together.
    """
    ended, total, left = 0, 0, jobs
    while left:
        together = min(factor, left)
        longer = slowdowns.get(together)
        if longer is None:
            return None
        ended += longer
        total += ended * together
        left -= together
    return total


def best_factor(slowdowns: Mapping[int, int], jobs: int = UNIT_JOBS) -> int:
    """The factor with the least mean completion time among those known; 1 when nothing is."""
    known = {1: NOMINAL, **slowdowns}
    totals = [(total_jct(factor, known, jobs), factor) for factor in sorted(known)]
    return min((total, factor) for total, factor in totals if total is not None)[1]


@stored_as("big-brain.Measured")
@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A run that is being measured, as of the last change of the jobs on its GPU."""

    job: str
    label: str
    together: int
    """Jobs of its class on its GPU, itself included."""
    work: int


@stored_as("big-brain.Memo")
@dataclass(frozen=True, slots=True)
class TunerMemo:
    """All measurements; the policy's memo."""

    times: FrozenMap[tuple[str, int], int] = field(default_factory=FrozenMap)
    """By class and number of jobs together: ms of running."""
    works: FrozenMap[tuple[str, int], int] = field(default_factory=FrozenMap)
    """And the work done in them."""
    watched: tuple[MeasuredRun, ...] = ()
    since_ms: int = 0


@dataclass(frozen=True, slots=True)
class PackingFactorTuner:
    """Chooses packing factors from measurements, and updates the measurements."""

    trial_ms: int
    """Run time after which a factor counts as measured."""

    def slowdowns(self, measurements: TunerMemo, label: str) -> dict[int, int]:
        """How many times as long jobs of a class take, by number together, as far as measured."""
        found: dict[int, int] = {}
        for together in FACTORS:
            ms = measurements.times.get((label, together), 0)
            if ms < self.trial_ms:
                break
            work = measurements.works[label, together]
            alone_work, alone_ms = measurements.works[label, 1], measurements.times[label, 1]
            found[together] = alone_work * ms * NOMINAL // (alone_ms * work)
        return found

    def factor(self, measurements: TunerMemo, label: str) -> int:
        """The best factor so far."""
        return best_factor(self.slowdowns(measurements, label))

    def next_trial(self, measurements: TunerMemo, label: str) -> int | None:
        """The factor to be measured next: while more jobs together get more done; else None."""
        known = self.slowdowns(measurements, label)
        if not known:
            return FACTORS[0]
        *before, last = known
        is_gaining = not before or last * known[before[-1]] > before[-1] * known[last]
        may_gain = is_gaining and last != FACTORS[-1]
        return FACTORS[FACTORS.index(last) + 1] if may_gain else None

    def ceiling(self, measurements: TunerMemo, label: str) -> int:
        """The most jobs that a GPU may come to hold before this class is looked at again."""
        trial = self.next_trial(measurements, label)
        if trial is None:
            return self.factor(measurements, label)
        return max(trial, FACTORS[1])

    def learned(self, measurements: TunerMemo, view: View, now: int) -> TunerMemo:
        """Updated with the work of the measured runs since the jobs on their GPUs last changed."""
        if not measurements.watched or now <= measurements.since_ms:
            return measurements
        ended = {record.id: record for record in view.ended}
        times: dict[tuple[str, int], int] = {}
        works: dict[tuple[str, int], int] = {}
        for watch in measurements.watched:
            record = view.jobs.get(watch.job) or ended.get(watch.job)
            if record is None or record.run_since_ms is None:
                continue
            key = (watch.label, watch.together)
            ms = now - max(measurements.since_ms, record.run_since_ms)
            work = record.work_at(now) - watch.work
            if ms > 0 and work > 0:
                times[key] = times.get(key, measurements.times.get(key, 0)) + ms
                works[key] = works.get(key, measurements.works.get(key, 0)) + work
        return TunerMemo(
            measurements.times.updated(times),
            measurements.works.updated(works),
            measurements.watched,
            now,
        )

    def watching(
        self, measurements: TunerMemo, measured_runs: Iterable[tuple[JobRecord, str, int]], now: int
    ) -> TunerMemo:
        """Measure these from now on: runs with their class and how many of it are together."""
        watched = tuple(
            MeasuredRun(record.id, label, together, record.work_at(now))
            for record, label, together in measured_runs
            if self.next_trial(measurements, label) is not None
        )
        return TunerMemo(measurements.times, measurements.works, watched, now)

    def due(self, measurements: TunerMemo, view: View, now: int) -> int | None:
        """When the next factor will have been measured for long enough, if nothing changes."""
        pace: dict[tuple[str, int], int] = {}
        for watch in measurements.watched:
            record = view.jobs.get(watch.job)
            if record is not None and record.since_ms is not None:
                key = (watch.label, watch.together)
                pace[key] = pace.get(key, 0) + 1
        times = [
            measurements.since_ms + ceil_div(self.trial_ms - measurements.times.get(key, 0), runs)
            for key, runs in pace.items()
            if key[1] == self.next_trial(measurements, key[0])
        ]
        return min((time for time in times if time > now), default=None)
