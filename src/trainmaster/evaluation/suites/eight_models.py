"""512 jobs of 8 models (CNN, RNN, GAN) on 512 GPUs: static shares against dynamic ones.

The KAIST poster on elastic resource sharing gives neither curves nor lengths, so these are ours: jobs
ask for 4 to 64 GPUs, run for minutes to hours at that size, and arrive so that what they ask for is
`LOAD` times the cluster. Static: each gets what it asks for, first come first served. Dynamic: each
gets between one GPU and what it asks for. Nodes have four GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from trainmaster.model.job import Job, gpus
from trainmaster.model.trace import Trace, TracedJob
from trainmaster.model.units import MINUTE

JOBS = 512
CLUSTER = "128x4"
LOAD = 1.5
SIZES = (4, 8, 16, 32, 64)
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


@dataclass(frozen=True, slots=True)
class ElasticModel:
    """A model whose speed-up on n GPUs is n / (1 + serial x (n - 1)): Amdahl's law."""

    name: str
    kind: str
    serial: float

    def speedup(self, count: int) -> float:
        return count / (1 + self.serial * (count - 1))


MODELS = (
    ElasticModel("resnet50", "CNN", 0.01),
    ElasticModel("inception3", "CNN", 0.015),
    ElasticModel("googlenet", "CNN", 0.03),
    ElasticModel("vgg16", "CNN", 0.08),
    ElasticModel("alexnet", "CNN", 0.10),
    ElasticModel("deepqa", "RNN", 0.06),
    ElasticModel("lstm-lm", "RNN", 0.12),
    ElasticModel("dcgan", "GAN", 0.04),
)


def curves() -> dict[str, object]:
    """The models' speeds by GPUs, as the `elastic` of a perf file says them."""
    tables: Mapping[str, dict[int, float]] = {
        model.name: {count: model.speedup(count) for count in COUNTS} for model in MODELS
    }
    return {"models": tables}


def trace(jobs: int, cluster_gpus: int, seed: int, largest: int = SIZES[-1]) -> Trace:
    """Jobs of random models and sizes; lengths lognormal around half an hour."""
    chance = Random(f"seed002/{seed}")
    sizes = [size for size in SIZES if size <= largest]
    drawn = [
        (
            chance.choice(MODELS).name,
            chance.choice(sizes),
            round(min(max(chance.lognormvariate(0, 1) * 30, 2), 600) * MINUTE),
        )
        for _ in range(jobs)
    ]
    area = sum(size * length for _, size, length in drawn)
    gap = area / (LOAD * cluster_gpus * jobs)
    found, now = [], 0.0
    for index, (model, size, length) in enumerate(drawn):
        job = Job(f"j{index:03}", round(now), gpus(size, minimum=1), model=model)
        found.append(TracedJob(job, length))
        now += chance.expovariate(1 / gap)
    return Trace(tuple(found))


def make_trace(cluster_gpus: int, seed: int) -> Trace:
    return trace(JOBS, cluster_gpus, seed)
