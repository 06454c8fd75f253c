"""Make the jobs of a workload: the same for every contender with the same seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from trainmaster.config.cluster import Cluster, cluster_from
from trainmaster.evaluation import one_gpu_mix
from trainmaster.evaluation.suite import (
    Generated,
    JobSource,
    SuiteError,
    SyntheticTrace,
    TraceFile,
    TraceSubset,
    Workload,
)
from trainmaster.evaluation.workload_changes import apply_changes
from trainmaster.model.topology import parse_shorthand
from trainmaster.model.trace import Trace, TracedJob
from trainmaster.model.units import HOUR
from trainmaster.sim.metrics import load_of
from trainmaster.traces import philly_like
from trainmaster.traces.formats import load as load_trace

TOLERANCE = 0.01
"""How far the realised load may be from the one that was asked for."""
DAY = 24 * HOUR

Generator = Callable[[int, int, float, int], Trace]
"""(jobs, GPUs, load, seed) -> trace."""
GENERATORS: Mapping[str, Generator] = {
    "philly": philly_like.generate,
    "one-gpu-mix": one_gpu_mix.generate,
}


@dataclass(frozen=True, slots=True)
class MeasurementWindow:
    """Jobs submitted in it are measured; ms, both ends included."""

    from_ms: int
    until_ms: int

    def measured(self, jobs: Sequence[TracedJob]) -> list[TracedJob]:
        return [each for each in jobs if self.from_ms <= each.job.submit_ms <= self.until_ms]

    def before(self, jobs: Sequence[TracedJob]) -> list[TracedJob]:
        """The disjoint prefix, on which contenders are tuned."""
        return [each for each in jobs if each.job.submit_ms < self.from_ms]


def window_of(jobs: Sequence[TracedJob], warm_up: float, tail: float) -> MeasurementWindow:
    """What is left of the span without its first part, and without the last that only keeps it busy.

    With neither, all jobs are measured.
    """
    first, last = jobs[0].job.submit_ms, jobs[-1].job.submit_ms
    span = last - first
    return MeasurementWindow(first + round(span * warm_up), last - round(span * tail))


@dataclass(frozen=True, slots=True)
class Stream:
    """Jobs of one seed, and which of them are measured."""

    trace: Trace
    window: MeasurementWindow


def cluster_of(workload: Workload) -> Cluster:
    """The workload's cluster."""
    if isinstance(workload.cluster, str):
        return Cluster(parse_shorthand(workload.cluster))
    return cluster_from(workload.cluster, f"the cluster of {workload.name}")


def stream_of(workload: Workload, gpus: int, seed: int, folder: Path | None) -> Stream:
    """The workload's jobs for this seed; files are looked for in the data folder."""
    source = workload.source
    jobs = list(_drawn(source, gpus, seed, folder))
    jobs = apply_changes(jobs, source.changes, gpus, seed)
    if not jobs:
        raise SuiteError(f"the workload {workload.name} has no jobs.")
    load = None if isinstance(source, SyntheticTrace) else source.load
    tail = source.tail if isinstance(source, Generated) else 0.0
    if load is not None:
        jobs = scaled(jobs, gpus, load)
        check_load(workload.name, load_of(jobs, gpus), load)
    window = window_of(jobs, workload.warm_up, tail)
    if not window.measured(jobs):
        raise SuiteError(f"the workload {workload.name} has no job to measure: give it more jobs.")
    return Stream(Trace(tuple(jobs)), window)


def _drawn(source: JobSource, gpus: int, seed: int, folder: Path | None) -> Sequence[TracedJob]:
    if isinstance(source, Generated):
        return _generator(source.like)(source.jobs, gpus, source.load, seed).jobs
    if isinstance(source, TraceFile):
        return subset_of(_read(file_of(source, folder), source.format), source.part)
    from trainmaster.evaluation.suites.synthetic_traces import trace_maker

    return trace_maker(source.name)(gpus, seed).jobs


def _generator(like: str) -> Generator:
    if like not in GENERATORS:
        raise SuiteError(f"nothing generates jobs like {like!r}; there is {', '.join(GENERATORS)}.")
    return GENERATORS[like]


def check_load(name: str, realised: float | None, wanted: float) -> None:
    """Raise if the realised load is not the one asked for: the result would mislead."""
    if realised is None or abs(realised / wanted - 1) > TOLERANCE:
        found = "no span at all" if realised is None else f"a load of {realised:.3f}"
        raise SuiteError(f"{name} was to offer a load of {wanted:g} and has {found}.")


def scaled(jobs: Sequence[TracedJob], gpus: int, load: float) -> list[TracedJob]:
    """The same jobs, their arrivals stretched or squeezed evenly to offer this load."""
    realised = load_of(jobs, gpus)
    if realised is None:
        return list(jobs)
    first, factor = jobs[0].job.submit_ms, realised / load
    arrivals = [first + round((each.job.submit_ms - first) * factor) for each in jobs]
    return [
        replace(each, job=replace(each.job, submit_ms=at))
        for each, at in zip(jobs, arrivals, strict=True)
    ]


# -- files -------------------------------------------------------------------------------------------


def file_of(source: TraceFile, folder: Path | None) -> Path:
    """Path of the file; an absolute one needs no folder."""
    return Path(source.path) if folder is None else folder / source.path


@lru_cache(maxsize=4)
def _read(path: Path, format: str | None) -> tuple[TracedJob, ...]:
    return load_trace(path, format).jobs


def subset_of(jobs: Sequence[TracedJob], part: TraceSubset) -> list[TracedJob]:
    """The jobs of a subset, its fields applied in order."""
    found = list(jobs)
    if part.queue is not None:
        found = [each for each in found if each.job.queue == part.queue]
    if part.busiest_days is not None:
        found = busiest(found, part.busiest_days)
    if part.first is not None:
        found = found[: part.first]
    if part.last is not None:
        found = found[-part.last :]
    if part.at_most is not None and len(found) > part.at_most:
        found = [found[n * len(found) // part.at_most] for n in range(part.at_most)]
    return found


def busiest(jobs: Sequence[TracedJob], days: int) -> list[TracedJob]:
    """The jobs of the consecutive days (from midnight) in which the most GPU time was submitted."""
    if not jobs:
        return []
    work: dict[int, int] = {}
    for each in jobs:
        day = each.job.submit_ms // DAY
        work[day] = work.get(day, 0) + each.job.demand.nominal.total_share * each.service_ms
    starts = range(min(work), max(work) + 1)
    best = max(starts, key=lambda at: sum(work.get(day, 0) for day in range(at, at + days)))
    return [each for each in jobs if best <= each.job.submit_ms // DAY < best + days]
