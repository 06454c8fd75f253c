"""How long a job will run by what is remembered of others: runs of its program, its user's, its like.

Two answers (Helios, SC'21): the rolling one is the mean run time of the narrowest class that has been
seen, recent runs weighing more where it is one program; the learned one is a mean of logarithms by
attributes, each class drawn towards the wider one around it by how little it has seen. What is
remembered is a value, for the memo, and grows with the number of classes, not of jobs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from math import log2

from trainmaster.core.state import JobRecord
from trainmaster.model.codec import stored_as
from trainmaster.model.plan import FrozenMap
from trainmaster.model.program_name import program_of
from trainmaster.model.units import HOUR, NOMINAL

BLANK_MS = HOUR
"""How long a job is taken to run while nothing at all is known: it only orders jobs by their size."""
RECENT = 4
"""A run of a program weighs a quarter against all before it, once there have been as many."""
STEADY = 1 << 10
"""Wider classes have means proper, for as many runs at least."""
PULL = 8
"""A class is drawn towards the wider one as if it had seen so many jobs of that one's mean."""
WATCHES = 6
"""Parts of a day that a time of submission is told apart by."""
MOST = 2_048
"""Classes remembered per user or queue; beyond it, the half that has not been seen for longest goes."""

Class = tuple[str, tuple[Hashable, ...]]
"""(chapter: whose it is, what tells it apart there)."""


@stored_as("history.Class")
@dataclass(frozen=True, slots=True)
class ClassHistory:
    """The runs of one class."""

    count: int = 0
    mean_ms: int = 0
    """Recent ones weigh more, or all the same."""
    logs: int = 0
    """Sum of log2 of run times in ms, in parts per million."""
    last: int = 0
    """The number, among all ends, of the last one."""

    def with_run(self, run_ms: int, number: int, window: int) -> ClassHistory:
        moved = (run_ms - self.mean_ms) // min(self.count + 1, window)
        logs = self.logs + round(log2(run_ms) * NOMINAL)
        return ClassHistory(self.count + 1, self.mean_ms + moved, logs, number)


NEVER = ClassHistory()
Chapter = FrozenMap[tuple[Hashable, ...], ClassHistory]


@stored_as("history.Runs")
@dataclass(frozen=True, slots=True)
class RunHistory:
    """Everything remembered: by chapter, so that one more run copies little."""

    chapters: FrozenMap[str, Chapter] = field(default_factory=FrozenMap)
    ends: int = 0

    def with_ended(self, records: Iterable[JobRecord]) -> RunHistory:
        """And these have ended, whatever way."""
        changed, ends = dict[str, dict[tuple[Hashable, ...], ClassHistory]](), self.ends
        for record in records:
            run_ms = record.attained // record.demand.nominal.total_share
            if run_ms < 1:
                continue
            ends += 1
            for name, window in _classes(record):
                page = changed.get(name[0])
                if page is None:
                    page = changed[name[0]] = dict(self.chapters.get(name[0], {}))
                page[name[1]] = page.get(name[1], NEVER).with_run(run_ms, ends, window)
        if not changed:
            return self
        pages = {name: FrozenMap(_kept(page)) for name, page in changed.items()}
        return RunHistory(self.chapters.updated(pages), ends)

    def rolling_ms(self, record: JobRecord) -> int:
        """The mean of the narrowest class that has been seen."""
        found = (self._seen(name) for name in _narrowing(record))
        return next((seen.mean_ms for seen in found if seen.count), BLANK_MS)

    def learned_ms(self, record: JobRecord) -> int:
        """By attributes: queue, size, user and time of day."""
        level: float | None = None
        for name in _widening(record):
            seen = self._seen(name)
            if seen.count:
                own = seen.logs / NOMINAL
                pull = 0 if level is None else PULL
                level = (own + pull * (level or 0.0)) / (seen.count + pull)
        return BLANK_MS if level is None else max(1, round(2.0**level))

    def _seen(self, name: Class) -> ClassHistory:
        chapter, detail = name
        page = self.chapters.get(chapter)
        return NEVER if page is None else page.get(detail, NEVER)


def _kept(
    page: dict[tuple[Hashable, ...], ClassHistory],
) -> dict[tuple[Hashable, ...], ClassHistory]:
    if len(page) <= MOST:
        return page
    lasting = sorted(seen.last for seen in page.values())[len(page) // 2]
    return {detail: seen for detail, seen in page.items() if seen.last >= lasting}


def _classes(record: JobRecord) -> Iterator[tuple[Class, int]]:
    """Every class of a job, once, with how many runs its mean looks back on."""
    for name in dict.fromkeys((*_narrowing(record), *_widening(record))):
        yield name, RECENT if name[1][:1] == ("program",) else STEADY


def _narrowing(record: JobRecord) -> Iterator[Class]:
    """Its program, the user's own runs first; the user's jobs; jobs of its queue and size; all jobs."""
    job, size = record.job, record.demand.nominal.total_share
    user, queue = f"user {job.user}", f"queue {job.queue}"
    if job.app:
        program = program_of(job.app)
        if job.user:
            yield user, ("program", program, size)
            yield user, ("program", program)
        yield queue, ("program", program, size)
        yield queue, ("program", program)
    if job.user:
        yield user, ("size", size)
        yield user, ()
    yield queue, ("size", size)
    yield "all", ("size", size)
    yield "all", ()


def _widening(record: JobRecord) -> Iterator[Class]:
    """From all jobs down to those of its queue, size, user and time of day."""
    job, size = record.job, record.demand.nominal.total_share
    watch = job.submit_ms // HOUR % 24 * WATCHES // 24
    yield "all", ()
    yield "all", ("size", size)
    yield f"queue {job.queue}", ("size", size)
    if job.user:
        yield f"user {job.user}", ("queue", job.queue, size)
        yield f"user {job.user}", ("queue", job.queue, size, watch)
    else:
        yield f"queue {job.queue}", ("size", size, watch)
