"""Speeds of jobs that share a GPU: measured, else published, else predicted from utilisation.

Groups are identified by the kinds of their jobs: model or program, and utilisation rounded to a tenth. A
measurement of the group comes first, then the published speeds of a pair, then the interference model (perf/
default_parameters.py, docs/perf.md) if the utilisation of every job is known. Published and modelled speeds
are corrected by what groups measured so far have shown of all kinds alike; modelled ones also by what pairs
have shown of each kind, how much it suffers and how much others suffer beside it. So a pair that was never
together is predicted from the pairs of either. If none of these applies there is no prediction, and the pair
has to be tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

from trainmaster.core.state import JobRecord
from trainmaster.model.codec import stored_as
from trainmaster.model.packing_score import Evidence
from trainmaster.model.placement import Role, Sharing
from trainmaster.model.plan import FrozenMap
from trainmaster.model.program_name import program_of
from trainmaster.model.units import NOMINAL
from trainmaster.perf.default_parameters import SHARED_GPU
from trainmaster.perf.gpu_interference import GpuOccupant
from trainmaster.perf.model_zoo import table_name

TENTH = NOMINAL // 10
MOST_MEASURED = 4_096
"""Measured speeds that are remembered; the oldest are dropped first."""
WEIGHT = 4
"""A new measurement counts 1/4, the previous estimate 3/4."""
MOST_WEIGHT = 64
"""A correction of all kinds alike is the mean over this many pairs and then moves by 1/64."""
PROGRAM = "/"
"""Between user and program in a name; names of models have letters and digits alone."""
FARTHEST = 10
"""A correction of one kind is at most this factor."""


@stored_as("colocation.JobKind")
class JobKind(NamedTuple):
    """Jobs that are expected to interfere alike with others on their GPU."""

    model: str
    """Its model, else its user and program."""
    busy_ppm: int | None
    """Utilisation to a tenth, where known."""

    @property
    def is_untried(self) -> bool:
        """Whether such jobs are never tried with others: their use of a GPU is measured first.

        A program whose model is not named runs alone until it is known how busy it keeps a GPU.
        """
        return self.busy_ppm is None and (not self.model or PROGRAM in self.model)


MemberKey = tuple[JobKind, tuple[JobKind, ...]]
"""One job, and the others on its GPU in a fixed order."""


def kind_of(record: JobRecord) -> JobKind:
    job = record.job
    return _kind(job.model, job.user, job.app, record.util_ppm)


@lru_cache(maxsize=4_096)
def _kind(model: str, user: str, app: str, used: int | None) -> JobKind:
    busy = None if used is None else max(1, (used + TENTH // 2) // TENTH) * TENTH
    name = table_name(model)
    if not name and app:
        name = f"{user}{PROGRAM}{program_of(app)}"
    return JobKind(name, busy)


def member_keys(kinds: Sequence[JobKind]) -> list[MemberKey]:
    """The key of each job of the group: its own kind, and the kinds of the others."""
    return [
        (mine, tuple(sorted((*kinds[:at], *kinds[at + 1 :]), key=_sort_key)))
        for at, mine in enumerate(kinds)
    ]


def _sort_key(kind: JobKind) -> tuple[str, int]:
    return (kind.model, kind.busy_ppm or 0)


@stored_as("colocation.Effect")
class KindEffect(NamedTuple):
    """How much a kind differs from what is predicted of it, in parts per million."""

    keeps_ppm: int = NOMINAL
    """Of the predicted speed, what it keeps beside others."""
    leaves_ppm: int = NOMINAL
    """Of the predicted speed, what others keep beside it."""


AS_PREDICTED = KindEffect()


class PriorSpeed(NamedTuple):
    """The part of its speed that a job keeps beside others, before anything was measured."""

    rate: int
    evidence: Evidence


class GroupSpeeds(NamedTuple):
    """The part of its speed that each job of a group would keep, and how that is known."""

    rates: tuple[int, ...]
    evidence: Evidence


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
    groups: int = 0
    """First measurements that `trust_ppm` is made of."""
    effects: FrozenMap[tuple[JobKind, Sharing], KindEffect] = field(default_factory=FrozenMap)
    """By kind, of pairs that share so."""

    def table(self, sharing: Sharing) -> FrozenMap[MemberKey, int]:
        """What was measured of groups that share so."""
        return self.by_turns if sharing is Sharing.TIME else self.measured

    def predicted(self, kinds: Sequence[JobKind], sharing: Sharing) -> tuple[int, ...] | None:
        """The part of its speed that each job would keep; None if it cannot be predicted."""
        found = self.speeds_of(kinds, sharing)
        return None if found is None else found.rates

    def speeds_of(self, kinds: Sequence[JobKind], sharing: Sharing) -> GroupSpeeds | None:
        """The same, with how it is known: by what says least of any of the jobs."""
        found: list[int] = []
        evidence = Evidence.MEASURED
        for member in member_keys(kinds):
            rate = self.table(sharing).get(member)
            if rate is None:
                prior = prior_speed(*member, sharing)
                if prior is None:
                    return None
                rate, by = self._corrected(prior, *member, sharing), prior.evidence
                if by is Evidence.UTILISATION and any((e, sharing) in self.effects for e in kinds):
                    by = Evidence.LEARNED
                evidence = max(evidence, by, key=lambda each: each.value)
            found.append(rate)
        return GroupSpeeds(tuple(found), evidence)

    def _corrected(
        self, prior: PriorSpeed, mine: JobKind, beside: Sequence[JobKind], sharing: Sharing
    ) -> int:
        rate = prior.rate * self.trust_ppm // NOMINAL
        if prior.evidence is Evidence.UTILISATION:
            rate = rate * self._effect(mine, sharing).keeps_ppm // NOMINAL
            for other in beside:
                rate = rate * self._effect(other, sharing).leaves_ppm // NOMINAL
        return max(1, min(NOMINAL, rate))

    def _effect(self, kind: JobKind, sharing: Sharing) -> KindEffect:
        return self.effects.get((kind, sharing), AS_PREDICTED)

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
        is_first = all(member not in before for member in member_keys(kinds))
        learned = self._with_first(kinds, rates, sharing) if is_first else self
        if sharing is Sharing.TIME:
            return replace(learned, by_turns=FrozenMap(seen))
        return replace(learned, measured=FrozenMap(seen))

    def _with_first(
        self, kinds: Sequence[JobKind], rates: Sequence[int], sharing: Sharing
    ) -> ColocationSpeeds:
        """With what the first measurement of a group says of other groups."""
        members = member_keys(kinds)
        priors = [prior for each in members if (prior := prior_speed(*each, sharing)) is not None]
        if len(priors) < len(kinds):
            return self
        really = sum(rates) * NOMINAL // max(1, sum(prior.rate for prior in priors))
        weight = max(WEIGHT, min(MOST_WEIGHT, self.groups + 2))
        trust = self.trust_ppm + (really - self.trust_ppm) // weight
        found = replace(self, trust_ppm=trust, groups=self.groups + 1)
        if len(kinds) != 2 or any(prior.evidence is not Evidence.UTILISATION for prior in priors):
            return found
        first, second = (
            rate * NOMINAL // self._corrected(prior, *member, sharing)
            for member, prior, rate in zip(members, priors, rates, strict=True)
        )
        return found._with_effects({kinds[1]: (second, first), kinds[0]: (first, second)}, sharing)

    def _with_effects(
        self, errors: Mapping[JobKind, tuple[int, int]], sharing: Sharing
    ) -> ColocationSpeeds:
        """`errors`: by kind, measured over predicted speed of itself and of the job beside it."""
        effects = dict(self.effects)
        for kind, (own, other) in errors.items():
            known = effects.pop((kind, sharing), AS_PREDICTED)
            moved = KindEffect(_moved(known.keeps_ppm, own), _moved(known.leaves_ppm, other))
            effects[kind, sharing] = moved
        while len(effects) > MOST_MEASURED:
            del effects[next(iter(effects))]
        return replace(self, effects=FrozenMap(effects))

    def alone_on(self, record: JobRecord, kind: str, speed_ppm: int) -> int:
        """Speed of a job alone on a GPU of that type: measured of its model, else the type's own."""
        return self.alone.get((kind_of(record).model, kind), speed_ppm)

    def with_speed_alone(self, record: JobRecord, kind: str) -> ColocationSpeeds:
        """With the current speed of a job that runs alone on a GPU of that type."""
        key = (kind_of(record).model, kind)
        if self.alone.get(key) == record.speed_ppm:
            return self
        return replace(self, alone=self.alone.updated({key: record.speed_ppm}))


NOTHING_MEASURED = ColocationSpeeds()


def _moved(factor_ppm: int, error_ppm: int) -> int:
    """A correction after an error of a pair's speed, which two corrections answer for in equal parts."""
    root = isqrt(error_ppm * NOMINAL)
    moved = factor_ppm + factor_ppm * (root - NOMINAL) // (WEIGHT * NOMINAL)
    return max(NOMINAL // FARTHEST, min(NOMINAL * FARTHEST, moved))


def prior_speed(mine: JobKind, beside: Sequence[JobKind], sharing: Sharing) -> PriorSpeed | None:
    """From the published pair or the interference model; None if a utilisation is unknown."""
    if len(beside) == 1:
        pair = SHARED_GPU.pairs.get((mine.model, beside[0].model))
        if pair is not None:
            return PriorSpeed(pair, Evidence.PUBLISHED)
    if mine.busy_ppm is None or any(each.busy_ppm is None for each in beside):
        return None
    first, *others = [GpuOccupant("", Role.GUARANTEED, e.busy_ppm or 0) for e in (mine, *beside)]
    return PriorSpeed(SHARED_GPU.remaining_speed(first, others, sharing), Evidence.UTILISATION)
