"""One-GPU jobs as they could run on two: the split shapes that a profiler would report."""

from __future__ import annotations

from dataclasses import replace

from trainmaster.model.job import Demand, Part, Shape
from trainmaster.model.trace import TracedJob


class Splitter:
    """Adds a split in two equal halves to each job that has one GPU or a part of one."""

    def __init__(self, speed_ppm: int) -> None:
        self._speed_ppm = speed_ppm
        self._known: dict[Demand, Demand] = {}
        """Equal demands stay one value: they are told apart by identity elsewhere."""

    def split(self, traced: TracedJob) -> TracedJob:
        demand = traced.job.demand
        if demand.is_elastic or demand.nominal.count != 1 or demand.splits:
            return traced
        if demand not in self._known:
            self._known[demand] = replace(demand, splits=(self._halves(demand.nominal),))
        return replace(traced, job=replace(traced.job, demand=self._known[demand]))

    def _halves(self, nominal: Shape) -> Shape:
        half = Part((nominal.share + 1) // 2, (nominal.memory + 1) // 2)
        return Shape(count=2, parts=(half, half), speed_ppm=self._speed_ppm)
