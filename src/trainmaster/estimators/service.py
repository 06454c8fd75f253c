"""What a policy knows of how much service jobs take: samples that it was given, or what it saw.

`GivenService` answers from a file of samples. `LearnedService` answers from the jobs that ended and
those that go on (service_hazard.py), by class: size, queue and size, user and program where known, as
finely as it is told (`classes`). What
it has learned is a value, for the memo; a new table is made of it after some more jobs have ended.
Both say 1/G, the service that a completion is expected to cost, and how far that holds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from typing import Protocol

from trainmaster.config.options import ContentError, FromFile
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.estimators.gittins_index import Empirical, inverse_indices
from trainmaster.estimators.service_hazard import (
    BINS,
    ENTRIES,
    GPU_SECOND,
    NO_END,
    PRIOR,
    PRIOR_WEIGHT,
    UPPER,
    Outlook,
    Tally,
    as_service,
    bin_of,
)
from trainmaster.model.codec import stored_as
from trainmaster.model.plan import FrozenMap
from trainmaster.model.units import MINUTE, WHOLE

FEW = 64
"""Up to so many different samples the index is worked out exactly at each comparison."""
FINE = 1.05
"""Growth of the steps in which the index of more samples is tabulated."""
FRESH = 100
"""A new table after so many ends, and a part of those that it was made of ..."""
FRESH_MS = 30 * MINUTE
"""... or after this time, if it grows by that part."""
FRESH_PART = 32
HALF_LIFE = 40_000
"""An end counts half after so many others."""
SIZES_GPUS = (1, 2, 4, 8)
SIZE_WEIGHT = 3.0
QUEUE_WEIGHT = 20.0

Class = tuple[Hashable, ...]
Samples = FromFile[tuple[int, ...]]
SAMPLES_HELP = "a file of total GPU-seconds of past jobs; none: learn from those that end"
CLASSES = ("all", "size", "queue", "user")
"""How finely learned service is told apart, the last named and all before it."""
CLASSES_HELP = "how finely what is learned is told apart; user: by user and program too"
Seen = Iterable[tuple[tuple[Class, ...], int]]
"""Jobs by their classes, and what they have attained."""
Worth = tuple[int, int | None]
"""(1/G as service, the attained service at which it changes if that is known)."""


class Service(Protocol):
    """Both kinds of knowledge."""

    falls: bool
    """Whether 1/G within a quantum falls by all service received until it changes; else it stays."""

    def first(self) -> Learned | None: ...

    def learn(self, learned: Learned | None, view: View, now: int) -> Learned | None:
        """What is known after the jobs that have ended since; ranks are made anew where it changed."""
        ...

    def show(self, learned: Learned | None) -> None:
        """Answer from this from now on."""
        ...

    def worth(self, record: JobRecord, attained: int) -> Worth:
        """1/G for the best quantum."""
        ...

    def worth_within(self, record: JobRecord, attained: int, quantum: int | None) -> Worth:
        """1/G for this quantum, or for one without end."""
        ...


def known_from(samples: Samples, classes: str = CLASSES[-1]) -> Service:
    return GivenService(samples.value) if samples.value else LearnedService(classes)


# -- given -----------------------------------------------------------------------------------------


def parse_samples(text: str) -> tuple[int, ...]:
    """One number to a line, under a heading or not."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        cell = line.strip()
        try:
            gpu_s = float(cell)
        except ValueError:
            if not cell or (number == 1 and not cell[0].isdigit() and cell[0] not in "+-."):
                continue
            gpu_s = -1.0
        if not 0 <= gpu_s < 1e12:
            raise ContentError(f"line {number} must be GPU-seconds of at least 0, not {cell!r}")
        found.append(round(gpu_s * GPU_SECOND))
    if not any(found):
        raise ContentError("has no sample above 0: give one number of GPU-seconds to a line")
    return tuple(sorted(found))


class GivenService:
    """One distribution for all jobs."""

    def __init__(self, samples: Iterable[int]) -> None:
        self._known = Empirical(tuple(samples))
        self.falls = len(self._known.points) <= FEW
        self._steps = [] if self.falls else _fine_steps(self._known.points)
        self._table: list[int] | None = None

    def first(self) -> None:
        return None

    def learn(self, learned: Learned | None, view: View, now: int) -> None:
        return None

    def show(self, learned: Learned | None) -> None:
        pass

    def worth(self, record: JobRecord, attained: int) -> Worth:
        if self.falls:
            inverse = _inverse(self._known.index(attained))
            return inverse, attained + 1 if inverse < NO_END else None
        if self._table is None:
            pieces = [self._known.stretch(a, b) for a, b in pairwise(self._steps)]
            inverses = inverse_indices(pieces)
            self._table = [*(as_service(inverse / GPU_SECOND) for inverse in inverses), NO_END]
        step = bisect_right(self._steps, attained) - 1
        return self._table[step], self._next(step)

    def worth_within(self, record: JobRecord, attained: int, quantum: int | None) -> Worth:
        if self.falls:
            return self._inverse_within(attained, quantum), self._next_sample(attained, quantum)
        step = bisect_right(self._steps, attained) - 1
        return self._inverse_within(self._steps[step], quantum), self._next(step)

    def _inverse_within(self, attained: int, quantum: int | None) -> int:
        if quantum is None:
            return _inverse(self._known.index_to_the_end(attained))
        return _inverse(self._known.index(attained, quantum))

    def _next_sample(self, attained: int, quantum: int | None) -> int | None:
        """Where a sample is passed, or comes into the reach of the quantum."""
        passed = self._known.next_point(attained)
        if quantum is None or passed is None:
            return passed
        reached = self._known.next_point(attained + quantum)
        return passed if reached is None else min(passed, reached - quantum)

    def _next(self, step: int) -> int | None:
        return self._steps[step + 1] if step + 1 < len(self._steps) else None


def _inverse(index: Fraction) -> int:
    return min(NO_END, index.denominator // index.numerator) if index else NO_END


def _fine_steps(points: list[int]) -> list[int]:
    """From 0 over the smallest sample to the largest, growing evenly."""
    found, step = [0], points[0] or points[1]
    while step < points[-1]:
        found.append(step)
        step = max(step + 1, round(step * FINE))
    return [*found, points[-1]]


# -- learned ---------------------------------------------------------------------------------------


@stored_as("gittins.Service")
@dataclass(frozen=True, slots=True)
class Learned:
    """What has been seen so far."""

    past: FrozenMap[Class, Tally] = field(default_factory=FrozenMap)
    """Jobs that ended, up to when the table was made."""
    known: FrozenMap[Class, Tally] = field(default_factory=FrozenMap)
    """The same and those that went on at that time: the table."""
    made_ms: int | None = None
    """When that was; at first, when the first job came."""
    fresh: tuple[tuple[tuple[Class, ...], int], ...] = ()
    """Jobs that have ended since: their classes, and what they had attained."""
    ends: int = 0
    """How many ended jobs the table is made of, the faded ones in part."""

    def is_stale(self, now: int) -> bool:
        """Whether enough has been seen since the table was made to make another."""
        fresh = len(self.fresh)
        if not fresh or fresh * FRESH_PART < self.ends:
            return False
        return fresh >= FRESH or now - (self.made_ms or 0) >= FRESH_MS


class LearnedService:
    """Hazards by class. Everything held here is a cache of the `known` that it was last shown."""

    falls = False

    def __init__(self, classes: str = CLASSES[-1]) -> None:
        self._depth = 1 + CLASSES.index(classes)
        self._known: FrozenMap[Class, Tally] = FrozenMap()
        self._outlooks: dict[Class, Outlook] = {}
        self._outlook_by: dict[Hashable, Outlook] = {}

    def first(self) -> Learned:
        return Learned()

    def learn(self, learned: Learned | None, view: View, now: int) -> Learned:
        assert learned is not None
        if learned.made_ms is None:
            learned = replace(learned, made_ms=now)
        if view.ended:
            ended = [(self._classes(each), each.attained) for each in view.ended if each.attained]
            learned = replace(learned, fresh=(*learned.fresh, *ended))
            if learned.is_stale(now):
                learned = _made_anew(learned, self._going(view, now), now)
                view.rerank()
        self.show(learned)
        return learned

    def _going(self, view: View, now: int) -> Seen:
        """Jobs that have started and go on."""
        live = view.jobs.values()
        started = [record for record in live if record.first_start_ms is not None]
        return [(self._classes(record), record.attained_at(now)) for record in started]

    def _classes(self, record: JobRecord) -> tuple[Class, ...]:
        return classes_of(record)[: self._depth]

    def show(self, learned: Learned | None) -> None:
        assert learned is not None
        if learned.known is not self._known:
            self._known = learned.known
            self._outlooks.clear()
            self._outlook_by.clear()

    def worth(self, record: JobRecord, attained: int) -> Worth:
        step = bin_of(attained)
        return self.of(record).best[step], UPPER[step]

    def worth_within(self, record: JobRecord, attained: int, quantum: int | None) -> Worth:
        outlook = self.of(record)
        if outlook is UNKNOWN:
            return 0, None  # all are: nobody is preferred to anybody
        step = bin_of(attained) & ~1  # doublings are fine enough inside a queue, and half the work
        return outlook.within(step, quantum), UPPER[min(step + 1, BINS - 1)]

    def of(self, record: JobRecord) -> Outlook:
        job = record.job
        key = (record.group, job.queue, job.user, job.app)
        found = self._outlook_by.get(key)
        if found is None:
            found = self._outlook_by[key] = self._narrowest(self._classes(record))
        return found

    def _narrowest(self, classes: tuple[Class, ...]) -> Outlook:
        """Of the narrowest class that has been seen often enough to speak."""
        narrowest = UNKNOWN
        for each, weight in zip(classes, WEIGHTS, strict=False):
            found = self._outlooks.get(each)
            if found is None:
                found = narrowest
                tally = self._known.get(each)
                if tally is not None and tally.entries >= ENTRIES:
                    found = Outlook(tally.hazards(narrowest.hazards, weight))
                self._outlooks[each] = found
            narrowest = found
        return narrowest


UNKNOWN = Outlook(PRIOR)
WEIGHTS = (PRIOR_WEIGHT, SIZE_WEIGHT, QUEUE_WEIGHT, QUEUE_WEIGHT)


def classes_of(record: JobRecord) -> tuple[Class, ...]:
    """All jobs; of these, those of its size; of its queue; of its user and program, if known."""
    job = record.job
    size = bisect_right(SIZES_GPUS, (record.demand.nominal.total_share - 1) // WHOLE)
    wide: tuple[Class, ...] = ((), (size,), (job.queue, size))
    return (*wide, (job.queue, size, job.user, job.app)) if job.user or job.app else wide


def _made_anew(learned: Learned, going: Seen, now: int) -> Learned:
    kept = 0.5 ** (len(learned.fresh) / HALF_LIFE)
    past = {each: tally.faded(kept) for each, tally in learned.past.items()}
    past = {each: tally for each, tally in past.items() if tally.entries}
    for each, services in _by_class(learned.fresh).items():
        past[each] = past.get(each, Tally()).with_ended(services)
    known = dict(past)
    for each, services in _by_class(going).items():
        known[each] = known.get(each, Tally()).with_going(services)
    return Learned(FrozenMap(past), FrozenMap(known), now, ends=past[()].entries if past else 0)


def _by_class(seen: Seen) -> dict[Class, list[int]]:
    found: dict[Class, list[int]] = {}
    for classes, service in seen:
        for each in classes:
            found.setdefault(each, []).append(service)
    return found
