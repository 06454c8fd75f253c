"""Inputs of jobs that could not be read: each failure, and the paths that are set aside for them."""

from __future__ import annotations

from dataclasses import dataclass

MOST_FAILURES = 16
"""Failures that are remembered of one path, the newest."""


@dataclass(frozen=True, slots=True)
class InputFailure:
    """A job failed because it could not read this path."""

    path: str
    job: str
    user: str
    program: str
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class InputBlock:
    """A path that is set aside: jobs that name it wait."""

    path: str
    since_ms: int
    failures: tuple[InputFailure, ...] = ()
    """Those that it was set aside for, oldest first."""
    stamp: str = ""
    """What the path was like when it was first looked at since; empty: it was not yet."""
