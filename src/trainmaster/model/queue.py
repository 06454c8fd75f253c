"""Queues: their parents, weights, guarantees, maxima, limits and budgets."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.model.quota import Budget

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
    max_gpus_per_user: int | None = None
    """Thousandths of a GPU that one user's jobs in it, and in queues inside it, may hold."""
    max_running_per_user: int | None = None
    max_jobs_per_user: int | None = None
    """Jobs of one user that have not ended: more are refused at submission."""
    budget: Budget | None = None
    """GPU time of its jobs, and of those in queues inside it."""
