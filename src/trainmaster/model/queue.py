"""Queues: their parents, weights, guarantees and maxima."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_QUEUE = "default"
"""The queue of jobs that name no other; it is always there."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A tenant's queue, possibly inside another queue."""

    name: str
    parent: str | None = None
    weight: int = 1
    guaranteed: int = 0
    """Thousandths of a GPU it can always get back."""
    maximum: int | None = None
    """Thousandths of a GPU it may never exceed; None = the cluster."""
    allow_unpreemptible: bool = True
    """Whether its jobs may be `preemptible: false`."""
