"""Speeds of jobs that share a GPU: measured, else published, else predicted from utilisation.

Groups are identified by the kinds of their jobs: model, and utilisation rounded to a tenth. A measurement of
the group comes first, then the published speeds of a pair, then the interference model (perf/
default_parameters.py, docs/perf.md) if the utilisation of every job is known, corrected by its past error.
If none of these applies there is no prediction, and the pair has to be tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from trainmaster.core.state import JobRecord
from trainmaster.model.codec import stored_as
from trainmaster.model.placement import Role, Sharing
from trainmaster.model.plan import FrozenMap
from trainmaster.model.units import NOMINAL
from trainmaster.perf.default_parameters import SHARED_GPU
from trainmaster.perf.gpu_interference import GpuOccupant
from trainmaster.perf.model_zoo import table_name

TENTH = NOMINAL // 10
MOST_MEASURED = 4_096
"""Measured speeds that are remembered; the oldest are dropped first."""
WEIGHT = 4
"""A new measurement counts 1/4, the previous estimate 3/4."""


@stored_as("colocation.JobKind")
class JobKind(NamedTuple):
    """Jobs that are expected to interfere alike with others on their GPU."""

    model: str
    busy_ppm: int | None
    """Utilisation to a tenth, where known."""

    @property
    def is_nameless(self) -> bool:
        """Whether nothing can be learned from one such job about the next."""
        return not self.model and self.busy_ppm is None


MemberKey = tuple[JobKind, tuple[JobKind, ...]]
"""One job, and the others on its GPU in a fixed order."""


def kind_of(record: JobRecord) -> JobKind:
    return _kind(record.job.model, record.util_ppm)


@lru_cache(maxsize=4_096)
def _kind(model: str, used: int | None) -> JobKind:
    busy = None if used is None else max(1, (used + TENTH // 2) // TENTH) * TENTH
    return JobKind(table_name(model), busy)


def member_keys(kinds: Sequence[JobKind]) -> list[MemberKey]:
    """The key of each job of the group: its own kind, and the kinds of the others."""
    return [
        (mine, tuple(sorted((*kinds[:at], *kinds[at + 1 :]), key=_sort_key)))
        for at, mine in enumerate(kinds)
    ]


def _sort_key(kind: JobKind) -> tuple[str, int]:
    return (kind.model, kind.busy_ppm or 0)


@stored_as("colocation.Speeds")
@dataclass(frozen=True, slots=True)
class ColocationSpeeds:
    """Speeds measured so far; part of the memo."""

    measured: FrozenMap[MemberKey, int] = field(default_factory=FrozenMap)
    """Speed relative to alone, in parts per million."""
    alone: FrozenMap[tuple[str, str], int] = field(default_factory=FrozenMap)
    """Speed alone by model and GPU type."""
    trust_ppm: int = NOMINAL
    """Measured over predicted speed of groups, at their first measurement."""
    by_turns: FrozenMap[MemberKey, int] = field(default_factory=FrozenMap)
    """What `measured` is for MPS, for time-slicing."""

    def table(self, sharing: Sharing) -> FrozenMap[MemberKey, int]:
        """What was measured of groups that share so."""
        return self.by_turns if sharing is Sharing.TIME else self.measured

    def predicted(self, kinds: Sequence[JobKind], sharing: Sharing) -> tuple[int, ...] | None:
        """The part of its speed that each job would keep; None if it cannot be predicted."""
        found, table = [], self.table(sharing)
        for mine, beside in member_keys(kinds):
            rate = table.get((mine, beside))
            if rate is None:
                rate = predicted_by_utilisation(mine, beside, sharing)
                if rate is None:
                    return None
                rate = min(NOMINAL, rate * self.trust_ppm // NOMINAL)
            found.append(rate)
        return tuple(found)

    def with_measured(
        self, kinds: Sequence[JobKind], rates: Sequence[int], sharing: Sharing
    ) -> ColocationSpeeds:
        """With one more measured group."""
        before = self.table(sharing)
        seen = dict(before)
        for member, rate in zip(member_keys(kinds), rates, strict=True):
            known = seen.pop(member, None)
            seen[member] = rate if known is None else known + (rate - known) // WEIGHT
        while len(seen) > MOST_MEASURED:
            del seen[next(iter(seen))]
        trust = self.trust_ppm
        if all(member not in before for member in member_keys(kinds)):
            predicted = [
                predicted_by_utilisation(*member, sharing) for member in member_keys(kinds)
            ]
            if None not in predicted:
                really = sum(rates) * NOMINAL // max(1, sum(each or 0 for each in predicted))
                trust += (really - trust) // WEIGHT
        if sharing is Sharing.TIME:
            return replace(self, by_turns=FrozenMap(seen), trust_ppm=trust)
        return replace(self, measured=FrozenMap(seen), trust_ppm=trust)

    def alone_on(self, record: JobRecord, kind: str, speed_ppm: int) -> int:
        """Speed of a job alone on a GPU of that type: measured of its model, else the type's own."""
        return self.alone.get((table_name(record.job.model), kind), speed_ppm)

    def with_speed_alone(self, record: JobRecord, kind: str) -> ColocationSpeeds:
        """With the current speed of a job that runs alone on a GPU of that type."""
        key = (table_name(record.job.model), kind)
        if self.alone.get(key) == record.speed_ppm:
            return self
        return replace(self, alone=self.alone.updated({key: record.speed_ppm}))


NOTHING_MEASURED = ColocationSpeeds()


def predicted_by_utilisation(
    mine: JobKind, beside: Sequence[JobKind], sharing: Sharing
) -> int | None:
    """From the published pair or the interference model; None if a utilisation is unknown."""
    if len(beside) == 1:
        pair = SHARED_GPU.pairs.get((mine.model, beside[0].model))
        if pair is not None:
            return pair
    if mine.busy_ppm is None or any(each.busy_ppm is None for each in beside):
        return None
    occupants = [GpuOccupant("", Role.GUARANTEED, each.busy_ppm or 0) for each in (mine, *beside)]
    return SHARED_GPU.remaining_speed(occupants[0], occupants[1:], sharing)
