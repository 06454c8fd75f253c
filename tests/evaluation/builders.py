"""Tiny suites and traces for tests of the evaluation."""

from __future__ import annotations

from trainmaster.evaluation.suite import (
    Conditions,
    Contender,
    Experiment,
    Generated,
    Suite,
    Trial,
    Workload,
    WorkloadChanges,
)
from trainmaster.model.job import Job, gpus
from trainmaster.model.trace import Trace, TracedJob
from trainmaster.model.units import SECOND

IDEAL = Conditions("ideal", "ideal")
FIFO = Contender("fifo", "fifo")


def job(name: str, submit_s: float, size: int, service_s: float) -> TracedJob:
    return TracedJob(Job(name, round(submit_s * SECOND), gpus(size)), round(service_s * SECOND))


def trace(*jobs: TracedJob) -> Trace:
    return Trace(jobs)


def generated(jobs: int = 40, load: float = 0.9, seeds: tuple[int, ...] = (0,)) -> Workload:
    source = Generated(jobs, load, changes=WorkloadChanges(longest_s=3_600))
    return Workload("generated", source, "2x4", seeds)


def experiment(
    *contenders: Contender, workload: Workload | None = None, name: str = "one"
) -> Experiment:
    return Experiment(
        name=name,
        title=name,
        question="Which?",
        track="order",
        workloads=(workload or generated(),),
        conditions=(IDEAL,),
        contenders=contenders or (FIFO,),
        baseline=(contenders or (FIFO,))[0].label,
    )


def suite(*experiments: Experiment) -> Suite:
    return Suite("test", "Test", experiments)


def trial(
    contender: Contender = FIFO,
    workload: Workload | None = None,
    conditions: Conditions = IDEAL,
    seed: int = 0,
) -> Trial:
    return Trial("one", workload or generated(), conditions, contender, seed)
