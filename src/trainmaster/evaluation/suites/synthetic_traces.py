"""Traces made for one experiment, by name: functions of the cluster's GPUs and the seed.

Most resemble the workloads of published systems, as far as those are public.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import exp, log
from random import Random

from trainmaster.evaluation.score import SHORT_S
from trainmaster.evaluation.suite import SuiteError
from trainmaster.evaluation.suites import eight_models
from trainmaster.model.job import Demand, Job, Shape, gpus
from trainmaster.model.trace import Trace, TracedJob
from trainmaster.model.units import GIB, HOUR, MINUTE, NOMINAL, SECOND

# -- Tiresias: 480 jobs on 60 GPUs -------------------------------------------------------------------

TIRESIAS_JOBS = 480
TIRESIAS_CLUSTER = "15x4"
TIRESIAS_BINS = {
    "small-short": (0.635, (1, 2), (121.0, SHORT_S)),
    "small-long": (0.125, (1, 2), (SHORT_S, 7_200.0)),
    "large-short": (0.165, (4, 8), (121.0, SHORT_S)),
    "large-long": (0.075, (4, 8), (SHORT_S, 7_200.0)),
}
"""Part of the jobs, their sizes, and their shortest and longest run time in seconds."""
TIRESIAS_GAP_S = 30.0
TIRESIAS_MODELS = (
    *("vgg19", "vgg16", "vgg11", "alexnet", "resnet152"),
    *("resnet101", "resnet50", "inception4", "inception3", "googlenet"),
)


def tiresias_480(cluster_gpus: int, seed: int) -> Trace:
    """480 jobs of ten CNNs, minutes to two hours long, one every 30 s, in the testbed's four bins.

    Run times are drawn evenly on a log scale inside a bin: only the bins' parts are published.
    """
    chance = Random(f"tiresias/{seed}")
    drawn = []
    for part, sizes, (shortest, longest) in TIRESIAS_BINS.values():
        for _ in range(round(part * TIRESIAS_JOBS)):
            length = exp(chance.uniform(log(shortest + 1), log(longest)))
            drawn.append((chance.choice(sizes), round(length * SECOND)))
    chance.shuffle(drawn)
    jobs, now = [], 0.0
    for index, (size, length) in enumerate(drawn):
        model = chance.choice(TIRESIAS_MODELS)
        jobs.append(TracedJob(Job(f"t{index:03}", round(now), gpus(size), model=model), length))
        now += chance.expovariate(1 / (TIRESIAS_GAP_S * SECOND))
    return Trace(tuple(jobs))


# -- Gandiva: six jobs on four GPUs ------------------------------------------------------------------

GANDIVA_CLUSTER = "1x4"


def gandiva_six(cluster_gpus: int, seed: int) -> Trace:
    """Half as many equal one-GPU jobs again as there are GPUs, all at once, an hour each."""
    count = cluster_gpus * 3 // 2
    return Trace(tuple(TracedJob(Job(f"g{n}", 0, gpus(1)), HOUR) for n in range(count)))


# -- Big Brain: a stream that keeps two GPUs busy ----------------------------------------------------

BIG_BRAIN_CLUSTER = "1x2"
BIG_BRAIN_SPAN_S = 30.0
BIG_BRAIN_PER_S = 10.0
"""Arrivals per second: more than two GPUs get done by any concurrency up to 4 and any law here."""
BIG_BRAIN_UTIL = 0.25


def big_brain_stream(cluster_gpus: int, seed: int) -> Trace:
    """Poisson arrivals for 30 s of jobs that last a second alone and keep a quarter of a GPU busy."""
    chance = Random(f"big-brain/{seed}")
    demand = Demand(Shape(1, memory=2 * GIB), 1, 1)
    jobs: list[TracedJob] = []
    now = 0.0
    while now < BIG_BRAIN_SPAN_S:
        util = round(BIG_BRAIN_UTIL * NOMINAL)
        job = Job(f"b{len(jobs):03}", round(now * SECOND), demand, gpu_util_ppm=util)
        jobs.append(TracedJob(job, SECOND))
        now += chance.expovariate(BIG_BRAIN_PER_S)
    return Trace(tuple(jobs))


# -- by name -------------------------------------------------------------------------------------------

TraceMaker = Callable[[int, int], Trace]
"""(GPUs of the cluster, seed) -> trace."""


def one_large_then_small(cluster_gpus: int, seed: int) -> Trace:
    """A job that fills the cluster for an hour, and short ones right behind it."""
    large = TracedJob(Job("large", 0, gpus(cluster_gpus)), 60 * MINUTE)
    small = [TracedJob(Job(f"small{n}", n * MINUTE, gpus(1)), MINUTE) for n in range(1, 9 + seed)]
    return Trace((large, *small))


TRACE_MAKERS: Mapping[str, TraceMaker] = {
    "one-large-then-small": one_large_then_small,
    "eight-models-512": eight_models.make_trace,
    "tiresias-480": tiresias_480,
    "gandiva-six": gandiva_six,
    "big-brain-stream": big_brain_stream,
}


def trace_maker(name: str) -> TraceMaker:
    if name not in TRACE_MAKERS:
        raise SuiteError(
            f"there is no synthetic trace {name!r}; there are {', '.join(TRACE_MAKERS)}."
        )
    return TRACE_MAKERS[name]
