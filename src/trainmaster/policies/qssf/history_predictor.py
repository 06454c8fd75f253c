"""Predicts run times from history: runs of the same program, of the same user, and of similar jobs.

Two predictions (Helios, SC'21). The rolling one is the mean run time of the narrowest class with any runs;
for a single program, recent runs count more. The learned one is a mean of logarithms by attributes, in which
each class is shrunk towards the wider one around it, the more the fewer runs it has. The history grows with
the number of classes, not of jobs.
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
"""Assumed run time while nothing is known; it only orders jobs by their size."""
RECENT = 4
"""From the fourth run of a program on, a new run counts 1/4 of the mean."""
STEADY = 1 << 10
"""Wider classes use a plain mean over at least this many runs."""
PULL = 8
"""Weight of the wider class in a class's mean, in runs."""
WATCHES = 6
"""Number of parts of a day by which submission times are classified."""
MOST = 2_048
"""Most classes per user or queue; beyond that, the least recently used half is dropped."""

Class = tuple[str, tuple[Hashable, ...]]
"""(chapter: its user or queue, attributes within the chapter)."""


@stored_as("history.Class")
@dataclass(frozen=True, slots=True)
class ClassHistory:
    """The runs of one class."""

    count: int = 0
    mean_ms: int = 0
    """Mean run time; recent runs count more in classes of one program."""
    logs: int = 0
    """Sum of log2 of run times in ms, in parts per million."""
    last: int = 0
    """Sequence number of its last ended run."""

    def with_run(self, run_ms: int, number: int, window: int) -> ClassHistory:
        moved = (run_ms - self.mean_ms) // min(self.count + 1, window)
        logs = self.logs + round(log2(run_ms) * NOMINAL)
        return ClassHistory(self.count + 1, self.mean_ms + moved, logs, number)


NEVER = ClassHistory()
Chapter = FrozenMap[tuple[Hashable, ...], ClassHistory]


@stored_as("history.Runs")
@dataclass(frozen=True, slots=True)
class RunHistory:
    """The whole history, by chapter, so that adding a run copies little."""

    chapters: FrozenMap[str, Chapter] = field(default_factory=FrozenMap)
    ends: int = 0

    def with_ended(self, records: Iterable[JobRecord]) -> RunHistory:
        """The history with these ended jobs, whatever their outcome."""
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
        """The mean of the narrowest class with any runs."""
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
    """Every class of a job, once, with the window of its mean in runs."""
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
    """Classes from all jobs down to jobs of its queue, size, user and time of day."""
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
