"""What a submission says beyond the job itself: arrays, and which jobs must end before it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trainmaster.model.codec import stored_as


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
    covers_array: bool = False
    """One of many that stand for the whole array that the user named."""


@stored_as("daemon.Array")
@dataclass(frozen=True, slots=True)
class Array:
    """Several jobs of one file that differ in their index."""

    indices: tuple[int, ...]
    limit: int | None = None
    """How many may be live at once, beyond which the others are held."""
