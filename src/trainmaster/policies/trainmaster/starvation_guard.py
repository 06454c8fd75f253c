"""Runs owed to jobs that have fallen too far behind: a cap on how unfairly any job is served.

A job's fair age is how long it would have run by now had all jobs shared the GPUs evenly since it came:
its age, divided by the crowd that wanted its GPUs (GPUs x mean jobs beside it / GPUs of the cluster).
One that waits and whose fair age exceeds `ratio` x what it has run + `slack` is owed a run: it goes
before everybody until it has received a tenth of its progress, at least ten minutes and at most an hour;
before protected runs too, for a gang would wait for ever where others keep starting. Owed runs hold at
most a quarter of the GPUs, or are one: so that a burst of owed does not turn the order over. Predicted
finish-time ratio of a job that is served at once and ends there = fair age / run time: the guard keeps
it near `ratio`.

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
    """Which jobs are owed a run, up to which attained service, and when to look again."""

    until: FrozenMap[str, int] = field(default_factory=FrozenMap)
    next_look_ms: int = 0


NO_GUARANTEED_RUNS = GuaranteedRuns()


@dataclass(frozen=True, slots=True)
class StarvationGuard:
    """How far behind a job may fall."""

    ratio_ppm: int
    """Fair age over run time; 0 = nobody is owed anything."""
    slack_ms: int

    @property
    def is_on(self) -> bool:
        return self.ratio_ppm > 0

    def guaranteed_runs(self, view: View, owed: GuaranteedRuns, now: int) -> GuaranteedRuns:
        """GuaranteedRuns after those that are paid and, where the time has come, those that are due."""
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
        """The most overdue that may be owed a run now, and when to look again."""
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
        """The fair age in ms from which it is owed a run."""
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
    """Service of the run that it is owed."""
    size = record.demand.nominal.total_share
    tenth = record.attained // PART_OF_PROGRESS
    return min(max(tenth, SHORTEST_MS * size), LONGEST_MS * size)
