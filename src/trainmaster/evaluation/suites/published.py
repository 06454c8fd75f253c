"""The suite that results are published from: four tracks, sweeps, papers' experiments, ablations."""

from __future__ import annotations

from functools import partial

from trainmaster.evaluation import one_gpu_mix
from trainmaster.evaluation.suite import (
    Conditions,
    Contender,
    Experiment,
    Generated,
    Suite,
    SyntheticTrace,
    Workload,
    WorkloadChanges,
)
from trainmaster.evaluation.suites import eight_models, synthetic_traces
from trainmaster.evaluation.suites.contenders import (
    BEST_ORDERING,
    LAS,
    ORDERING,
    OURS,
    altered,
    named,
)
from trainmaster.evaluation.suites.philly_traces import (
    PHILLY_1K,
    VIRTUAL_CLUSTERS,
    Split,
    philly_1k,
    virtual_clusters,
)

SEEDS = tuple(range(101, 111))
"""Paired: each seed is the same trace for every contender. No default was chosen on them."""
IDEAL = Conditions("ideal", "ideal")
RIGID = WorkloadChanges(rigid=True, first_attempts=True)
HALF_ELASTIC = WorkloadChanges(elastic=0.5, first_attempts=True)
JOBS = 800
FEWER_JOBS = 400
SHAPES = {"16x4": "16 nodes of 4 GPUs", "8x8": "8 nodes of 8 GPUs", "4x8x4": "4 racks of 8x4 GPUs"}


def stream(name: str, load: float, cluster: str, jobs: int = JOBS, title: str = "") -> Workload:
    """Rigid Philly-like jobs."""
    return Workload(name, Generated(jobs, load, changes=RIGID), cluster, SEEDS, title=title)


# -- the four tracks: order alone; with locality and switching; with packing; with elastic jobs ---------

ORDERED = tuple(
    stream(f"generated {shape}", load, shape, title=f"{gpus} GPUs at a load of {load}")
    for shape, gpus, load in (("8x4", 32, 0.8), ("8x8", 64, 0.9), ("16x8", 128, 1.0))
)
"""Without distances only the number of GPUs counts: the more there are, the less they queue."""
PLACED = tuple(stream(f"generated {shape}", 0.9, shape, title=SHAPES[shape]) for shape in SHAPES)
REAL = (PHILLY_1K, *(each.workload() for each in VIRTUAL_CLUSTERS))

order = partial(Experiment, track="order", conditions=(IDEAL,), contenders=ORDERING)
ORDER = (
    order(
        name="order-generated",
        title="Order alone, Philly-like jobs",
        question="Which policy makes jobs wait least when GPUs are all alike and switching is free?",
        workloads=ORDERED,
    ),
    order(
        name="order-philly",
        title="Order alone, jobs of Philly",
        question="Does the same hold for the jobs of a real cluster, with their bursts?",
        workloads=REAL,
    ),
)

placement = partial(Experiment, track="placement")
PLACEMENT = (
    placement(
        name="placement-generated",
        title="With locality and the cost of switching, Philly-like jobs",
        question="Which policy is best when distance slows jobs down and switching costs time?",
        workloads=PLACED,
        contenders=ORDERING,
    ),
    placement(
        name="placement-philly",
        title="With locality and the cost of switching, jobs of Philly",
        question="And for the jobs of a real cluster, whose models are unknown?",
        workloads=REAL,
        contenders=named(
            "trainmaster, las, tiresias-l tuned, tiresias-g tuned, gittins global,"
            " gittins by class, qssf, srsf"
        ),
    ),
)

ASSIGNED = WorkloadChanges(
    models=tuple(model.name for model in one_gpu_mix.MODELS),
    memory_gib=tuple(model.memory_gib for model in one_gpu_mix.MODELS),
    gpu_util=tuple(model.busy for model in one_gpu_mix.MODELS),
)
"""Models, memory and utilisation are drawn separately: Philly's traces do not record them."""
ONE_GPU_MIX_STREAM = Workload(
    "one-GPU mix 2x8",
    Generated(FEWER_JOBS, 0.95, "one-gpu-mix", WorkloadChanges(first_attempts=True)),
    "2x8",
    SEEDS,
    title="nine of ten on one GPU",
)

packing = partial(Experiment, track="packing")
PACKING = (
    packing(
        name="packing",
        title="With packing",
        question="What do small jobs gain from sharing GPUs while a queue exists?",
        workloads=(ONE_GPU_MIX_STREAM,),
        contenders=named(
            "trainmaster, las, tiresias-l tuned, tiresias-g tuned, gittins by class, qssf,"
            " gandiva, antman, big-brain, srsf"
        ),
    ),
    packing(
        name="packing-philly",
        title="With packing, jobs of Philly with models drawn at random",
        question="What could the jobs of a real cluster gain, if they trained these models?",
        workloads=(philly_1k(ASSIGNED), *virtual_clusters("6214e9", "6c71a0", changes=ASSIGNED)),
        contenders=named(
            "trainmaster, las, tiresias-l tuned, gittins by class, qssf, antman, srsf"
        ),
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

elastic = partial(Experiment, track="elastic")
ELASTIC = (
    elastic(
        name="elastic",
        title="With elastic jobs",
        question="What do jobs gain that may shrink to a quarter and grow to four times their GPUs?",
        workloads=HALF_ELASTIC_STREAMS,
        contenders=named(
            "trainmaster, las, tiresias-l tuned, gittins by class, max-min, afs-l, goodput,"
            " optimus, themis, srsf"
        ),
    ),
    elastic(
        name="elastic-philly",
        title="With elastic jobs, every other job of Philly taken for one",
        question="What could the jobs of a real cluster gain, if half of them were elastic?",
        workloads=(philly_1k(HALF_ELASTIC), *virtual_clusters("7f04ca", changes=HALF_ELASTIC)),
        contenders=named(
            "trainmaster, las, tiresias-l tuned, gittins by class, max-min, afs-l, goodput, srsf"
        ),
    ),
)

# -- one thing varied at a time --------------------------------------------------------------------------

CLUSTER = "4x8"
"""Few enough GPUs that so few jobs queue."""
STREAM = stream("generated 4x8", 0.9, CLUSTER, FEWER_JOBS)
PROFILED = {"base": "default", "profiling_s": 40}
"""Policies that are told how fast elastic jobs are on several sizes pay for measuring it (docs/perf.md)."""
sweep = partial(Experiment, track="sweep", workloads=(STREAM,), contenders=BEST_ORDERING)

SWEEPS = (
    sweep(
        name="load",
        title="Load",
        question="How does the difference between policies grow with the load?",
        workloads=tuple(
            stream(f"load {load:.1f}", load, CLUSTER, FEWER_JOBS)
            for load in (0.5, 0.7, 0.9, 1.0, 1.2)
        ),
        conditions=(IDEAL,),
    ),
    sweep(
        name="switch-cost",
        title="Cost of switching",
        question="What is left of preemption when each switch costs seconds to minutes?",
        conditions=tuple(
            Conditions(f"switch cost {cost} s", {"base": "ideal", "switch": {"resume_s": cost}})
            for cost in (0, 10, 60, 300)
        ),
        contenders=(*BEST_ORDERING, *named("fifo")),
    ),
    sweep(
        name="estimates",
        title="Error of estimates",
        question="What are estimates of run times worth when they are wrong by up to this much?",
        workloads=(
            Workload("half elastic 2x8", Generated(200, 0.9, changes=HALF_ELASTIC), "2x8", SEEDS),
        ),
        conditions=(
            Conditions("error 0", PROFILED, "exact"),
            *(Conditions(f"error {error}", PROFILED, f"noisy:{error}") for error in (0.2, 0.5, 1)),
        ),
        contenders=named("trainmaster, las, fifo easy, afs-l, optimus, srsf"),
    ),
    sweep(
        name="packing-table",
        title="Error of the packing table",
        question="What remains of packing when the table of speeds is wrong by up to this much?",
        workloads=(ONE_GPU_MIX_STREAM,),
        conditions=tuple(
            Conditions(f"table error {error}", {"base": "default", "table_error": error})
            for error in (0, 0.2, 0.4)
        ),
        contenders=named("trainmaster, las, antman, big-brain, srsf"),
    ),
    sweep(
        name="thresholds",
        title="Thresholds of Tiresias-L",
        question="How much depends on the limit between its queues?",
        workloads=tuple(stream(f"load {load}", load, CLUSTER, FEWER_JOBS) for load in (0.9, 1.2)),
        conditions=(IDEAL,),
        contenders=(
            *(
                Contender(f"tiresias-l {limit}", "tiresias-l", {"thresholds_gpu_s": limit})
                for limit in ("600", "3600", "18000", "57600", "230400")
            ),
            *named("trainmaster, las, srsf"),
        ),
    ),
    sweep(
        name="failures",
        title="Failing nodes",
        question="Which policy suffers most when nodes fail at this interval and are down for four hours?",
        conditions=tuple(
            Conditions(
                f"node MTBF {hours} h",
                {"base": "default", "node_failures": {"mtbf_h": hours, "repair_h": 4}},
            )
            for hours in (100, 300, 1_000, 3_000)
        ),
    ),
    sweep(
        name="cluster-size",
        title="Size of the cluster",
        question="Does the order of the policies change with the number of GPUs?",
        workloads=tuple(
            stream(f"nodes of eight, {8 * nodes} GPUs", 0.9, f"{nodes}x8", FEWER_JOBS)
            for nodes in (2, 4, 8, 16)
        ),
    ),
    sweep(
        name="node-shape",
        title="Shape of the nodes",
        question="Does it change with the number of GPUs in a node?",
        workloads=tuple(
            stream(f"32 GPUs in nodes of {gpus}", 0.9, f"{32 // gpus}x{gpus}", FEWER_JOBS)
            for gpus in (2, 4, 8, 16)
        ),
    ),
)

# -- experiments like those of the published systems, each on a workload like its paper's ----------------


def paper_trace(name: str, trace: str, cluster: str, seeds: tuple[int, ...] = SEEDS) -> Workload:
    """Measured from the first job on, as in the papers."""
    return Workload(name, SyntheticTrace(trace), cluster, seeds, warm_up=0)


def factors(label: str, **settings: str) -> tuple[Contender, ...]:
    """Big Brain with one to four jobs on a GPU."""
    return tuple(
        Contender(f"{label} {factor}", "big-brain", {"concurrency": str(factor), **settings})
        for factor in (1, 2, 3, 4)
    )


BIG_BRAIN_STREAM = (
    paper_trace("saturating stream", "big-brain-stream", synthetic_traces.BIG_BRAIN_CLUSTER),
)
SHARING_LAWS = (
    Conditions("linear law", {"base": "ideal", "sharing": {"law": "linear"}}),
    Conditions("H200 law", {"base": "ideal", "sharing": {"law": "h200"}}),
)

paper = partial(Experiment, track="paper")
PAPERS = (
    paper(
        name="elastic-shares",
        title="512 jobs of 8 models on 512 GPUs",
        question="Static shares, first come first served, against dynamic ones (KAIST).",
        workloads=(paper_trace("eight models", "eight-models-512", eight_models.CLUSTER),),
        conditions=(
            Conditions(
                "switching and distance cost",
                {"base": "default", "neighbours": False, "elastic": eight_models.curves()},
                "exact",
            ),
        ),
        contenders=named("fifo, fifo skip, max-min, trainmaster"),
        baseline="fifo",
    ),
    paper(
        name="concurrency",
        title="Concurrency factor",
        question=(
            "How many jobs of a quarter of a GPU should share one (Big Brain, Figure 5)? By the linear law"
            " sharing itself gains nothing: what falls with the factor is how much one job that is split"
            " over both GPUs slows its neighbours down. The next experiment is the same without splitting."
        ),
        workloads=BIG_BRAIN_STREAM,
        conditions=SHARING_LAWS,
        contenders=factors("concurrency"),
        baseline="concurrency 1",
    ),
    paper(
        name="concurrency-unsplit",
        title="Concurrency factor without splitting",
        question="The same, with whole jobs only: is sharing worth anything by itself?",
        workloads=BIG_BRAIN_STREAM,
        conditions=SHARING_LAWS,
        contenders=factors("unsplit", split="off"),
        baseline="unsplit 1",
    ),
    paper(
        name="tiresias-testbed",
        title="480 jobs on 60 GPUs",
        question="Is Tiresias far better than YARN's capacity scheduler, and near SRTF, in every bin?",
        workloads=(paper_trace("tiresias-480", "tiresias-480", synthetic_traces.TIRESIAS_CLUSTER),),
        contenders=named("yarn-cs, srtf, tiresias-l, tiresias-g, gandiva, trainmaster"),
        baseline="yarn-cs",
    ),
    paper(
        name="gandiva-six",
        title="Six jobs on four GPUs",
        question="Do time-slices give six equal jobs two thirds of a GPU each (Gandiva)?",
        workloads=(
            paper_trace("six on four", "gandiva-six", synthetic_traces.GANDIVA_CLUSTER, (0,)),
        ),
        conditions=(IDEAL,),
        contenders=named("fifo, gandiva"),
        baseline="fifo",
    ),
    paper(
        name="philly-delays",
        title="Why jobs wait, by size",
        question="Do large jobs wait for locality and small ones for their share (Philly, section 3)?",
        workloads=(
            Workload("generated 16x8", Generated(800, 0.9), "16x8", SEEDS, title="ten queues"),
        ),
        contenders=named("philly, fair"),
        baseline="fair",
    ),
)

# -- what each part of our own policy is worth: the same without it --------------------------------------
# Two parts have no place here: fair shares need stated queues, and deadlines need jobs that have some.

FOR_TUNING = tuple(each.workload() for each in VIRTUAL_CLUSTERS if each.split is Split.TUNE)
ablation = partial(Experiment, track="ablation", baseline="trainmaster")

ABLATIONS = (
    ablation(
        name="ablation-order",
        title="Parts that order and place",
        question="What is each part worth?",
        workloads=(STREAM, PHILLY_1K, *FOR_TUNING),
        contenders=(
            OURS,
            altered("without learning", "learn", "off"),
            altered("without history", "history", "off"),
            altered("without siblings", "siblings", "off"),
            altered("without a cap", "cap", "0"),
            altered("with hysteresis", "hysteresis", "0.65"),
            altered("without charged switches", "charge_switches", "off"),
            altered("without a least run", "min_run_s", "0"),
            altered("without guard", "guard_ratio", "0"),
            altered("without locality", "locality", "off"),
            LAS,
        ),
    ),
    ablation(
        name="ablation-packing",
        title="Packing",
        question="What is sharing GPUs worth, side by side and by turns?",
        workloads=(ONE_GPU_MIX_STREAM,),
        contenders=(
            OURS,
            altered("without packing", "packing", "off"),
            altered("packing by turns", "packing", "time"),
            LAS,
        ),
    ),
    ablation(
        name="ablation-elastic",
        title="Growing",
        question="What is it worth to grow elastic jobs into idle GPUs?",
        workloads=(HALF_ELASTIC_STREAMS[0],),
        contenders=(OURS, altered("without growing", "grow", "off"), LAS),
    ),
)

SUITE = Suite(
    name="published",
    title="Scheduling policies for deep-learning clusters, compared",
    experiments=(*ORDER, *PLACEMENT, *PACKING, *ELASTIC, *SWEEPS, *PAPERS, *ABLATIONS),
)
