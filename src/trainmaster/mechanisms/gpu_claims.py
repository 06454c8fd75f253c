"""How many GPUs each job gets: jobs claim free and held GPUs in rank order.

Every job first gets its minimum or nothing; then an allocator divides the rest among the jobs that can
use more. Runs that cannot be resized now keep their GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Protocol

from trainmaster.core.draft import Draft
from trainmaster.core.lifecycle import Phase
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.rank_index import Candidates, Key, RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.mechanisms.apply_allocation import Shortfall
from trainmaster.mechanisms.resize import can_resize, is_open
from trainmaster.mechanisms.speedup_curves import SpeedupCurve
from trainmaster.model.units import WHOLE


class GpuClaim:
    """One job in an allocation: how many GPUs it can take, and how many it has been given so far."""

    __slots__ = ("count", "curve", "high", "kinds", "low", "need", "record", "work")

    def __init__(self, record: JobRecord, count: int, need: int, kinds: tuple[int, ...]) -> None:
        self.record = record
        self.low = self.high = count
        self.need = need
        """Thousandths of a GPU that `low` takes."""
        self.kinds = kinds
        """Device types that it may use, fastest first."""
        self.count = 0
        self.curve: SpeedupCurve | None = None
        """Its speed by number of GPUs; None where the number is fixed."""
        self.work = 0
        """Work left, in ms x parts per million of its nominal speed."""


class Pool:
    """What can be allocated: thousandths of a GPU by device type."""

    def __init__(self, left: list[int], most: int | None) -> None:
        self.left = left
        self.total = sum(left) if most is None else min(sum(left), most)

    def has(self, kinds: tuple[int, ...], share: int) -> bool:
        if share > self.total:
            return False
        return share <= sum([self.left[kind] for kind in kinds])

    def reserve(self, share: int) -> None:
        """Allocate this much less."""
        self.total = max(0, self.total - share)

    def take(self, kinds: tuple[int, ...], share: int) -> bool:
        """Take that much, from the first types first; False, and nothing, where it is not there."""
        if not self.has(kinds, share):
            return False
        self.total -= share
        for kind in kinds:
            part = min(share, self.left[kind])
            self.left[kind] -= part
            share -= part
            if not share:
                break
        return True


def types_held(space: Occupancy, record: JobRecord) -> tuple[int, ...]:
    """Device types that a run has; none where there is only one type, or it does not run."""
    if record.placement is None or len(space.free_gpus) == 1:
        return ()
    return tuple(dict.fromkeys(space.node_type[node] for node in record.placement.nodes))


def usable_types(space: Occupancy, record: JobRecord) -> tuple[int, ...]:
    """Device types that a job may use; the types that it has come first."""
    kinds = space.kinds_for(record.demand)
    held = types_held(space, record)
    return tuple(dict.fromkeys((*held, *kinds))) if held else kinds


class Allocator(Protocol):
    """Gives claims their GPUs, in the order of its policy."""

    def admit(self, claim: GpuClaim) -> bool:
        """Give a job its minimum, if there is enough."""
        ...

    def finish(self) -> None:
        """Divide what is left."""
        ...


AllocatorOf = Callable[[Pool], Allocator]
CurveOf = Callable[[JobRecord], SpeedupCurve]
LengthOf = Callable[[JobRecord, int], int]


@dataclass(slots=True)
class PassLimits:
    """Allocations that could not be placed in this pass."""

    caps: dict[int, int] = field(default_factory=dict)
    """By seq: more GPUs than this would not help."""
    unplaced: set[int] = field(default_factory=set)
    """By seq: waiting jobs that fit nowhere; lower-ranked jobs of their group do not fit either."""
    may_evict: bool = True

    def note(self, short: Shortfall) -> None:
        self.caps.update(short.fewer)
        self.unplaced.update(record.seq for record in short.unplaced)


@dataclass(slots=True)
class AllocationRound:
    """One allocation of all free and held GPUs among all jobs."""

    draft: Draft
    ranks: RankIndex
    limits: PassLimits
    allocator: AllocatorOf
    curve: CurveOf
    length: LengthOf
    now: int

    def targets(self) -> list[tuple[JobRecord, int]]:
        """How many GPUs each job gets, in rank order.

        A job whose last GPUs add no speed is capped, and the division is repeated.
        """
        caps = self.limits.caps
        while True:
            claims = self._divided()
            wasted = [
                (claim, claim.curve.useful[claim.count])
                for claim in claims
                if claim.curve is not None and claim.curve.useful[claim.count] < claim.count
            ]
            if not wasted:
                return [(claim.record, claim.count) for claim in claims]
            caps.update((claim.record.seq, useful) for claim, useful in wasted)

    def _divided(self) -> list[GpuClaim]:
        holders = self._holders()
        candidates = self.ranks.candidates(self.now)
        pool = self._pool(holders)
        allocator = self.allocator(pool)
        claims: list[GpuClaim] = []
        if self.limits.may_evict:
            ranked = merge_by_rank(holders, candidates)
        else:
            ranked = chain(((key, None, record) for key, record in holders), candidates)
        for _, group, record in ranked:
            if not pool.total:
                break
            if record.seq in self.limits.unplaced:
                candidates.drop(group)
                continue
            claim = self._claim(record)
            claims.append(claim)
            if not allocator.admit(claim) and record.placement is None:
                candidates.drop(group)
        allocator.finish()
        asked = {claim.record.seq for claim in claims}
        claims += [self._claim(record) for _, record in holders if record.seq not in asked]
        return claims

    def _holders(self) -> list[tuple[Key, JobRecord]]:
        """Runs that may be resized or suspended, best rank first; all others keep their GPUs."""
        now, draft, space = self.now, self.draft, self.draft.space
        found: list[tuple[Key, JobRecord]] = []
        for line in self.ranks.running.values():
            shift = line.rate * now
            for level, value, submit, seq, record in line.entries:
                if record.phase is Phase.RUNNING and not draft.is_touched(record):
                    found.append(((level, value + shift, submit, seq), record))
        if space.closed or space.aside:
            placed = [(key, record, record.placement) for key, record in found]
            found = [(key, each) for key, each, at in placed if at and is_open(space, at)]
        found.sort(key=itemgetter(0))
        return found

    def _pool(self, holders: list[tuple[Key, JobRecord]]) -> Pool:
        """What is free, and what these runs hold."""
        space = self.draft.space
        left = [free * WHOLE for free in space.free_gpus]
        for kind, table in enumerate(space.partial):
            left[kind] += sum(share * mask.bit_count() for share, mask in table.items())
        held = sum([record.rate for _, record in holders])
        if len(left) == 1:
            left[0] += held
        else:
            for _, record in holders:
                assert record.placement is not None
                for piece in record.placement.slices:
                    left[space.node_type[piece.node]] += piece.share
        budget = self.draft.budget
        return Pool(left, None if budget is None else budget + held)

    def _claim(self, record: JobRecord) -> GpuClaim:
        space, placement, demand = self.draft.space, record.placement, record.demand
        kinds = usable_types(space, record)
        if placement is not None:
            claim = GpuClaim(record, len(placement.slices), record.rate, kinds)
            is_free_to_choose = is_divisible(record) and can_resize(record, space)
        else:
            claim = GpuClaim(record, demand.nominal.count, demand.nominal.total_share, kinds)
            is_free_to_choose = is_divisible(record)
        if is_free_to_choose:
            curve = claim.curve = self.curve(record)
            claim.low, claim.need = curve.low, curve.low * WHOLE
            cap = self.limits.caps.get(record.seq, curve.high)
            claim.high = max(curve.low, curve.useful[min(cap, curve.high)])
            claim.work = self.length(record, self.now)
        return claim


def is_divisible(record: JobRecord) -> bool:
    """Whether the job takes whole GPUs, more or fewer."""
    return record.is_whole and record.demand.is_elastic


def merge_by_rank(
    holders: list[tuple[Key, JobRecord]], candidates: Candidates
) -> Iterator[tuple[Key, Hashable, JobRecord]]:
    """Runs and waiting jobs together, best rank first."""
    waiting = iter(candidates)
    best = next(waiting, None)
    for key, record in holders:
        while best is not None and best[0] < key:
            yield best
            best = next(waiting, None)
        yield key, None, record
    if best is not None:
        yield best
    yield from waiting
