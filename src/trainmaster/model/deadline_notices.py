"""What a policy tells the owner of a job about its deadline: a closed set of facts with their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class DeadlineOutcome(Enum):
    """What became of a deadline."""

    ACCEPTED = "accepted"
    """It will be met, as far as can be predicted."""
    DECLINED = "declined"
    """It is not promised; the job runs anyway."""
    SLIPPED = "slipped"
    """It was accepted, and is now predicted to be missed; or by notably more than last said."""
    RECOVERED = "recovered"
    """It had slipped, and is predicted to be met again."""


class Decline(Enum):
    """Why a deadline was declined."""

    TOO_SOON = "too soon"
    """The earliest one that could be accepted is later."""
    TOO_LARGE = "too large"
    """It needs more GPUs than there are now."""
    NO_ESTIMATE = "no estimate"
    """The job's run time is unknown."""


@dataclass(frozen=True, slots=True)
class DeadlineNotice:
    """One such fact about one job; times in ms."""

    job: str
    what: DeadlineOutcome
    deadline_ms: int
    finish_ms: int | None = None
    """The latest predicted finish; None if it was declined."""
    earlier_ms: int | None = None
    """The prediction before this one, where there was one."""
    feasible_ms: int | None = None
    """The earliest deadline that could have been accepted at submission."""
    why: Decline | None = None
