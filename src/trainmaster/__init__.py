"""Trainmaster: a GPU cluster manager for deep-learning training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainmaster.client.client import Client
    from trainmaster.client.job import Job
    from trainmaster.client.job_array import JobArray
    from trainmaster.client.job_errors import JobCancelled, JobError, JobFailed, JobTimedOut
    from trainmaster.client.waiting import as_completed
    from trainmaster.frames.compare import ComparisonResults, compare
    from trainmaster.frames.simulate import SimulationResults, simulate

__version__ = "0.1.0"
__all__ = [
    "Client",
    "ComparisonResults",
    "Job",
    "JobArray",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobTimedOut",
    "SimulationResults",
    "as_completed",
    "compare",
    "simulate",
]

MODULES = {
    "Client": "trainmaster.client.client",
    "ComparisonResults": "trainmaster.frames.compare",
    "Job": "trainmaster.client.job",
    "JobArray": "trainmaster.client.job_array",
    "JobCancelled": "trainmaster.client.job_errors",
    "JobError": "trainmaster.client.job_errors",
    "JobFailed": "trainmaster.client.job_errors",
    "JobTimedOut": "trainmaster.client.job_errors",
    "SimulationResults": "trainmaster.frames.simulate",
    "as_completed": "trainmaster.client.waiting",
    "compare": "trainmaster.frames.compare",
    "simulate": "trainmaster.frames.simulate",
}
"""Where each name is; loaded when it is first asked for, so that the command line starts quickly."""


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
