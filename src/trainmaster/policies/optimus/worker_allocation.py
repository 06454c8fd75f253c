"""How many workers each job gets: minimums in order, the rest by marginal gain."""

from __future__ import annotations

from collections.abc import Iterable

from trainmaster.core.draft import Draft
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import JobRecord
from trainmaster.mechanisms.gpu_claims import Pool, types_held, usable_types
from trainmaster.mechanisms.preemption_guards import PreemptionGuards
from trainmaster.model.units import WHOLE
from trainmaster.policies.optimus.convergence_forecast import ConvergenceForecasts
from trainmaster.policies.optimus.marginal_gain import WorkerClaim, grow


def pool_of(draft: Draft, movable_runs: Iterable[JobRecord]) -> Pool:
    """GPUs to be divided, by type: what is free, and what these runs hold."""
    space, budget = draft.space, draft.budget
    left, held = [free * WHOLE for free in space.free_gpus], 0
    for record in movable_runs:
        assert record.placement is not None
        for piece in record.placement.slices:
            left[space.node_type[piece.node]] += WHOLE
            held += WHOLE
    return Pool(left, None if budget is None else budget + held)


class WorkerAllocation:
    """One division of a pool."""

    def __init__(
        self, space: Occupancy, pool: Pool, forecasts: ConvergenceForecasts, now: int
    ) -> None:
        self._space = space
        self._pool = pool
        self.forecasts = forecasts
        self._now = now
        self.targets: dict[JobRecord, int] = {}
        self.movers: dict[JobRecord, int] = {}
        """Runs that have to leave their GPUs and go on elsewhere."""
        self._refused: set[int] = set()
        """Demands for which too little is left."""
        self.has_refused_parts = False

    def give_least(self, record: JobRecord) -> bool:
        """As few as it can run on, or none."""
        is_waiting = record.placement is None
        if is_waiting and record.group in self._refused:
            return False
        least = _least(record)
        if self._take(record, least, to_stay=True):
            self.targets[record] = least
            return True
        if not is_waiting:
            self._move_or_suspend(record, least)
            if record in self.movers:
                return True
        self._refused.add(record.group)
        self.has_refused_parts |= not record.is_whole
        return False

    def _take(self, record: JobRecord, count: int, *, to_stay: bool = False) -> bool:
        """Take `count` GPUs of types that the job may use, its current types first; or none.

        To stay where it runs, only of its current types.
        """
        own = types_held(self._space, record) if to_stay else ()
        return self._pool.take(own or usable_types(self._space, record), count * WHOLE)

    def _move_or_suspend(self, record: JobRecord, least: int) -> None:
        """Others get the GPUs of a run; it may go on on other types that it can use."""
        self.targets[record] = 0
        if self._take(record, least):
            self.movers[record] = least

    def suspends(self) -> bool:
        """Whether a run got none."""
        return not all(self.targets.values())

    def give_more(self) -> None:
        """Single workers by marginal gain, within what is left."""
        if not self._pool.total:
            return
        claims = {
            record: self.claim(record, count)
            for record, count in self.targets.items()
            if count and record.is_whole and record.demand.is_elastic
        }
        grow(claims.values(), self._takes)
        for record, claim in claims.items():
            self.targets[record] = claim.count

    def _takes(self, claim: WorkerClaim) -> bool:
        assert isinstance(claim.job, JobRecord)
        return self._take(claim.job, 1)

    def claim(self, record: JobRecord, count: int) -> WorkerClaim:
        work = self.forecasts.work_left(record, self._now)
        return WorkerClaim(record, work, self.forecasts.speeds(record), count)


def allocation_order(
    records: Iterable[JobRecord], guards: PreemptionGuards, now: int, *, runs_first: bool
) -> list[JobRecord]:
    """The order of asking: by arrival, the starving before all; or runs first, so that none must go."""

    def turn(record: JobRecord) -> tuple[bool, bool, int]:
        comes_after_runs = runs_first and record.placement is None
        return comes_after_runs, not guards.is_starving(record, now), record.seq

    return sorted(records, key=turn)


def _least(record: JobRecord) -> int:
    """The smallest gang: all of a rigid job."""
    demand = record.demand
    return demand.min_count if record.is_whole and demand.is_elastic else demand.nominal.count
