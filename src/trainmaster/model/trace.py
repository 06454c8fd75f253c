"""A workload with its truth: jobs, how long each really runs, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from trainmaster.model.job import Job

if TYPE_CHECKING:  # it is stored by a codec that knows this module
    from trainmaster.model.submission import Dependency


class Outcome(Enum):
    """How a job ends after its service, in the words of the JSON contract."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class TracedJob:
    """A job and what only a replay knows of it."""

    job: Job
    service_ms: int
    """Run time at the nominal shape, best placement, alone."""
    outcome: Outcome = Outcome.SUCCEEDED
    failed_attempts_ms: tuple[int, ...] = ()
    """Run times of the failed attempts that came before."""
    stays_in_memory: bool = True
    """Whether it may be frozen in place; told to, it saves and ends instead."""
    failure_reasons: tuple[str, ...] = ()
    """Why each of its failed attempts failed, and at the end why it failed itself; empty: not known."""
    bad_input: str = ""
    """The input that it fails on; empty: none is known."""
    depends_on: tuple[Dependency, ...] = ()
    """Jobs that must end before it is started."""
    array: str = ""
    """The array that it is an element of; empty: none."""
    array_limit: int | None = None
    """How many elements of its array may be live at once; None: all."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs sorted by submission (ties keep their order in the file), the first one at its own time."""

    jobs: tuple[TracedJob, ...]
    notes: tuple[str, ...] = ()
    """What a reader should tell the user: rows it sorted, rows it had to leave out, and why."""


class TraceError(ValueError):
    """A trace that cannot be used: one sentence with file, line and column."""
