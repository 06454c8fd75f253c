"""What a policy may look at: read-only, never copied, indexed, with what changed since the last pass.

A policy that divides between queues uses one view per queue (queue_views.py). Ranks, queue views and other
indexes are caches: dropped, they are built again from the state.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

from trainmaster.core.change_log import ChangeLog, Changes
from trainmaster.core.lifecycle import ALLOCATED, WAITING
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.rank_index import GroupOf, RankIndex, RankOf
from trainmaster.core.state import JobRecord, State
from trainmaster.model.actions import Reserve
from trainmaster.model.job import Run
from trainmaster.model.placement import Placement
from trainmaster.model.queue import Queue
from trainmaster.model.topology import Topology

IndexT = TypeVar("IndexT")
FoundT = TypeVar("FoundT")


class View:
    """A read-only view of the state; it lives as long as its controller."""

    def __init__(self, state: State, log: ChangeLog | None = None) -> None:
        self._state = state
        self._log = state.log if log is None else log
        self.topology: Topology = state.topology
        self.occupancy: Occupancy = state.occupancy
        self.queues: Mapping[str, Queue] = state.queues
        self.releasing: Mapping[int, AbstractSet[Run]] = state.releasing
        """GPUs that runs have been ordered to leave and have not left yet."""
        self.draining: AbstractSet[int] = state.draining
        self.saves_on_demand: bool = state.saves_on_demand
        """Whether a suspended run saves a checkpoint first, so that no work is lost."""
        self.budget: int | None = None
        """Thousandths of a GPU that a plan may book more than it frees; None = no bound."""
        self._ranks: RankIndex | None = None
        self._indexes: dict[Hashable, Any] = {}
        self._found: dict[Hashable, Any] = {}
        self.children: list[View] = []
        """Views of parts of the jobs, which rank them on their own."""
        self.expired: list[JobRecord] = []
        """Jobs that the last call of `ranked` ranked again because their rank had run out."""

    @property
    def away(self) -> AbstractSet[int]:
        """Nodes that are not there."""
        return self._state.away - self._state.forgotten

    @property
    def forgotten(self) -> AbstractSet[int]:
        """Numbers of nodes that are not used any more."""
        return self._state.forgotten

    @property
    def jobs(self) -> Mapping[str, JobRecord]:
        return self._state.visible_jobs()

    @property
    def requeued(self) -> Sequence[JobRecord]:
        """Jobs that were released or changed since the last pass, to be treated as new.

        Some may have been held again, or have ended.
        """
        return self._log.requeued

    @property
    def ended(self) -> Sequence[JobRecord]:
        """Jobs that have ended since the last pass, in that order."""
        return self._log.ended

    @property
    def reservations(self) -> Mapping[str, Reserve]:
        return self._state.reservations

    def running(self) -> list[JobRecord]:
        """Jobs that hold GPUs, in order of submission."""
        return [record for record in self.jobs.values() if record.phase in ALLOCATED]

    def measured_runs(self) -> list[JobRecord]:
        """Jobs that hold GPUs and whose GPU memory was measured, in order of submission."""
        found = [each for each in self._state.measured.values() if each.phase in ALLOCATED]
        return sorted(found, key=lambda each: each.seq)

    def waiting(self) -> list[JobRecord]:
        """Jobs that hold none, in order of submission."""
        return [record for record in self.jobs.values() if record.phase in WAITING]

    def newest_first(self) -> Iterable[JobRecord]:
        """Live jobs, the last submitted first."""
        return reversed(self._state.visible_jobs().values())

    # -- what has changed ----------------------------------------------------------------------

    def changes(self, reader: Hashable) -> Changes:
        """What this reader has not read yet: for a new one, every job and every node."""
        found = self._log.readers.get(reader)
        if found is None:
            everywhere = range(len(self.topology.nodes))
            found = self._log.readers[reader] = Changes(self.jobs.values(), everywhere)
        return found

    def index(self, kind: Callable[..., IndexT], *args: object) -> IndexT:
        """An index of the policy's own, made of `args` once; dropped with the other caches.

        It keeps up by the changes that it reads under its own name.
        """
        found: IndexT | None = self._indexes.get(kind)
        if found is None:
            found = self._indexes[kind] = kind(*args)
        return found

    def between_steps(self, find: Callable[..., FoundT], *args: Hashable) -> FoundT:
        """What this finds in the view: looked for once between two steps, as nothing changes there.

        For `explain`, which is asked of thousands of jobs after the same step; not for use in a pass.
        """
        key = (find, *args)
        if key not in self._found:
            self._found[key] = find(self, *args)
        found: FoundT = self._found[key]
        return found

    def begin_step(self) -> None:
        """The state is about to change."""
        self._found.clear()

    def ranked(self, rank: RankOf, now: int, *, group: GroupOf, with_running: bool) -> RankIndex:
        """Every job at its rank: only what changed or ran out since the last pass is ranked again."""
        changes, ranks = self.changes(RankIndex), self._ranks
        if ranks is None:
            ranks = self._ranks = RankIndex()
            changes.jobs = {record.seq: record for record in self.jobs.values()}
            changes.nodes.update(range(len(self.topology.nodes)))  # ranks may have fallen anywhere
            self.expired = []
            self._state.log.woken_by_event = True
        else:
            self.expired = ranks.expired(now)
            for record in self.expired:
                changes.jobs[record.seq] = record
                self._state.note_nodes_of(record)
        ranks.refresh(changes.read_jobs(), rank, group, with_running=with_running)
        return ranks

    def first_in_line(self, record: JobRecord, now: int) -> JobRecord | None:
        """The waiting job that was ranked first in the last pass, among those that this one is ranked with.

        None where the policy does not rank jobs.
        """
        for view in (self, *self.children):
            ranks = view._ranks
            if ranks is not None and ranks.key_of(record, now) is not None:
                return ranks.first_waiting(now)
        return None

    def read_dirty_nodes(self) -> set[int]:
        """Nodes where a waiting job may fit that did not fit when it was last tried."""
        return self.changes(RankIndex).read_nodes()

    @property
    def dirty_queues(self) -> AbstractSet[str]:
        """Queues of which some job, or its rank, has changed since the last pass."""
        return self._state.log.dirty_queues

    def has_nothing_to_schedule(self) -> bool:
        """Whether no job waits and no node drains: a pass in rank order would change nothing."""
        return self._state.waiting == 0 and not self._state.draining

    def is_stable(self, ranks: RankIndex, now: int) -> bool:
        """Whether ranks have merely run out, and no waiting job has thereby come before a running one.

        Then the pass would decide what the last one decided.
        """
        log = self._state.log
        if log.woken_by_event or not log.last_pass_was_noop:
            return False
        if self._state.draining or ranks.ages():
            return False
        best = ranks.best_waiting(now)
        return best is None or all(
            record.placement is not None and (ranks.key_of(record, now) or best) <= best
            for record in self.expired
        )

    def is_idle(self) -> bool:
        """Whether no job holds GPUs or is about to: nothing will happen by itself."""
        return self._state.waiting == len(self._state.jobs) - len(self._state.on_hold)

    def residents(self, node: int) -> Iterable[JobRecord]:
        """Jobs entitled to GPUs of this node."""
        return self._state.residents[node].values()

    def frozen_runs(self) -> list[JobRecord]:
        """Jobs whose run is frozen, held ones too: what it keeps is booked."""
        jobs = self._state.jobs.values()
        return [each for each in jobs if each.frozen is not None and each.placement is None]

    def loses_work_at(self, record: JobRecord, placement: Placement) -> bool:
        """Whether its run, running or frozen, would have to be ended to start it there, losing its work."""
        return self._state.loses_work_at(record, placement)

    @property
    def switch_ms(self) -> int:
        """What a switch costs, as seen lately: a suspension, and the start of a suspended job."""
        return self._state.switch_times.switch_ms()

    @property
    def handover_ms(self) -> int:
        """How long a GPU takes from one job to another, as seen lately: a suspension and any start."""
        return self._state.switch_times.handover_ms

    def job_time_during(self, record: JobRecord) -> int:
        """Job-milliseconds that were lived in all while this job was: its age x jobs beside it."""
        return self._state.job_time_integral - record.job_time_before

    def invalidate_rank(self, record: JobRecord) -> None:
        """Drop this job's rank: what it is made of has changed, and `ranked` ranks the job again."""
        self._log.note_job(record)
        self._state.note_nodes_of(record)
        self._state.log.dirty_queues.add(record.job.queue)
        self._state.log.woken_by_event = True

    def invalidate_ranks(self) -> None:
        """Drop the ranks of all jobs: what they are made of has changed."""
        self._ranks = None
        for view in self.children:
            view.invalidate_ranks()

    def forget(self) -> None:
        """Drop every cache; the next pass rebuilds them from the state."""
        self._ranks = None
        self._indexes.clear()
        self._found.clear()
        self.children.clear()
        self._log.readers.clear()

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
