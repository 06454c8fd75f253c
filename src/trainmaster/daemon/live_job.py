"""A live job: what the manager knows beyond the controller's record, and how it is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord, is_on_slots
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.service_api import Submission
from trainmaster.failures.reason_table import FailureReason
from trainmaster.failures.retry_rules import may_be_retried
from trainmaster.model import codec
from trainmaster.model.codec import stored_as
from trainmaster.model.job import Job, Run
from trainmaster.model.job_state import ENDED_STATES, JobState, Transition
from trainmaster.model.launch_spec import LaunchSpec, OnHang
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.stop_reasons import EndCode
from trainmaster.model.submission import Array, Dependency
from trainmaster.model.topology import Topology
from trainmaster.store.rows import StoredJob


class Hold(Enum):
    """Why a job is not to be started."""

    OWNER = "owner"
    DEPENDENCY = "dependency"
    ARRAY = "array"
    INPUT = "input"
    """It names an input that is set aside."""
    MEMORY = "memory"
    """It is being stopped because it used more GPU memory than it had booked."""
    PRERUN = "prerun"
    """Another job pre-runs the same program."""


STATES: Mapping[Phase, JobState] = {
    Phase.PENDING: JobState.PENDING,
    Phase.RUNNING: JobState.RUNNING,
    Phase.RESIZING: JobState.RUNNING,
    Phase.SUSPENDING: JobState.RUNNING,
    Phase.SUSPENDED: JobState.SUSPENDED,
    Phase.SUCCEEDED: JobState.SUCCEEDED,
    Phase.FAILED: JobState.FAILED,
    Phase.CANCELLED: JobState.CANCELLED,
}
"""Phases that are one state for users, whatever came before."""
TRANSITIONS: Mapping[Phase, Transition] = {
    Phase.STARTING: Transition.STARTING,
    Phase.SUSPENDING: Transition.SUSPENDING,
    Phase.RESIZING: Transition.RESIZING,
    Phase.STOPPING: Transition.STOPPING,
}


SLICING = "time-slicing"


COUNTED = (
    *("priority", "retries", "holds"),
    *("failures", "preemptions", "migrations", "gpu_ms", "attempts", "profile"),
)
"""What `JobHistory` has of a job and of the controller's record of it."""


@stored_as("daemon.Kept")
@dataclass(frozen=True, slots=True)
class StoredSubmission:
    """A submission as it is stored: what a restarted manager needs."""

    recipe: LaunchSpec
    job: Job
    depends_on: tuple[Dependency, ...] = ()
    array: Array | None = None
    data: tuple[str, ...] = ()
    """Paths of inputs that its job file states."""


@dataclass(slots=True)
class LiveJob:
    """One job that has not ended."""

    job: Job
    name: str
    stored: StoredSubmission
    spec: Mapping[str, object]
    """The job file as submitted."""
    array: str | None = None
    array_index: int | None = None
    holds: set[Hold] = field(default_factory=set)
    record: JobRecord | None = None
    """The controller's; None until its submission has been reduced."""
    history: JobHistory = field(default_factory=JobHistory)
    """What the manager itself knows; `history_at` adds what the controller counts."""
    ended_ms: int | None = None
    """When its last run was seen to end."""
    finish_ms: int | None = None
    last_save: tuple[Run, int] | None = None
    """The run and the work of its last reported save: the controller may take it in later than its end."""
    program: str | None = None
    """Its program's id in the store, where that is known."""
    size: int = 0
    """Devices that it was ordered to have last; 0: it has had none."""
    _history_at: tuple[JobHistory | None, tuple[Any, ...], JobHistory | None] = (None, (), None)
    """A cache: lists ask for it of thousands of jobs, of which most have not changed."""
    _spec_json: str = ""
    """A cache: a job's row is written many times, its file never changes."""

    @property
    def id(self) -> str:
        return self.job.id

    @property
    def recipe(self) -> LaunchSpec:
        return self.stored.recipe

    @property
    def state(self) -> JobState:
        record, history = self.record, self.history
        if record is None or self._is_delayed:
            return JobState.PENDING
        if record.phase is Phase.CANCELLED:
            is_late = history.end is not None and history.end.code == EndCode.TIME_LIMIT
            return JobState.TIMED_OUT if is_late else JobState.CANCELLED
        known = STATES.get(record.phase)
        if known is not None:
            return known
        if record.phase is Phase.STOPPING and history.since_ms is not None:
            return JobState.RUNNING
        # Held, about to start, or stopped before it starts again: it is off its GPUs.
        is_suspended = record.phase is not Phase.STARTING or history.suspension is not None
        return JobState.SUSPENDED if is_suspended and self.has_started else JobState.PENDING

    @property
    def _is_delayed(self) -> bool:
        """Whether only the time of its retry keeps it from being started."""
        record = self.record
        if record is None or self.holds:
            return False
        return record.phase is Phase.HELD and record.retry_at_ms is not None

    @property
    def transition(self) -> Transition | None:
        """What is happening to it right now."""
        return None if self.record is None else TRANSITIONS.get(self.record.phase)

    @property
    def has_started(self) -> bool:
        return self.record is not None and self.record.first_start_ms is not None

    @property
    def goes_on(self) -> bool:
        """Whether its run runs, and nobody has told it to stop."""
        record = self.record
        return record is not None and record.phase is Phase.RUNNING and not record.is_held

    @property
    def is_catching_up(self) -> bool:
        """Whether its newest report is from before this store took its run over."""
        return self.history.seen <= self.history.adopted

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_STATES

    @property
    def earliest_end_ms(self) -> int:
        """It cannot have ended before it was submitted, nor before it is known to have started."""
        started = None if self.record is None else self.record.first_start_ms
        return max(self.job.submit_ms, started or 0)

    def ran_ms(self, now: int) -> int:
        return self.history.ran_ms(now)

    def began(self, at_ms: int) -> None:
        """Its processes run from then on."""
        if self.history.since_ms is None:
            self.history = replace(self.history, since_ms=at_ms)

    def paused(self, at_ms: int) -> None:
        """Its processes are suspended, or have ended, since then."""
        since = self.history.since_ms
        if since is not None:
            ran = self.history.run_ms + max(0, at_ms - since)
            self.history = replace(self.history, run_ms=ran, since_ms=None)

    def recipe_now(self, now: int, most_grace_ms: int, hung: FailureReason) -> LaunchSpec:
        """What its next run is started from: with the run time and the grace period that it has.

        `hung` is the row of the table for runs that hang: one that would not be tried again is not ended.
        """
        grace_ms = min(self.recipe.grace_ms, most_grace_ms)
        most = self.recipe.max_runtime_ms
        left_ms = None if most is None else max(1, most - self.ran_ms(now))
        return replace(
            self.recipe,
            grace_ms=grace_ms,
            max_runtime_ms=left_ms,
            memory=self._memory_now(),
            limits_gpu_memory=self.record is None or self.record.demand.states_gpu_memory,
            longest_silence_ms=self.history.longest_silence_ms,
            data=tuple(self.stored.data),
            on_hang=self.recipe.on_hang if self._is_retried_after(hung) else OnHang.REPORT,
        )

    def _is_retried_after(self, hung: FailureReason) -> bool:
        failures = 0 if self.record is None else self.record.failures
        earlier = self.history.failed_attempts
        return failures < self.job.retries and may_be_retried(hung, earlier)

    def _memory_now(self) -> int | None:
        """Host memory that each rank may use: more than it stated after it was out of it."""
        stated, most = self.job.demand.host_memory, self.recipe.memory
        if self.record is None or most is None or not stated:
            return most
        return most * max(stated, self.record.demand.host_memory or 0) // stated

    def respecify(self, changed: Mapping[str, object]) -> None:
        """Apply later changes to its job file."""
        self.spec = {**self.spec, **changed}
        self._spec_json = ""

    @property
    def is_prerun(self) -> bool:
        """Whether its next run, or its present one, is its pre-run."""
        return self.record is not None and self.record.is_prerun

    def with_runtime(self, max_runtime_ms: int) -> None:
        self._with_recipe(replace(self.recipe, max_runtime_ms=max_runtime_ms))

    def with_grace(self, grace_ms: int) -> None:
        """From now on it has this long to end; 0: it is killed at once."""
        self._with_recipe(replace(self.recipe, grace_ms=grace_ms))

    def _with_recipe(self, recipe: LaunchSpec) -> None:
        self.stored = replace(self.stored, recipe=recipe)
        self._spec_json = ""

    # -- rows ----------------------------------------------------------------------------------------

    def history_at(self, now: int) -> JobHistory:
        """All that has happened to it by now, with what the controller counts."""
        record = self.record
        holds = tuple(sorted(hold.value for hold in self.holds)) if self.holds else ()
        counted: tuple[Any, ...] = (self.job.priority, self.job.retries, holds)
        if record is not None:
            counted += (
                *(record.failures, record.preemptions, record.migrations),
                *(record.attained_at(now), record.attempt, record.profile),
            )
        history, last, known = self._history_at
        if history is not self.history or last != counted or known is None:
            known = replace(self.history, **dict(zip(COUNTED, counted, strict=False)))
            self._history_at = self.history, counted, known
        return known

    def row(self, now: int) -> StoredJob:
        record = self.record
        if not self._spec_json:
            spec = {"spec": dict(self.spec), "kept": codec.encode(self.stored)}
            self._spec_json = json.dumps(spec, separators=(",", ":"))
        return StoredJob(
            id=self.id,
            name=self.name,
            user=self.job.user,
            queue=self.job.queue,
            state=self.state.value,
            submit_ms=self.job.submit_ms,
            start_ms=None if record is None else record.first_start_ms,
            finish_ms=self.finish_ms,
            gpus=self.job.demand.nominal.total_share,
            exit_code=self.history.exit_code,
            array=self.array,
            array_index=self.array_index,
            spec_json=self._spec_json,
            record_json=self.history_at(now).to_json(),
            program=self.program,
        )


def from_row(row: StoredJob, record: JobRecord | None) -> LiveJob:
    """A live job as the store has it, tied to the controller's record; None: the controller has none."""
    history, stored = JobHistory.from_json(row.record_json), stored_submission(row)
    as_changed = replace(
        stored.job, queue=row.queue, priority=history.priority, retries=history.retries
    )
    return LiveJob(
        job=as_changed if record is None else record.job,
        name=row.name,
        stored=stored,
        spec=json.loads(row.spec_json)["spec"],
        array=row.array,
        array_index=row.array_index,
        holds={Hold(each) for each in history.holds},
        record=record,
        history=history,
        program=row.program,
        size=0 if record is None or record.placement is None else len(record.placement.slices),
    )


def stored_submission(row: StoredJob) -> StoredSubmission:
    stored = codec.decode(json.loads(row.spec_json)["kept"])
    assert isinstance(stored, StoredSubmission)
    return stored


def named_devices(placement: Placement | None, topology: Topology) -> tuple[str, ...]:
    """What a placement is made of, as `node:number`."""
    if placement is None:
        return ()
    nodes = topology.nodes
    return tuple(
        f"{nodes[piece.node].name}:{piece.gpu - nodes[piece.node].first_gpu}"
        for piece in placement.slices
    )


def named_nodes(placement: Placement | None, topology: Topology) -> tuple[str, ...]:
    """The nodes that it is on."""
    return () if placement is None else tuple(topology.nodes[each].name for each in placement.nodes)


def size_range(record: JobRecord) -> tuple[int, int] | None:
    """Thousandths of GPUs that it may have at least and at most; None: it has one size."""
    demand = record.demand_after_prerun or record.demand
    if not demand.is_elastic:
        return None
    return demand.min_count * demand.nominal.share, demand.max_count * demand.nominal.share


def shared_by(live: LiveJob, topology: Topology) -> str:
    """How it shares its GPUs: `MPS`, `time-slicing`; empty where it shares none, or has CPU slots."""
    placement = None if live.record is None else live.record.placement
    if placement is None or placement.sharing is Sharing.EXCLUSIVE:
        return ""
    return "" if is_on_slots(topology, placement) else "MPS" if live.history.by_mps else SLICING


def submitted_job(asked: Submission, id: str, now: int, warm: tuple[int, ...] = ()) -> Job:
    """The controller's value of a submission; `warm` are nodes that have its code."""
    after = asked.job.deadline_ms
    deadline = None if after is None else now + after
    demand = replace(asked.job.demand, warm=warm) if warm else asked.job.demand
    return replace(asked.job, id=id, submit_ms=now, deadline_ms=deadline, demand=demand)
