"""Apply a workload's changes to its jobs: elasticity, models, memory, utilisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from trainmaster.evaluation.suite import WorkloadChanges
from trainmaster.model.job import Demand, Job
from trainmaster.model.trace import Outcome, TracedJob
from trainmaster.model.units import GIB, NOMINAL, SECOND


def apply_changes(
    jobs: Sequence[TracedJob], changes: WorkloadChanges, gpus: int, seed: int
) -> list[TracedJob]:
    """The jobs with the changes applied, drawn by the seed; `gpus` are those of the cluster."""
    if changes == WorkloadChanges():
        return list(jobs)
    drawing = _Drawing(changes, gpus, seed)
    return [drawing.changed(each) for each in jobs]


class _Drawing:
    """Each kind of change has its own random stream, so that adding one does not alter the others."""

    def __init__(self, changes: WorkloadChanges, gpus: int, seed: int) -> None:
        self._changes = changes
        self._gpus = gpus
        self._elastic, self._model, self._memory, self._util = (
            Random(f"declared/{kind}/{seed}") for kind in ("elastic", "model", "memory", "util")
        )
        self._demands: dict[tuple[Demand, bool, int | None], Demand] = {}

    def changed(self, traced: TracedJob) -> TracedJob:
        return self._with_truth(replace(traced, job=self._declared(traced.job)))

    def _with_truth(self, traced: TracedJob) -> TracedJob:
        changes = self._changes
        if changes.longest_s is not None:
            longest = round(changes.longest_s * SECOND)
            traced = replace(traced, service_ms=min(traced.service_ms, longest))
        if changes.first_attempts:
            traced = replace(traced, failed_attempts_ms=())
        if changes.passes:
            traced = replace(traced, outcome=Outcome.SUCCEEDED, failed_attempts_ms=())
        return traced

    def _declared(self, job: Job) -> Job:
        changes = self._changes
        is_elastic = self._elastic.random() < changes.elastic
        memory = _drawn(self._memory, changes.memory_gib)
        job = replace(job, demand=self._demand(job.demand, is_elastic, memory))
        if changes.models:
            job = replace(job, model=self._model.choice(changes.models))
        busy = _drawn(self._util, changes.gpu_util)
        return job if busy is None else replace(job, gpu_util_ppm=round(busy * NOMINAL))

    def _demand(self, demand: Demand, is_elastic: bool, memory_gib: float | None) -> Demand:
        """One object for equal demands, as trace readers produce."""
        memory = None if memory_gib is None else round(memory_gib * GIB)
        key = (demand, is_elastic, memory)
        if key not in self._demands:
            if memory is not None:
                demand = replace(demand, nominal=replace(demand.nominal, memory=memory))
            self._demands[key] = self._resized(demand, is_elastic)
        return self._demands[key]

    def _resized(self, demand: Demand, is_elastic: bool) -> Demand:
        count, changes = demand.nominal.count, self._changes
        if is_elastic and demand.nominal.is_whole:
            least = max(1, count // changes.shrink)
            most = max(count, min(count * changes.grow, self._gpus))
            return replace(demand, min_count=least, max_count=most)
        if changes.rigid:
            return replace(demand, min_count=count, max_count=count)
        return demand


def _drawn(chance: Random, choices: Sequence[float]) -> float | None:
    return chance.choice(choices) if choices else None
