"""What a policy may look at: read-only, never copied, indexed, with what changed since the last pass."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from trainmaster.core.lifecycle import HOLDING, WAITING
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.order import GroupOf, Order, RankOf
from trainmaster.core.state import JobRecord, State
from trainmaster.model.actions import Reserve
from trainmaster.model.job import Run
from trainmaster.model.queue import Queue
from trainmaster.model.topology import Topology


class View:
    """The state through a window; one view lives as long as its controller."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._order = Order()
        self._is_built = False
        self.expired: list[JobRecord] = []
        """Jobs that the last call of `order` ranked again because their rank had run out."""

    @property
    def topology(self) -> Topology:
        return self._state.topology

    @property
    def occupancy(self) -> Occupancy:
        return self._state.occupancy

    @property
    def jobs(self) -> Mapping[str, JobRecord]:
        return self._state.jobs

    @property
    def ended(self) -> Sequence[JobRecord]:
        """Jobs that have ended since the last pass, in that order."""
        return self._state.ended

    @property
    def queues(self) -> Mapping[str, Queue]:
        return self._state.queues

    @property
    def reservations(self) -> Mapping[str, Reserve]:
        return self._state.reservations

    @property
    def releasing(self) -> Mapping[int, AbstractSet[Run]]:
        """GPUs that runs have been told to leave and have not left yet."""
        return self._state.releasing

    @property
    def draining(self) -> AbstractSet[int]:
        return self._state.draining

    def running(self) -> list[JobRecord]:
        """Jobs that hold GPUs, in order of submission."""
        return [record for record in self._state.jobs.values() if record.phase in HOLDING]

    def waiting(self) -> list[JobRecord]:
        """Jobs that hold none, in order of submission."""
        return [record for record in self._state.jobs.values() if record.phase in WAITING]

    def order(self, rank: RankOf, now: int, *, group: GroupOf, with_running: bool) -> Order:
        """All jobs in line: only what changed or ran out since the last pass is ranked again."""
        state = self._state
        self.expired = []
        changed: Iterable[JobRecord]
        if self._is_built:
            self.expired = self._order.expired(now)
            for record in self.expired:
                state.changed[record.seq] = record
                state.touch(record)
            changed = state.changed.values()
        else:
            changed = state.jobs.values()
            state.has_news = self._is_built = True
        self._order.refresh(changed, rank, group, with_running=with_running)
        state.changed.clear()
        return self._order

    def is_settled(self) -> bool:
        """Whether nobody waits and no node is to be emptied: a pass would change nothing."""
        return self._state.waiting == 0 and not self._state.draining

    def is_stable(self, order: Order, now: int) -> bool:
        """Whether ranks have merely run out, and no waiting job has thereby come before a running one.

        Then the pass would decide what the last one decided.
        """
        state = self._state
        if state.has_news or not state.is_quiet or state.draining or order.ages():
            return False
        best = order.best_waiting(now)
        return best is None or all(
            record.placement is not None and not order.stands_behind(record, best, now)
            for record in self.expired
        )

    def residents(self, node: int) -> Iterable[JobRecord]:
        """Jobs entitled to GPUs of this node."""
        return self._state.residents[node].values()

    def take_touched(self) -> set[int]:
        """Nodes where room may have come up since this was last asked."""
        touched, self._state.touched = self._state.touched, set()
        return touched

    def forget(self) -> None:
        """Drop every cache; the next pass rebuilds them from the state."""
        self._order = Order()
        self._is_built = False

    def remaining(self, record: JobRecord, now: int) -> int | None:
        """Estimated time to its end at its present speed (nominal while it waits), if anyone knows."""
        if record.estimate is None:
            return None
        return record.finish_at(record.estimate.work, now) - now

    def true_work_left(self, record: JobRecord) -> int:
        """Work that it really still needed at `since_ms`: the simulator's oracle, refused live."""
        if record.oracle is None:
            raise LookupError(f"job {record.id} has no oracle: this policy runs in simulation only")
        return max(0, record.oracle.work - record.work)


def by_demand(record: JobRecord) -> Hashable:
    """The usual grouping: jobs of equal demand."""
    return record.group
