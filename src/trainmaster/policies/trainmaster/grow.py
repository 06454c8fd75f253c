"""Who grows into GPUs that nobody waits for: runs to which they are worth most.

A run doubles, or takes what is left, if it has rested since its start or last resizing and the very GPUs
make it faster by more than the least gain. The GPUs that bring the likeliest completions per GPU-second
are given first: those with the steepest curve, and among equals those of jobs that are expected to end
soonest. What nobody has tried yet is hoped to scale as jobs mostly do: trying is how one learns, and
what turns out to be in vain is given back. Gangs side by side slow each other down: a run becomes one
beside others only where it gains more than they lose, by what was seen so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trainmaster.core.draft import Draft
from trainmaster.core.state import JobRecord
from trainmaster.estimators.throughput import key_of
from trainmaster.estimators.throughput_calibration import Corrections
from trainmaster.mechanisms.apply_allocation import carry_out
from trainmaster.mechanisms.resize import (
    by_gpu,
    can_resize,
    fullest_first,
    idle_beside,
    resized,
)
from trainmaster.mechanisms.speedup_curves import Curves
from trainmaster.model.placement import Placement
from trainmaster.model.units import NOMINAL, WHOLE
from trainmaster.perf.default_parameters import ELASTICITY
from trainmaster.policies.trainmaster.locality_estimator import LocalityEstimator

Prices = Callable[[JobRecord], int]
"""The service that a completion of the job is expected to cost, in thousandths of a GPU x ms."""


@dataclass(frozen=True, slots=True)
class Growth:
    """What a run must do and gain before it grows."""

    rest_ms: int
    """Time since its start or last resizing."""
    gain_ppm: int
    """What must be gained in speed."""
    spare: int
    """GPUs that are left idle for who comes next: what has been grown into takes time to come back."""


class Growing:
    """Growth at the end of a pass, on its draft."""

    def __init__(
        self,
        draft: Draft,
        curves: Curves,
        corrections: Corrections,
        price: Prices,
        terms: Growth,
        tried: Mapping[str, int],
        headroom: Callable[[JobRecord], int | None],
        losses: LocalityEstimator,
    ) -> None:
        self._draft = draft
        self._curves = curves
        self._corrections = corrections
        self._price = price
        self._terms = terms
        self._tried = tried
        """By whose measurements count: the most GPUs that were seen."""
        self._losses = losses
        self._headroom = headroom
        """What the queue of a job may hold besides, in thousandths of a GPU."""

    def fill(
        self, runs: Sequence[JobRecord], resized_ms: Mapping[str, int], now: int
    ) -> int | None:
        """Let runs grow while GPUs are idle; when the next of the others will have rested."""
        if not self._room():
            return None
        wake_at: int | None = None
        ready: list[tuple[float, int, JobRecord, int]] = []
        for record in runs:
            wish = self._wish(record)
            if wish is None:
                continue
            value, count = wish
            rested = self._rested_at(record, resized_ms)
            if rested <= now:
                ready.append((-value, record.seq, record, count))
            elif wake_at is None or rested < wake_at:
                wake_at = rested
        for _, _, record, count in sorted(ready, key=lambda each: each[:2]):
            self._grow(record, count)
        return wake_at

    def _room(self) -> int:
        """Idle GPUs that may be used."""
        return self._draft.space.total_free()

    def _room_for(self, record: JobRecord, held: int, count: int) -> int:
        """How many GPUs a run may take to have so many; what it takes beyond its number leaves some."""
        owed = max(0, record.demand.nominal.count - held)
        free, room = self._room(), self._headroom(record)
        count = count if room is None else min(count, held + room // WHOLE)
        return min(count - held, max(min(owed, free), free - self._terms.spare))

    def _rested_at(self, record: JobRecord, resized_ms: Mapping[str, int]) -> int:
        assert record.run_since_ms is not None
        return max(record.run_since_ms, resized_ms.get(record.id, 0)) + self._terms.rest_ms

    def _wish(self, record: JobRecord) -> tuple[float, int] | None:
        """What twice the GPUs would be worth to a run at best, and how many that is."""
        held = record.placement
        if held is None or record.run_since_ms is None or self._draft.is_touched(record):
            return None
        if not can_resize(record, self._draft.space):
            return None
        curve, count = self._curves.of(record, self._corrections), len(held.slices)
        nominal = record.demand.nominal.count
        more = min(2 * count, curve.high)
        if count >= more:
            return None
        before, after = curve.speeds[count], curve.speeds[more]
        after = max(after, self._hope(record, before, count, more))
        if not self._gains(before, after):
            return None
        gained = (after - before) * nominal / (curve.unit * (more - count))
        return gained / self._price(record), more

    def _hope(self, record: JobRecord, before: int, count: int, more: int) -> int:
        """How fast the run may be on more GPUs, for all that is known; 0 where it has been tried."""
        if self._tried.get(key_of(record.job), 0) > count:
            return 0
        return before * ELASTICITY.speedup("", more) // ELASTICITY.speedup("", count)

    def _gains(self, before: int, after: int) -> bool:
        return (after - before) * NOMINAL > before * self._terms.gain_ppm

    def give_up(self, runs: Sequence[JobRecord]) -> None:
        """Runs that are no faster for all their GPUs give back those that are in vain."""
        draft = self._draft
        for record in runs:
            held = record.placement
            if held is None or draft.is_touched(record) or not can_resize(record, draft.space):
                continue
            count, nominal = len(held.slices), record.demand.nominal.count
            curve = self._curves.of(record, self._corrections)
            if nominal < count <= curve.high:
                useful = max(nominal, curve.useful[count])
                if useful < count:
                    kept = by_gpu(fullest_first(held.slices)[:useful])
                    draft.resize(record, resized(draft.view, held, kept))

    # -- growing ---------------------------------------------------------------------------------

    def _grow(self, record: JobRecord, count: int) -> None:
        """The fastest GPUs near it; where they will not do, those of its own nodes."""
        draft, held = self._draft, record.placement
        assert held is not None
        room = self._room_for(record, len(held.slices), count)
        if room <= 0:
            return
        mark = draft.checkpoint()
        carry_out(draft, [(record, len(held.slices) + room)], self._speed, shrinks_for_growth=False)
        grown = draft.placement_of(record)
        assert grown is not None
        if len(grown.slices) == len(held.slices) or self._is_good(record, held, grown):
            return
        draft.roll_back(mark)
        beside = idle_beside(draft, record, held, room)
        if beside:
            grown = resized(draft.view, held, (*held.slices, *beside))
            if self._is_good(record, held, grown):
                draft.resize(record, grown)

    def _speed(self, record: JobRecord, placement: Placement) -> int:
        """As measured or predicted there, or as hoped."""
        held, count = record.placement, len(placement.slices)
        predicted = self._curves.speed(record, placement, self._corrections)
        if held is None or count <= len(held.slices):
            return predicted
        before = self._curves.speed(record, held, self._corrections)
        return max(predicted, self._hope(record, before, len(held.slices), count))

    def _is_good(self, record: JobRecord, held: Placement, grown: Placement) -> bool:
        """Whether the GPUs are there, gain enough, and lie apart from other gangs."""
        had = set(held.gpus())
        if any(gpu not in had and not self._draft.is_at_hand(gpu) for gpu in grown.gpus()):
            return False
        is_return = len(grown.slices) <= record.demand.nominal.count
        crowd = [] if is_return else self._crowd(record, held, grown)
        before, after = self._speed(record, held), self._speed(record, grown)
        if crowd:
            after -= after * self._losses.loss_beside(record) // NOMINAL
        if not self._gains(before, after):
            return False
        gained = (after - before) / NOMINAL * record.demand.nominal.count / self._price(record)
        return gained > sum(
            self._losses.loss_beside(other) / NOMINAL * _size(other) / self._price(other)
            for other in crowd
        )

    def _crowd(self, record: JobRecord, held: Placement, grown: Placement) -> list[JobRecord]:
        """Gangs on nodes where the run would become one."""
        placement_of = self._draft.placement_of
        known = set(held.nodes) if is_gang(held) else set()
        found = {
            other.seq: other
            for node in grown.nodes
            if node not in known
            for other in self._draft.view.residents(node)
            if other is not record and is_gang(placement_of(other))
        }
        return [found[seq] for seq in sorted(found)]


def is_gang(placement: Placement | None) -> bool:
    return placement is not None and len(placement.slices) > 1


def _size(record: JobRecord) -> int:
    return len(record.placement.slices) if record.placement is not None else 0
