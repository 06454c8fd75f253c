"""What the manager offers to the API: requests, answers and errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ConfigDict, Field

from trainmaster.config.job_file import Duration, JobName, Name, Priority, Retries
from trainmaster.config.validation import StrictModel
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.request_errors import Conflict, NotFound, RequestError, TooMany, Unavailable
from trainmaster.daemon.response_models import GpuUse
from trainmaster.daemon.vital_signs import VitalSigns
from trainmaster.failures.reason_table import FailureReason
from trainmaster.model.deadline_notices import DeadlineNotice
from trainmaster.model.job import Job
from trainmaster.model.job_state import Transition
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.reasons import Reason
from trainmaster.model.run_time import RunTimeForecast
from trainmaster.model.submission import Array, Dependency
from trainmaster.store.rows import StoredJob

# -- requests ------------------------------------------------------------------------------------------

__all__ = [
    "Conflict",
    "NotFound",
    "RequestError",
    "TooMany",
    "Unavailable",
]  # and what is defined here


class JobChanges(StrictModel):
    """What may be changed of a job that has not ended; what is left out stays as it is."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    name: JobName = Field(default="", description="Name.")
    queue: Name = Field(default="", description="Queue.")
    priority: Priority = Field(0, description="Priority: higher goes first.")
    retries: Retries = Field(0, description="Restarts after a failure.")
    max_runtime: Duration = Field(0, description="Maximum run time, all attempts together.")
    deadline: Duration = Field(0, description="Time from submission by which it must be done.")
    grace_period: Duration = Field(0, description="Time that it has to stop before it is killed.")
    preemptible: bool = Field(True, description="Whether policies may suspend it.", strict=True)


@dataclass(frozen=True, slots=True)
class Asker:
    """Who looks for a job: names are looked up among its own jobs first."""

    user: str
    sees_all: bool
    """Whether it finds the jobs of others, by id and by name."""

    def finds(self, user: str) -> bool:
        """Whether it finds jobs of this user."""
        return self.sees_all or self.user == user


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as its user asked for it: checked, with every default filled in."""

    job: Job
    """It has no id yet; `submit_ms` is 0, and `deadline_ms` counts from the submission."""
    recipe: LaunchSpec
    """Its `workdir` is the user's own; where `keeps_code`, the manager replaces it by the copy."""
    spec: Mapping[str, object]
    """The job file as submitted, for showing."""
    array: Array | None = None
    depends_on: tuple[Dependency, ...] = ()
    keeps_code: bool = False
    data: tuple[str, ...] = ()
    """Paths that must exist when it is submitted."""
    is_held: bool = False
    """Submitted, but not to run before its owner resumes it."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of a submission: the array itself first, then its elements."""

    ids: tuple[str, ...]
    was_known: bool = False
    """It had been submitted before, with the same idempotency key."""
    copy: str | None = None
    """The copy of the code that it runs in; None: it runs in its folder."""
    left_out: tuple[str, ...] = ()
    """Files and folders that the copy has neither copied nor linked."""
    deadline: DeadlineNotice | None = None
    """What is said about its deadline at once."""
    is_new_queue: bool = False
    """No queue is defined, and no job has named this one before."""
    warnings: tuple[str, ...] = ()
    """What its owner should know."""


# -- answers -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobStatus:
    """All that is known of a job now."""

    row: StoredJob
    history: JobHistory
    run_ms: int
    """How long it has been running, all attempts together."""
    devices: tuple[str, ...] = ()
    """What it holds now: `node:number`, or a device's own name."""
    nodes: tuple[str, ...] = ()
    reason: Reason | None = None
    """Why it waits: by the policy, or because it is held; None while it runs."""
    transition: Transition | None = None
    """What is happening to it right now."""
    waiting_since_ms: int | None = None
    """Since when it waits; None while it does not."""
    remarks: tuple[str, ...] = ()
    """What is not possible for this job, and what would have to change."""
    elements: tuple[JobStatus, ...] = ()
    """Of an array: its jobs, the first one first."""
    gpu_use: tuple[GpuUse, ...] = ()
    """What its processes use on GPUs now."""
    shared_by: str = ""
    """How it shares its GPUs: `MPS`, `time-slicing`; empty for a job that shares none."""
    memory_enforced: str = ""
    """How the booked memory of a GPU that it shares is enforced; empty for a job that shares none."""
    reserved_memory: int = 0
    """Bytes that are booked for it on each GPU that it may share; 0: none are."""
    gpus_now: int = 0
    """Thousandths of GPUs that it has."""
    may_have: tuple[int, int] | None = None
    """At least and at most, in thousandths of GPUs; None: it has one size, or has ended."""
    run_time: RunTimeForecast | None = None
    """How long it still runs; None where nothing is known of that, or it has ended."""
    failure_reason: FailureReason | None = None
    """What the table of reasons says about its last failure (`history.failed_by`)."""


RELEASED_FIRST = "it has to be released first: see its reason."
"""Why no start of a job that is held can be expected."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a waiting job is expected to start, by simulating the queue."""

    start_ms: int | None
    basis: str
    """What was assumed, in words."""
    deadline: DeadlineNotice | None = None
    """What would be said about its deadline, of a job that is not submitted."""


@dataclass(frozen=True, slots=True)
class Health:
    role: str
    """active or standby."""
    trouble: str = ""
    """Why nothing can be changed now: one sentence; empty if there is none."""
    notes: tuple[str, ...] = ()
    """What does not work as it should although the manager does, and what to do."""
    signs: VitalSigns | None = None
    """Of the one that leads."""
    about_jobs: tuple[str, ...] = ()
    """Those of the notes that name jobs and their inputs."""

    @property
    def state(self) -> str:
        """ok, degraded or failing."""
        return "failing" if self.trouble else "degraded" if self.notes else "ok"


@dataclass(frozen=True, slots=True)
class LogFile:
    """Where a rank's output lies, oldest file first."""

    attempt: int
    rank: int
    paths: tuple[Path, ...]
