"""What has changed in the state since each reader last read it.

The reducer and admission write the log; the controller clears it; policies read it through the view. An
index that is kept from pass to pass (ranks, queue views, an index of a policy's own) reads by a `Changes`
of its own, which is its place in the log: reading moves that place and changes nothing for other readers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from trainmaster.core.job_record import JobRecord
from trainmaster.core.lifecycle import Phase


class Changes:
    """What one reader has not read yet."""

    __slots__ = ("jobs", "nodes")

    def __init__(self, jobs: Iterable[JobRecord] = (), nodes: Iterable[int] = ()) -> None:
        self.jobs = {record.seq: record for record in jobs}
        """By seq: jobs that were submitted, changed or ended."""
        self.nodes = set(nodes)
        """Nodes where a waiting job may find room that it did not find before."""

    def read_jobs(self) -> Iterable[JobRecord]:
        jobs, self.jobs = self.jobs, {}
        return jobs.values()

    def read_nodes(self) -> set[int]:
        nodes, self.nodes = self.nodes, set()
        return nodes


class ChangeLog:
    """All marks of changes; the comments say when each is cleared, and by what."""

    def __init__(self) -> None:
        # -- until the policy is asked (`plan` or `wake`), then cleared by the controller
        self.needs_pass = False
        """Whether a fact calls for a decision."""
        self.has_dirty_jobs = False
        """Whether a job has changed: without a pass, the policy is asked when to wake it."""
        # -- for the length of a pass, set by the controller as it begins
        self.woken_by_event = False
        """Whether facts called for this pass, or the policy changed a rank; not merely the time."""
        # -- until a pass has been made, then cleared by the controller
        self.dirty_queues: set[str] = set()
        """Queues of jobs that have changed."""
        self.ended: list[JobRecord] = []
        """Jobs that have ended, in that order."""
        self.requeued: list[JobRecord] = []
        """Jobs to be treated as new: released from a hold, or changed by their owner."""
        # -- from one pass to the next
        self.last_pass_was_noop = False
        """Whether the last pass found nothing to do."""
        # -- for the length of a step
        self.ended_unsuccessfully: list[tuple[str, Phase]] = []
        """Jobs that failed for good or were cancelled."""
        self.caches_stale = False
        """Whether an event invalidates every index: the controller drops them before the next pass."""
        self.quota_changes: Changes | None = None
        """What quotas have not counted yet; None: there are none. Not dropped with the caches."""
        self.readers: dict[Hashable, Changes] = {}
        """By name: every change is recorded for each reader."""

    def note_job(self, record: JobRecord) -> None:
        """Record that this job was submitted, changed or ended, so that its rank may have changed."""
        self.has_dirty_jobs = True
        self.dirty_queues.add(record.job.queue)
        for changes in self.readers.values():
            changes.jobs[record.seq] = record
        self.note_use(record)

    def note_use(self, record: JobRecord) -> None:
        """Record that this job holds more or less than before."""
        if self.quota_changes is not None:
            self.quota_changes.jobs[record.seq] = record

    def note_nodes(self, nodes: Iterable[int]) -> None:
        """Record that some waiting job may now fit on these nodes."""
        for changes in self.readers.values():
            changes.nodes.update(nodes)

    def note_end(self, record: JobRecord) -> None:
        self.ended.append(record)
        self.needs_pass = True
        if record.phase is not Phase.SUCCEEDED:
            self.ended_unsuccessfully.append((record.id, record.phase))

    # -- by the controller ---------------------------------------------------------------------

    def begin_pass(self) -> None:
        self.woken_by_event, self.needs_pass = self.needs_pass, False

    def end_pass(self, *, was_noop: bool) -> None:
        """The policy has seen every change up to here."""
        self.has_dirty_jobs = False
        self.last_pass_was_noop = was_noop
        for record in self.ended:
            record.siblings = []
        if self.dirty_queues or self.ended or self.requeued:
            self.dirty_queues, self.ended, self.requeued = set(), [], []

    def take_ended_unsuccessfully(self) -> list[tuple[str, Phase]]:
        """At the end of a step."""
        ended, self.ended_unsuccessfully = self.ended_unsuccessfully, []
        return ended
