"""What a policy may look at: read-only, never copied, indexed, with what changed since the last pass.

A policy between queues looks through parts, one view per queue (parts.py). Lines and parts are
caches: dropped, they are built again from the state.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Protocol, TypeVar

from trainmaster.core.lifecycle import ALLOCATED, WAITING
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.rank_index import GroupOf, RankIndex, RankOf
from trainmaster.core.state import JobRecord, State
from trainmaster.model.actions import Reserve
from trainmaster.model.job import Run
from trainmaster.model.queue import Queue
from trainmaster.model.topology import Topology


class Follower(Protocol):
    """An index over live jobs that keeps up with changes."""

    def follow(self, changed: Iterable[JobRecord]) -> None:
        """These have changed, come or ended."""
        ...


class QueueViewsOfView(Protocol):
    """The views of all queues."""

    def rerank(self) -> None:
        """Ranks are to be made anew in every part."""
        ...


F = TypeVar("F", bound=Follower)


class View:
    """The state through a window; one view lives as long as its controller."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._ranks = RankIndex()
        self.is_built = False
        self.parts: QueueViewsOfView | None = None
        """One view for each queue, once a policy between queues has asked for them."""
        self._follower: Any = None
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
        state = self._state
        return state.visible_jobs() if state.on_hold else state.jobs

    @property
    def requeued(self) -> Sequence[JobRecord]:
        """Jobs that were released or changed since the last pass: to be judged as if they were new.

        Some may have been held again, or have ended.
        """
        return self._state.requeued

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

    @property
    def saves_on_demand(self) -> bool:
        """Whether a run that is suspended saves first, so that nothing of its work is lost."""
        return self._state.saves_on_demand

    def running(self) -> list[JobRecord]:
        """Jobs that hold GPUs, in order of submission."""
        return [record for record in self.jobs.values() if record.phase in ALLOCATED]

    def waiting(self) -> list[JobRecord]:
        """Jobs that hold none, in order of submission."""
        return [record for record in self.jobs.values() if record.phase in WAITING]

    def newest_first(self) -> Iterable[JobRecord]:
        """Live jobs, the last submitted first: whoever has come since a pass stands in front."""
        return reversed(self._state.visible_jobs().values())

    def ranked(self, rank: RankOf, now: int, *, group: GroupOf, with_running: bool) -> RankIndex:
        """All jobs in line: only what changed or ran out since the last pass is ranked again."""
        state, was_built = self._state, self.is_built
        self.expired = self._ranks.expired(now) if was_built else []
        for record in self.expired:
            self._mark(record)
            state.touch(record)
        if not was_built:
            state.woken_by_event = True
        self._ranks.refresh(self.take_changed(), rank, group, with_running=with_running)
        return self._ranks

    def take_changed(self) -> Iterable[JobRecord]:
        """Jobs whose place in line may have changed since this was last asked; at first, all."""
        changed = self._take_changed()
        if not self.is_built:
            self.is_built = True
            return self._all_records()
        return changed

    def _mark(self, record: JobRecord) -> None:
        self._state.changed[record.seq] = record

    def _take_changed(self) -> Iterable[JobRecord]:
        state = self._state
        changed, state.changed = state.changed, {}
        return changed.values()

    def _all_records(self) -> Iterable[JobRecord]:
        return list(self._state.visible_jobs().values())

    def followed(self, make: Callable[[], F]) -> F:
        """An index of the policy's own that is told of every change; dropped with the other caches.

        Such a policy calls this instead of `order`: changes are told to one of them only.
        """
        if self._follower is None:
            self._follower = make()
        follower: F = self._follower
        follower.follow(self.take_changed())
        return follower

    @property
    def dirty_queues(self) -> AbstractSet[str]:
        """Queues of which some job has changed since the last pass: a fact, no cache."""
        return self._state.dirty_queues

    def is_settled(self) -> bool:
        """Whether nobody waits and no node is to be emptied: a pass would change nothing."""
        return self._state.waiting == 0 and not self._state.draining

    def is_stable(self, ranks: RankIndex, now: int) -> bool:
        """Whether ranks have merely run out, and no waiting job has thereby come before a running one.

        Then the pass would decide what the last one decided.
        """
        state = self._state
        if state.woken_by_event or not state.last_pass_was_noop or state.draining or ranks.ages():
            return False
        best = ranks.best_waiting(now)
        return best is None or all(
            record.placement is not None and not ranks.stands_behind(record, best, now)
            for record in self.expired
        )

    def is_idle(self) -> bool:
        """Whether nobody holds GPUs or is about to: nothing will happen by itself."""
        return self._state.waiting == len(self._state.jobs) - len(self._state.on_hold)

    def residents(self, node: int) -> Iterable[JobRecord]:
        """Jobs entitled to GPUs of this node."""
        return self._state.residents[node].values()

    def take_touched(self) -> set[int]:
        """Nodes where room may have come up since this was last asked."""
        touched, self._state.touched = self._state.touched, set()
        return touched

    @property
    def switch_ms(self) -> int:
        """What a change of hands has cost so far on each GPU, on average: leaving and starting."""
        return self._state.switches.mean_ms

    def job_time_during(self, record: JobRecord) -> int:
        """Job-milliseconds that were lived in all while this job was: its age x jobs beside it."""
        return self._state.job_time_integral - record.job_time_before

    def restate(self, record: JobRecord) -> None:
        """What the rank of this job is made of has changed: the next call of `order` ranks it anew."""
        self._mark(record)
        self._state.touch(record)
        self._state.dirty_queues.add(record.job.queue)
        self._state.woken_by_event = True

    def rerank(self) -> None:
        """What ranks are made of has changed for all: the next call of `order` ranks everybody."""
        if self.parts is not None:
            self.parts.rerank()
            return
        self._ranks = RankIndex()
        self.is_built = False

    def forget(self) -> None:
        """Drop every cache; the next pass rebuilds them from the state."""
        self._ranks = RankIndex()
        self.parts = None
        self._follower = None
        self.is_built = False

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
