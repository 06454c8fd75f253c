"""What the daemon offers to whoever speaks for users: the API, the demonstration, tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

from trainmaster.model.codec import stored_as
from trainmaster.model.job import Demand
from trainmaster.model.launch_spec import Recipe
from trainmaster.model.placement import Role
from trainmaster.model.queue import Queue
from trainmaster.model.reasons import Reason
from trainmaster.model.units import SECOND
from trainmaster.store.protocol import Wanted
from trainmaster.store.rows import JobRow, ProgressRow, StoryRow


class Refusal(Exception):
    """Something that cannot be done: one sentence for the user; nothing has changed."""


class NotFound(Refusal):
    """There is no such job, queue or node."""


class Conflict(Refusal):
    """It cannot be done to this job now: it has ended, or an idempotency key was used for another."""


class Unavailable(Refusal):
    """Not now: a standby, or a store that cannot be written. Try again later."""


# -- asking for jobs -----------------------------------------------------------------------------------


@stored_as("daemon.When")
class When(Enum):
    """Which end of another job is waited for."""

    OK = "ok"
    ANY = "any"
    FAIL = "fail"


@stored_as("daemon.Dependency")
@dataclass(frozen=True, slots=True)
class Dependency:
    job: str
    when: When = When.OK


@stored_as("daemon.Array")
@dataclass(frozen=True, slots=True)
class Array:
    """Several jobs of one file that differ in their index."""

    indices: tuple[int, ...]
    limit: int | None = None
    """How many may be live at once, beyond which the others are held."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as somebody asked for it: checked, with every default filled in."""

    name: str
    user: str
    demand: Demand
    recipe: Recipe
    """Its `workdir` is the user's own; where `keeps_code`, the daemon replaces it by the copy."""
    spec: Mapping[str, object]
    """The job file as submitted, for showing."""
    queue: str = "default"
    app: str = ""
    """The program, for history: what `history` of policies goes by."""
    model: str = ""
    role: Role = Role.GUARANTEED
    priority: int = 0
    retries: int = 2
    grace_ms: int = 30 * SECOND
    deadline_ms: int | None = None
    """After the submission."""
    iterations: int | None = None
    array: Array | None = None
    depends_on: tuple[Dependency, ...] = ()
    keeps_code: bool = True
    is_held: bool = False
    """Submitted, but not to run before its owner resumes it."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of a submission: the array itself first, then its elements."""

    ids: tuple[str, ...]
    was_known: bool = False
    """It had been submitted before, with the same idempotency key."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What `set` may change of a job; None = as it is."""

    priority: int | None = None
    queue: str | None = None
    max_runtime_ms: int | None = None
    deadline_ms: int | None = None
    retries: int | None = None
    name: str | None = None


# -- looking -----------------------------------------------------------------------------------------


@stored_as("daemon.Progress")
@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job has come, by its own word."""

    at_ms: int
    step: int
    total_steps: int | None
    loss: float | None
    samples_per_s: float | None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """All that is known of a job now."""

    row: JobRow
    priority: int
    attempt: int
    restarts: int
    failures: int
    retries: int
    preemptions: int
    migrations: int
    run_ms: int
    """How long it has been running, all attempts together."""
    gpu_ms: int
    """Thousandths of a GPU x ms."""
    devices: tuple[str, ...]
    """What it holds now: `node:number`, or a device's own name."""
    nodes: tuple[str, ...]
    pids: tuple[int, ...]
    progress: Progress | None
    saved_at_ms: int | None
    """When a checkpoint of it last became durable."""
    reason: Reason | None
    """Why it waits, where the policy says; None while it runs, or where it is held."""
    held_for: str
    """Why it is held, in words: its owner, another job, its array's limit; empty where it is not."""
    remarks: tuple[str, ...]
    """What cannot be done for this job, and what would have to change."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a waiting job is expected to start, by simulating the queue."""

    start_ms: int | None
    basis: str
    """What was assumed, in words."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    name: str
    device_type: str
    devices: tuple[str, ...]
    """Their names."""
    jobs: tuple[tuple[str, ...], ...]
    """For each device: the jobs on it."""
    frozen: tuple[str, ...]
    """Jobs that are suspended in memory here."""
    state: str
    """up, draining, away, set aside."""
    cpus: int
    memory: int
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueStatus:
    queue: Queue
    is_defined: bool
    """Whether somebody stated it; else it is only a name that jobs used."""
    running: int
    waiting: int
    held: int
    gpus: int
    """Thousandths of a GPU that its jobs hold now."""


@dataclass(frozen=True, slots=True)
class PolicyStatus:
    name: str
    options: Mapping[str, object]
    """All of them, with their values."""
    since_ms: int
    trouble: str = ""
    """What it raised last, if anything."""


@dataclass(frozen=True, slots=True)
class Health:
    role: str
    """active or standby."""
    trouble: str = ""
    """Why nothing can be changed now: one sentence; empty where all is well."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something that has just happened, for those who watch."""

    seq: int
    at_ms: int
    what: str
    job: str | None = None
    detail: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogFile:
    """Where a rank's output lies, oldest file first."""

    attempt: int
    rank: int
    paths: tuple[Path, ...]


class Service(Protocol):
    """The daemon as the API sees it. Methods raise Refusal and nothing else for a user's fault."""

    # -- changing ------------------------------------------------------------------------------------

    async def submit(
        self,
        asked: Sequence[Submission],
        key: str | None = None,
        request_hash: str = "",
    ) -> Sequence[Accepted]:
        """All of them or none; answered when they are durable."""
        ...

    async def check(self, asked: Submission) -> tuple[JobStatus, Forecast]:
        """A dry run: what the job would be and when it would start, without submitting it."""
        ...

    async def cancel(self, job: str) -> None: ...

    async def suspend(self, job: str) -> None:
        """Take it off its devices and hold it until it is resumed."""
        ...

    async def resume(self, job: str) -> None: ...

    async def save(self, job: str) -> None:
        """Ask it to write a checkpoint now and go on."""
        ...

    async def move(self, job: str, node: str) -> None: ...

    async def change(self, job: str, changes: Changes) -> None: ...

    async def define_queue(self, queue: Queue) -> None: ...

    async def set_policy(self, name: str, options: Mapping[str, str]) -> PolicyStatus: ...

    # -- looking -------------------------------------------------------------------------------------

    def health(self) -> Health: ...

    def now_ms(self) -> int: ...

    async def jobs(self, wanted: Wanted) -> Sequence[JobStatus]: ...

    async def counts(self) -> Mapping[str, int]:
        """How many jobs are in each state."""
        ...

    async def sheet(self, job: str) -> JobStatus:
        """By id, or by name: the newest of that name."""
        ...

    async def forecast(self, job: str) -> Forecast: ...

    async def story(self, job: str) -> Sequence[StoryRow]: ...

    async def progress(self, job: str) -> Sequence[ProgressRow]: ...

    async def log_files(self, job: str) -> Sequence[LogFile]: ...

    def nodes(self) -> Sequence[NodeStatus]: ...

    def queues(self) -> Sequence[QueueStatus]: ...

    def policy(self) -> PolicyStatus: ...

    async def environment(self, job: str) -> tuple[Path, Mapping[str, str]]:
        """Working directory and environment of its first rank, for `exec`."""
        ...

    def changes(self, after: int | None = None) -> AsyncIterator[Change]:
        """What happens from now on, or since that one as far as it is remembered."""
        ...

    async def record_trace(self) -> str:
        """The history as a native trace (CSV)."""
        ...

    def record_events(self) -> AsyncIterator[str]:
        """The event log as lines of JSON: a snapshot first, then steps."""
        ...
