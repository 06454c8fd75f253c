"""Who or what ended a job without success, and who or what suspended it: recorded with the job.

Closed sets with their numbers; `text/stop_messages.py` has the words. The standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from typing import Any, Self


class EndCode(StrEnum):
    """Why a job ended without success."""

    EXIT_CODE = "ExitCode"
    """Its program failed."""
    SIGNAL = "Signal"
    """Its program was killed by a signal that the manager did not send."""
    NOT_STARTED = "NotStarted"
    """Its command could not be started."""
    LOST = "Lost"
    """It was lost more often than the limit: `times`."""
    TIME_LIMIT = "TimeLimit"
    """It has run for its `max_runtime`."""
    DEPENDENCY = "Dependency"
    """A job that it depends on did not end as it must."""
    IDLE = "Idle"
    """Its GPUs have computed nothing for as long as the operator allows."""
    CANCELLED = "Cancelled"
    """A person cancelled it."""


WITHDRAWALS = frozenset({EndCode.TIME_LIMIT, EndCode.DEPENDENCY, EndCode.IDLE, EndCode.CANCELLED})
"""Ends that the manager orders. A program's own end on the way there does not replace them."""


class Recorded:
    """A value that is stored as a JSON object without the fields that have their default."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        defaults = _defaults(type(self)).items()  # type: ignore[arg-type]
        return {
            name: value for name, default in defaults if (value := getattr(self, name)) != default
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """A value of any version: fields that this one does not have are ignored."""
        known = _defaults(cls)  # type: ignore[arg-type]
        return cls(
            **{
                name: tuple(value) if isinstance(value, list) else value
                for name, value in stored.items()
                if name in known
            }
        )


@cache
def _defaults(kind: type[Any]) -> Mapping[str, object]:
    """The fields with their defaults, remembered: lists read thousands of these values."""
    return {each.name: each.default for each in fields(kind)}


@dataclass(frozen=True, slots=True)
class EndReason(Recorded):
    """Why a job ended without success, with what is known of it."""

    code: str
    """An `EndCode`."""
    exit_code: int | None = None
    signal: str = ""
    """`SIGSEGV`."""
    rank: int | None = None
    """The rank that failed first."""
    limit_s: float | None = None
    """The time limit that it reached."""
    times: int | None = None
    """How often it was lost."""
    job: str = ""
    """The job that it depended on."""
    job_state: str = ""
    """How that one ended."""
    by: str = ""
    """The user who cancelled it, where known."""
    detail: str = ""
    """One sentence where the engine knows more: out of memory, command not found."""

    @property
    def is_withdrawal(self) -> bool:
        return self.code in WITHDRAWALS


class Suspender(StrEnum):
    """Who suspended a job."""

    USER = "user"
    POLICY = "policy"
    IDLE = "idle"
    """Itself: an interactive session that was not used."""
    MEMORY = "memory"
    """The manager: it used more GPU memory than it had booked."""


@dataclass(frozen=True, slots=True)
class Suspension(Recorded):
    """Who suspended a job, and for which jobs; or who holds one that has not started."""

    by: str
    """A `Suspender`."""
    user: str = ""
    """The user who asked for it, where known."""
    jobs: tuple[str, ...] = ()
    """The jobs that were to start on its GPUs."""
    detail: str = ""
    """What it did, in words that follow `because it`."""
