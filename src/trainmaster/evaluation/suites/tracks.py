"""The four tracks: order alone; with locality and switching; with packing; with elastic jobs."""

from __future__ import annotations

from trainmaster.evaluation import one_gpu_mix
from trainmaster.evaluation.suite import (
    Changes,
    Conditions,
    Experiment,
    Generated,
    Workload,
)
from trainmaster.evaluation.suites import contenders as who
from trainmaster.evaluation.suites.philly_traces import (
    PHILLY_1K,
    VIRTUAL_CLUSTERS,
    philly_1k,
    virtual_clusters,
)

SEEDS = tuple(range(101, 111))
"""Paired: each seed is the same trace for every contender. None of them served to choose a default."""
IDEAL = Conditions("ideal", "ideal")
DEFAULT = Conditions("default", "default")
RIGID = Changes(rigid=True, first_attempts=True)
HALF_ELASTIC = Changes(elastic=0.5, first_attempts=True)

JOBS = 800
FEWER_JOBS = 400
SHAPES = {"16x4": "16 nodes of 4 GPUs", "8x8": "8 nodes of 8 GPUs", "4x8x4": "4 racks of 8x4 GPUs"}


def stream(name: str, load: float, cluster: str, jobs: int = JOBS, title: str = "") -> Workload:
    """Philly-like jobs that run on what they ask for."""
    return Workload(name, Generated(jobs, load, changes=RIGID), cluster, SEEDS, title=title)


ORDERED = tuple(
    stream(f"generated {shape}", load, shape, title=f"{gpus} GPUs at a load of {load}")
    for shape, gpus, load in (("8x4", 32, 0.8), ("8x8", 64, 0.9), ("16x8", 128, 1.0))
)
"""Without distances only the number of GPUs counts: the more there are, the less they queue."""
PLACED = tuple(stream(f"generated {shape}", 0.9, shape, title=SHAPES[shape]) for shape in SHAPES)
VIRTUAL = tuple(each.workload() for each in VIRTUAL_CLUSTERS)

ORDER = (
    Experiment(
        name="order-generated",
        title="Order alone, Philly-like jobs",
        question="Who lets jobs wait least when GPUs are all alike and switching is free?",
        track="order",
        workloads=ORDERED,
        conditions=(IDEAL,),
        contenders=who.ORDERING,
        baseline="las",
    ),
    Experiment(
        name="order-philly",
        title="Order alone, jobs of Philly",
        question="Does the same hold for the jobs of a real cluster, with their bursts?",
        track="order",
        workloads=(PHILLY_1K, *VIRTUAL),
        conditions=(IDEAL,),
        contenders=who.ORDERING,
        baseline="las",
    ),
)

PLACEMENT = (
    Experiment(
        name="placement-generated",
        title="With locality and the cost of switching, Philly-like jobs",
        question="Who is best when distance slows jobs down and changing hands costs time?",
        track="placement",
        workloads=PLACED,
        conditions=(DEFAULT,),
        contenders=who.ORDERING,
        baseline="las",
    ),
    Experiment(
        name="placement-philly",
        title="With locality and the cost of switching, jobs of Philly",
        question="And for the jobs of a real cluster, whose models nobody knows?",
        track="placement",
        workloads=(PHILLY_1K, *VIRTUAL),
        conditions=(DEFAULT,),
        contenders=(
            *(who.OURS, who.LAS, who.TIRESIAS_L_TUNED, who.TIRESIAS_G_TUNED),
            *(who.GITTINS, who.GITTINS_BY_CLASS, who.QSSF, who.SRSF),
        ),
        baseline="las",
    ),
)

SHARING = Changes(first_attempts=True)
ASSIGNED = Changes(
    models=tuple(model.name for model in one_gpu_mix.MODELS),
    memory_gib=tuple(model.memory_gib for model in one_gpu_mix.MODELS),
    gpu_util=tuple(model.busy for model in one_gpu_mix.MODELS),
)
"""Models, memory and idle cycles, drawn apart: no trace of Philly has them."""
ONE_GPU_MIX_STREAM = Workload(
    "one-GPU mix 2x8",
    Generated(FEWER_JOBS, 0.95, "one-gpu-mix", SHARING),
    "2x8",
    SEEDS,
    title="nine of ten on one GPU",
)

PACKING = (
    Experiment(
        name="packing",
        title="With packing",
        question="What do small jobs gain from sharing GPUs while a queue exists?",
        track="packing",
        workloads=(ONE_GPU_MIX_STREAM,),
        conditions=(DEFAULT,),
        contenders=(
            *(who.OURS, who.LAS, who.TIRESIAS_L_TUNED, who.TIRESIAS_G_TUNED),
            *(who.GITTINS_BY_CLASS, who.QSSF, who.GANDIVA, who.ANTMAN, who.BIG_BRAIN, who.SRSF),
        ),
        baseline="las",
    ),
    Experiment(
        name="packing-philly",
        title="With packing, jobs of Philly with models drawn at random",
        question="What could the jobs of a real cluster gain, if they trained these models?",
        track="packing",
        workloads=(philly_1k(ASSIGNED), *virtual_clusters("6214e9", "6c71a0", changes=ASSIGNED)),
        conditions=(DEFAULT,),
        contenders=(
            *(who.OURS, who.LAS, who.TIRESIAS_L_TUNED, who.GITTINS_BY_CLASS, who.QSSF),
            *(who.ANTMAN, who.SRSF),
        ),
        baseline="las",
    ),
)

HALF_ELASTIC_STREAMS = tuple(
    Workload(
        f"half elastic {shape}",
        Generated(FEWER_JOBS, 0.9, changes=HALF_ELASTIC),
        shape,
        SEEDS,
        title=f"every other job elastic, {SHAPES[shape]}",
    )
    for shape in ("16x4", "8x8")
)

ELASTIC = (
    Experiment(
        name="elastic",
        title="With elastic jobs",
        question="What do jobs gain that may shrink to a quarter and grow to four times their GPUs?",
        track="elastic",
        workloads=HALF_ELASTIC_STREAMS,
        conditions=(DEFAULT,),
        contenders=(
            *(who.OURS, who.LAS, who.TIRESIAS_L_TUNED, who.GITTINS_BY_CLASS, who.MAX_MIN),
            *(who.AFS_L, who.GOODPUT, who.OPTIMUS, who.THEMIS, who.SRSF),
        ),
        baseline="las",
    ),
    Experiment(
        name="elastic-philly",
        title="With elastic jobs, every other job of Philly taken for one",
        question="What could the jobs of a real cluster gain, if half of them were elastic?",
        track="elastic",
        workloads=(philly_1k(HALF_ELASTIC), *virtual_clusters("7f04ca", changes=HALF_ELASTIC)),
        conditions=(DEFAULT,),
        contenders=(
            *(who.OURS, who.LAS, who.TIRESIAS_L_TUNED, who.GITTINS_BY_CLASS, who.MAX_MIN),
            *(who.AFS_L, who.GOODPUT, who.SRSF),
        ),
        baseline="las",
    ),
)
