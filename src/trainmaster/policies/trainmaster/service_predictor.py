"""What is known of how much service a job takes, from jobs like it: its class, and its siblings.

Classes, each inside the one before and shrunk to it (estimators/service_prediction.py): all jobs; those
of its size; of its queue and size; of its user and program, where known. Inside these its siblings, the
jobs submitted just before and after it by the same source (core/submission_siblings.py): they tell
most, for one sweep's runs mostly take alike.

Tables of the classes are made anew after some ends, and then everybody is ranked again. When a job
ends, its siblings are. What was seen is a value, for the memo; prospects are a cache of it and of facts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from trainmaster.core.lifecycle import ENDED
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.estimators.service_hazard import bin_of
from trainmaster.estimators.service_prediction import (
    NOBODY,
    Circle,
    Prospect,
    Sibling,
    SiblingProspect,
    nearness,
)
from trainmaster.model.codec import stored_as
from trainmaster.model.plan import FrozenMap
from trainmaster.model.program_name import program_of
from trainmaster.model.units import MINUTE, WHOLE

FRESH = 50
"""New tables after so many ends ..."""
FRESH_MS = 30 * MINUTE
"""... or after this time and one."""
SIZES_GPUS = (1, 2, 4, 8)
WEIGHTS = (2.0, 3.0, 5.0, 5.0)
"""What the class around each class counts for: all, of its size, of its queue, of its program."""

MOST_CLASSES = len(WEIGHTS)
HARDLY = 0.95
"""What so many of jobs like it take at most is taken for what it will hardly exceed ..."""
ENOUGH = 30
"""... where so many have ended."""

Class = tuple[Hashable, ...]


@stored_as("service.Observations")
@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that was seen, and what of it the tables are made of."""

    past: FrozenMap[Class, Circle] = field(default_factory=FrozenMap)
    """Jobs that ended, by class, up to when the tables were made."""
    known: FrozenMap[Class, Circle] = field(default_factory=FrozenMap)
    """The same and those that went on at that time: the tables."""
    going: FrozenMap[int, int] = field(default_factory=FrozenMap)
    """Those by their number: the bins that they were in."""
    made_ms: int | None = None
    """When that was; at first, when the first job came."""
    fresh: tuple[tuple[tuple[Class, ...], int], ...] = ()
    """Jobs that have ended since: their classes and the bins in which they did."""

    def is_stale(self, now: int) -> bool:
        fresh = len(self.fresh)
        return fresh >= FRESH or (fresh > 0 and now - (self.made_ms or 0) >= FRESH_MS)


class Foresight:
    """Prospects of jobs. Everything held here is a cache of what was seen and of the view."""

    def __init__(
        self, *, asks_classes: bool = True, asks_programs: bool = True, asks_siblings: bool = True
    ) -> None:
        self._classes = MOST_CLASSES if asks_programs else MOST_CLASSES - 1
        self._classes = self._classes if asks_classes else 0
        self._asks_siblings = asks_siblings
        self._seen = Seen()
        self._by_classes: dict[tuple[Class, ...], Prospect] = {}
        self._by_source: dict[Hashable, Prospect] = {}
        self._by_job: dict[int, Prospect] = {}
        self._nearby: dict[int, tuple[int, list[tuple[JobRecord, float]]]] = {}
        """By job: how many siblings it had, and those that count."""

    # -- learning ----------------------------------------------------------------------------------

    def learn(self, seen: Seen, view: View, now: int) -> Seen:
        """What is known after the jobs that have ended since; whose prospect changed is ranked anew."""
        if seen.made_ms is None:
            seen = replace(seen, made_ms=now)
        if view.ended:
            served = [record for record in view.ended if record.attained]
            fresh = [(classes_of(record), bin_of(record.attained)) for record in served]
            seen = replace(seen, fresh=(*seen.fresh, *fresh))
            for record in view.ended:
                self._by_job.pop(record.seq, None)
                self._nearby.pop(record.seq, None)
            if seen.is_stale(now):
                seen = _made_anew(seen, view, now)
                view.rerank()
            elif self._asks_siblings:
                self._tell_siblings(view)
        self.show(seen)
        return seen

    def show(self, seen: Seen) -> None:
        """Answer from this from now on."""
        if seen.known is not self._seen.known:
            self._by_classes.clear()
            self._by_source.clear()
            self._by_job.clear()
        self._seen = seen

    def _tell_siblings(self, view: View) -> None:
        for ended in view.ended:
            for record in ended.siblings:
                if record.is_live:
                    self._by_job.pop(record.seq, None)
                    view.restate(record)

    # -- answering ---------------------------------------------------------------------------------

    def of(self, record: JobRecord) -> Prospect:
        """What lies ahead of this job."""
        found = self._by_job.get(record.seq)
        if found is None:
            found = self._of_class(record)
            if self._asks_siblings and record.siblings:
                found = self._among_siblings(record, found)
            self._by_job[record.seq] = found
        return found

    def hardly_exceeded(self, record: JobRecord) -> int | None:
        """Service that the job will hardly exceed in all; None where too little is known of its kind."""
        known = self._seen.known.get((classes_of(record)[: self._classes] or ((),))[-1])
        if known is None or sum(known.ended) < ENOUGH:
            return None
        return self.of(record).quantile(bin_of(record.attained), HARDLY)

    def _among_siblings(self, record: JobRecord, around: Prospect) -> Prospect:
        """With how those fared that have ended, or had left a bin behind when the tables were made."""
        going, known = self._seen.going, list[Sibling]()
        for each, counts in self._near(record):
            if each.phase in ENDED:
                if each.attained:
                    known.append((counts, bin_of(each.attained), True))
            else:
                last = going.get(each.seq, 0)
                if last:
                    known.append((counts, last, False))
        return SiblingProspect(around.chances, known) if known else around

    def _near(self, record: JobRecord) -> list[tuple[JobRecord, float]]:
        """Siblings that count, and how much."""
        known = self._nearby.get(record.seq)
        if known is not None and known[0] == len(record.siblings):
            return known[1]
        submitted, siblings = record.job.submit_ms, record.siblings
        elders = sum([each.seq < record.seq for each in siblings])
        found = []
        for place, each in enumerate(siblings):
            distance = elders - place if place < elders else place - elders + 1
            counts = nearness(distance, abs(each.job.submit_ms - submitted))
            if counts:
                found.append((each, counts))
        self._nearby[record.seq] = (len(siblings), found)
        return found

    def _of_class(self, record: JobRecord) -> Prospect:
        job = record.job
        key = (record.group, job.queue, job.user, job.app)
        found = self._by_source.get(key)
        if found is None:
            found = self._by_source[key] = self._of_classes(classes_of(record)[: self._classes])
        return found

    def _of_classes(self, classes: tuple[Class, ...]) -> Prospect:
        """Of a job of these and no narrower ones: what is known of the wider is looked up once."""
        found = self._by_classes.get(classes)
        if found is None:
            chances: Sequence[float] = NOBODY
            if classes:
                chances = self._of_classes(classes[:-1]).chances
                circle = self._seen.known.get(classes[-1])
                if circle is not None:
                    chances = circle.chances(chances, WEIGHTS[len(classes) - 1])
            found = self._by_classes[classes] = Prospect(chances)
        return found


def classes_of(record: JobRecord) -> tuple[Class, ...]:
    """All jobs; those of its size; of its queue; of its user and program, if known."""
    job = record.job
    size = bisect_right(SIZES_GPUS, (record.demand.nominal.total_share - 1) // WHOLE)
    wide: tuple[Class, ...] = ((), (size,), (job.queue, size))
    return (
        (*wide, (job.queue, size, job.user, program_of(job.app))) if job.user or job.app else wide
    )


def _made_anew(seen: Seen, view: View, now: int) -> Seen:
    past = dict(seen.past)
    for each, bins in _by_class(seen.fresh).items():
        past[each] = past.get(each, Circle()).with_ended(bins)
    started = [record for record in view.jobs.values() if record.first_start_ms is not None]
    going = {record.seq: bin_of(record.attained_at(now)) for record in started}
    known = dict(past)
    by_class = _by_class((classes_of(record), going[record.seq]) for record in started)
    for each, bins in by_class.items():
        known[each] = known.get(each, Circle()).with_going(bins)
    return Seen(FrozenMap(past), FrozenMap(known), FrozenMap(going), now)


def _by_class(seen: Iterable[tuple[tuple[Class, ...], int]]) -> dict[Class, list[int]]:
    found: dict[Class, list[int]] = {}
    for classes, last in seen:
        for each in classes:
            found.setdefault(each, []).append(last)
    return found
