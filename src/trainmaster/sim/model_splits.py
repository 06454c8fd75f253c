"""Splits of one-GPU jobs over two GPUs, as a profiler would report them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trainmaster.model.job import Demand, Part, Shape
from trainmaster.model.trace import TracedJob


def with_splits(jobs: Iterable[TracedJob], speed_ppm: int) -> tuple[TracedJob, ...]:
    """Adds a split in two equal halves to each job that has one GPU or a part of one."""
    known: dict[Demand, Demand] = {}
    """Equal demands stay one object: other code compares them by identity."""
    found = []
    for traced in jobs:
        demand, nominal = traced.job.demand, traced.job.demand.nominal
        if not demand.is_elastic and nominal.count == 1 and not demand.splits:
            half = Part((nominal.share + 1) // 2, (nominal.memory + 1) // 2)
            split = replace(demand, splits=(Shape(2, parts=(half, half), speed_ppm=speed_ppm),))
            traced = replace(
                traced, job=replace(traced.job, demand=known.setdefault(demand, split))
            )
        found.append(traced)
    return tuple(found)
