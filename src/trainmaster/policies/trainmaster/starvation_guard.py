"""Guarantees a run to jobs that have fallen too far behind, which bounds how unfairly a job is served.

A job's fair age is how long it would have run by now if all jobs had shared the GPUs equally since its
submission: its age divided by the demand for its GPUs (its GPUs x mean number of jobs / GPUs of the cluster).
A waiting job whose fair age exceeds `ratio` x its run time + `slack` is guaranteed a run. It is ranked before
all other jobs, protected runs included, because otherwise a gang could wait indefinitely while small jobs
keep starting. The run lasts a tenth of the job's service so far, at least ten minutes and at most an hour.
Guaranteed runs hold at most a quarter of the GPUs (one job is always allowed), so a burst of them cannot
override the normal order. A job that is served at once and ends there has a finish-time ratio of fair age /
run time, so the guard keeps that near `ratio`.

Checking all waiting jobs takes time in proportion to their number, so the next check is made when the first
of them can have become due, at least ten minutes after the last one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isqrt

from trainmaster.core.lifecycle import WAITING
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model.codec import stored_as
from trainmaster.model.plan import FrozenMap
from trainmaster.model.units import HOUR, MINUTE, NOMINAL, WHOLE

APART_MS = 10 * MINUTE
SHORTEST_MS, LONGEST_MS = 10 * MINUTE, HOUR
PART_OF_PROGRESS = 10
PART_OF_GPUS = 4


@stored_as("starvation.Owed")
@dataclass(frozen=True, slots=True)
class GuaranteedRuns:
    """Jobs that are guaranteed a run, up to which attained service, and when to check again."""

    until: FrozenMap[str, int] = field(default_factory=FrozenMap)
    next_look_ms: int = 0


NO_GUARANTEED_RUNS = GuaranteedRuns()


@dataclass(frozen=True, slots=True)
class StarvationGuard:
    """How far behind a job may fall."""

    ratio_ppm: int
    """Limit of fair age over run time; 0: the guard is off."""
    slack_ms: int

    @property
    def is_on(self) -> bool:
        return self.ratio_ppm > 0

    def guaranteed_runs(self, view: View, owed: GuaranteedRuns, now: int) -> GuaranteedRuns:
        """Without the runs that have been served and, if a check is due, with new ones."""
        if not self.is_on:
            return owed
        until = {
            job: most for job, most in owed.until.items() if _is_unserved(view, job, most, now)
        }
        look = now >= owed.next_look_ms
        next_look = owed.next_look_ms
        added: list[JobRecord] = []
        if look:
            added, next_look = self._due(view, until, now)
        if not look and len(until) == len(owed.until):
            return owed
        for record in (
            view.jobs[job] for job in owed.until if job in view.jobs and job not in until
        ):
            view.invalidate_rank(record)
        for record in added:
            until[record.id] = record.attained + _guaranteed_service(record)
            view.invalidate_rank(record)
        return GuaranteedRuns(FrozenMap(until), next_look)

    def _due(self, view: View, owed: dict[str, int], now: int) -> tuple[list[JobRecord], int]:
        """The most overdue jobs that are guaranteed a run now, and when to check again."""
        gpus = view.topology.training_gpus
        next_look = now + max(APART_MS, self.slack_ms)
        due: list[tuple[int, int, JobRecord]] = []
        for record in view.jobs.values():
            if record.phase not in WAITING or record.id in owed:
                continue
            bound = self._bound(record)
            earliest = record.job.submit_ms + bound
            if earliest <= now:
                size, crowd = record.demand.nominal.total_share, view.job_time_during(record)
                earliest = record.job.submit_ms + isqrt(bound * size * crowd // (gpus * WHOLE))
            if earliest <= now:
                age = now - record.job.submit_ms
                due.append((bound * NOMINAL // max(1, age), record.seq, record))
            elif earliest < next_look:
                next_look = earliest
        if due:
            next_look = now
        chosen = self._affordable(view, owed, sorted(due)) if due else []
        return chosen, max(next_look, now + APART_MS)

    def _bound(self, record: JobRecord) -> int:
        """The fair age in ms from which the job is guaranteed a run."""
        ran = record.attained // record.demand.nominal.total_share
        return self.ratio_ppm * ran // NOMINAL + self.slack_ms

    def _affordable(
        self, view: View, owed: dict[str, int], due: list[tuple[int, int, JobRecord]]
    ) -> list[JobRecord]:
        left = view.topology.training_gpus * WHOLE // PART_OF_GPUS
        left -= sum(view.jobs[job].demand.nominal.total_share for job in owed)
        chosen: list[JobRecord] = []
        for _, _, record in due:
            size = record.demand.nominal.total_share
            if size <= left or not (owed or chosen):
                chosen.append(record)
                left -= size
        return chosen


def _is_unserved(view: View, job: str, most: int, now: int) -> bool:
    record = view.jobs.get(job)
    return record is not None and record.attained_at(now) < most


def _guaranteed_service(record: JobRecord) -> int:
    """Service of the guaranteed run."""
    size = record.demand.nominal.total_share
    tenth = record.attained // PART_OF_PROGRESS
    return min(max(tenth, SHORTEST_MS * size), LONGEST_MS * size)
