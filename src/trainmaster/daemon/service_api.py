"""What the daemon offers to the API: its requests, its answers, and the ways in which it refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trainmaster.daemon.job_history import JobHistory
from trainmaster.model.job import Demand
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.placement import Role
from trainmaster.model.reasons import Reason
from trainmaster.model.submission import Array, Dependency
from trainmaster.model.units import SECOND
from trainmaster.store.rows import JobRow

if TYPE_CHECKING:
    from trainmaster.daemon.commands import Commands
    from trainmaster.daemon.queries import Queries


class Refusal(Exception):
    """Something that cannot be done: one sentence for the user; nothing has changed."""


class NotFound(Refusal):
    """There is no such job, queue or node."""


class Conflict(Refusal):
    """It cannot be done to this job now: it has ended, or an idempotency key was used for another."""


class Unavailable(Refusal):
    """Not now: a standby, or a store that cannot be written. Try again later."""


# -- requests ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as somebody asked for it: checked, with every default filled in."""

    name: str
    user: str
    demand: Demand
    recipe: LaunchSpec
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


# -- answers -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobStatus:
    """All that is known of a job now."""

    row: JobRow
    history: JobHistory
    run_ms: int
    """How long it has been running, all attempts together."""
    devices: tuple[str, ...] = ()
    """What it holds now: `node:number`, or a device's own name."""
    nodes: tuple[str, ...] = ()
    reason: Reason | None = None
    """Why it waits, where the policy says; None while it runs, or where it is held."""
    held_for: str = ""
    """Why it is held, in words: its owner, another job, its array's limit; empty where it is not."""
    remarks: tuple[str, ...] = ()
    """What cannot be done for this job, and what would have to change."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a waiting job is expected to start, by simulating the queue."""

    start_ms: int | None
    basis: str
    """What was assumed, in words."""


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

    @property
    def commands(self) -> Commands:
        """Unavailable while another daemon leads."""
        ...

    @property
    def queries(self) -> Queries: ...

    def health(self) -> Health: ...

    async def record_trace(self) -> str:
        """The history as a native trace (CSV)."""
        ...

    def record_events(self) -> AsyncIterator[str]:
        """The event log as lines of JSON: a snapshot first, then steps."""
        ...
