"""A stream in which most jobs want one GPU and few fill it: where packing can help.

Run times, arrivals, queues and ends are those of a Philly-like stream. Three of four gangs ask for one
GPU instead, which leaves about nine of ten jobs on one, as in the released Philly trace; each job is one
of seven models whose pairs were measured side by side. Their utilisation and memory are our own
assumption: traces do not record them.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import NamedTuple

from trainmaster.model.job import Demand, Shape
from trainmaster.model.trace import Trace, TracedJob
from trainmaster.model.units import GIB, NOMINAL
from trainmaster.traces import philly_like
from trainmaster.traces.philly_tables import SIZE_MIX

GANGS_KEPT = 0.25


class PackedModel(NamedTuple):
    """Memory and utilisation of one GPU by a model that runs alone."""

    name: str
    memory_gib: int
    busy: float


MODELS = (
    PackedModel("resnet50", 8, 0.9),
    PackedModel("resnet18", 4, 0.5),
    PackedModel("transformer", 6, 0.8),
    PackedModel("gnmt", 6, 0.5),
    PackedModel("lm", 3, 0.4),
    PackedModel("a3c", 2, 0.3),
    PackedModel("recommendation", 3, 0.3),
)


def generate(jobs: int, gpus: int, load: float, seed: int) -> Trace:
    """Generate the jobs; the caller stretches their arrivals to the load."""
    chance = Random(f"one-gpu-mix/{seed}")
    stream = philly_like.generate(jobs, gpus, load, seed)
    demands = {(model, size): _demand(model, size) for model in MODELS for size in SIZES}
    return Trace(tuple(_changed(each, chance, demands) for each in stream.jobs))


SIZES = tuple(size for size, _ in SIZE_MIX)


def _demand(model: PackedModel, size: int) -> Demand:
    return Demand(Shape(size, memory=model.memory_gib * GIB), size, size)


def _changed(
    traced: TracedJob, chance: Random, demands: dict[tuple[PackedModel, int], Demand]
) -> TracedJob:
    model, stays = chance.choice(MODELS), chance.random() < GANGS_KEPT
    size = traced.job.demand.nominal.count if stays else 1
    job = replace(
        traced.job,
        model=model.name,
        demand=demands[model, size],
        gpu_util_ppm=round(model.busy * NOMINAL),
    )
    return replace(traced, job=job)
