"""What jobs on one GPU do together, compared with one of them alone, and how that is known."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Evidence(Enum):
    """How speeds of jobs that share a GPU are known, the best first."""

    MEASURED = 1
    """By jobs of these kinds, while they were together."""
    LEARNED = 2
    """By jobs of these kinds, beside others."""
    PUBLISHED = 3
    UTILISATION = 4


class Verdict(Enum):
    """What a policy makes of jobs on one GPU."""

    PACKED = "packed"
    ON_TRIAL = "on trial"
    """They are together until it has been measured whether that pays."""
    TOO_LITTLE = "too little"
    """Together they do too little more."""
    TOO_SLOW = "too slow"
    """One of them would keep too little of its speed."""
    UNDONE = "undone"
    """They were tried, and did no more than one of them alone."""
    NO_MEMORY = "no memory"
    UNKNOWN = "unknown"
    """Nothing is known of their speeds together, and they are not tried now."""


@dataclass(frozen=True, slots=True)
class PackingScore:
    """A job beside others on their GPU."""

    others: tuple[str, ...]
    verdict: Verdict
    rates: tuple[int, ...] = ()
    """Part of its speed alone that each keeps, in parts per million, the job itself last; empty: unknown."""
    evidence: Evidence | None = None
    least_ppm: int = 0
    """What is asked for: of the sum of speeds, or of the slowest job."""
