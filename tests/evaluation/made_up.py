"""Made-up scores with the shapes of real ones: contenders differ by a factor, seeds by chance."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace

from trainmaster.evaluation.score import Score, ScoredTrial, SizeDelay, Skipped, SuiteResult
from trainmaster.evaluation.suite import (
    Conditions,
    Contender,
    ContenderRole,
    Experiment,
    Generated,
    Suite,
    TraceFile,
    Trial,
    Workload,
)

FACTORS: Mapping[str, float] = {
    "trainmaster": 0.78,
    "fifo": 9.0,
    "fifo easy": 5.2,
    "las": 1.0,
    "tiresias-l": 1.6,
    "tiresias-l tuned": 0.92,
    "gittins": 0.95,
    "gittins by class": 0.91,
    "qssf": 1.3,
    "max-min": 1.5,
    "afs-l": 1.1,
    "srsf": 0.55,
    "without guard": 0.77,
    "without classes": 0.84,
}
CONTENDERS = (
    Contender("trainmaster", "trainmaster", role=ContenderRole.OURS),
    Contender("fifo", "fifo"),
    Contender("fifo easy", "fifo", {"backfill": "easy"}),
    Contender("las", "las"),
    Contender("tiresias-l", "tiresias-l"),
    Contender(
        "tiresias-l tuned",
        "tiresias-l",
        grid=({"thresholds_gpu_s": "3600"}, {"thresholds_gpu_s": "57600"}),
    ),
    Contender("gittins", "gittins"),
    Contender("gittins by class", "gittins", {"by": "class"}),
    Contender("max-min", "max-min"),
    Contender("srsf", "srsf", role=ContenderRole.BOUND),
)
ABLATIONS = (
    Contender("without guard", "trainmaster", {"guard": "off"}, role=ContenderRole.ABLATION),
    Contender("without classes", "trainmaster", {"classes": "off"}, role=ContenderRole.ABLATION),
)
SEEDS = tuple(range(10))
IDEAL = Conditions("ideal", "ideal")


def score(excess_s: float = 1_000.0, floor_s: float = 4_000.0, **changes: object) -> Score:
    """A score whose other measures follow from its excess."""
    jct = floor_s + excess_s
    plain = Score(
        jobs=800,
        load=0.903,
        window_load=0.91,
        is_transient=False,
        gpus=64,
        mean_jct_s=jct,
        passed_jct_s=0.9 * jct,
        floor_s=floor_s,
        excess_s=excess_s,
        p50_s=0.2 * jct,
        p95_s=4 * jct,
        p99_s=9 * jct,
        max_s=30 * jct,
        std_s=2 * jct,
        queue_s=0.5 * max(excess_s, 0.0),
        makespan_s=200_000.0,
        gpu_util=0.84,
        gpu_hours_wasted=excess_s / 900,
        preemptions=int(excess_s / 7),
        migrations=3,
        rho_p99=1.0 + excess_s / 2_000,
        rho_over_1=min(1.0, excess_s / 20_000),
        rho_max=2.0 + excess_s / 500,
        rejected=0,
        unfinished=0,
        lower_bound_s=None,
        after_arrivals=4,
        cost=None,
        chosen=None,
        tuning_jobs=0,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def made_up(suite: Suite, absent: Iterable[str] = ()) -> SuiteResult:
    """Made-up scores of a suite: each trial's excess is its contender's factor times its trace's own."""
    skipped = tuple(Skipped(each, "philly", "the file is not there") for each in absent)
    scored = [
        ScoredTrial(trial, _found(trial), wall_s=1.0)
        for trial in suite.trials()
        if trial.experiment not in set(absent)
    ]
    return SuiteResult(suite, tuple(scored), skipped)


def _found(trial: Trial) -> Score:
    trace = random.Random(f"{trial.experiment} {trial.workload.name} {trial.seed}")
    luck = random.Random(f"{trial} luck")
    load = _load(trial) * trace.uniform(0.995, 1.005)
    base = 2_500 * trace.lognormvariate(0, 0.4) * max(0.05, load - 0.35) ** 2 * 6
    size = trial.contender.settings.get("concurrency")
    factor = FACTORS.get(trial.contender.label, 0.6 + 0.2 * abs(float(size or 3) - 3))
    excess = base * factor * luck.lognormvariate(0, 0.06)
    blocks = tuple(
        excess * trace.lognormvariate(0, 0.8) * luck.uniform(0.9, 1.1) for _ in range(20)
    )
    return score(
        round(excess, 3),
        load=load,
        is_transient=load >= 1,
        chosen={"thresholds_gpu_s": "57600"} if trial.contender.grid else None,
        excess_blocks_s=blocks if isinstance(trial.workload.source, TraceFile) else (),
        delays=tuple(
            SizeDelay(size, 10 * place * excess, excess * place**3, 200 * excess)
            for place, size in enumerate(("1 GPU", "2-4 GPU", "5-8 GPU", ">8 GPU"))
        ),
    )


def _load(trial: Trial) -> float:
    source = trial.workload.source
    return source.load if isinstance(source, Generated) and source.load else 0.93


def order(**changes: object) -> Experiment:
    plain = Experiment(
        name="order",
        title="Order alone",
        question="Which policy makes jobs wait least when GPUs are all alike and switching is free?",
        track="order",
        workloads=(
            Workload("generated", Generated(800, 0.9), "16x4", SEEDS),
            Workload("philly1k", TraceFile("philly/1k.csv"), "16x8", title="Philly, 1,000 jobs"),
        ),
        conditions=(IDEAL,),
        contenders=CONTENDERS,
        baseline="las",
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


PLACEMENT = order(
    name="placement",
    title="With locality and the cost of switching",
    question="Which policy is best when placement matters and suspending costs time?",
    track="placement",
    conditions=(Conditions("default"),),
    workloads=tuple(
        Workload(
            f"vc{n}", TraceFile(f"philly/vc{n}.csv"), "8x8", title=f"Philly, virtual cluster {n}"
        )
        for n in range(8)
    ),
)
LOADS = order(
    name="load",
    title="Load",
    question="From which load on does the order of jobs matter?",
    track="sweep",
    workloads=tuple(
        Workload(f"load {load}", Generated(800, load), "16x4", SEEDS)
        for load in (0.5, 0.7, 0.9, 1.0, 1.2)
    ),
)
SWITCHING = order(
    name="switching",
    title="Cost of switching",
    question="How much does a suspension have to cost before preemption stops paying?",
    track="sweep",
    workloads=(Workload("generated", Generated(800, 0.9), "16x4", SEEDS),),
    conditions=tuple(Conditions(f"switch cost {s} s", {"switch_s": s}) for s in (0, 10, 60, 300)),
)
CONCURRENCY = order(
    name="concurrency",
    title="Concurrency factor",
    question="How many jobs should share a GPU?",
    track="paper",
    workloads=(Workload("eight models", Generated(200, 0.8), "4x4", SEEDS),),
    contenders=tuple(
        Contender(f"big-brain, {n} per GPU", "big-brain", {"concurrency": str(n)})
        for n in range(1, 7)
    ),
    baseline="big-brain, 1 per GPU",
)
PARTS = order(
    name="parts",
    title="Parts of our policy",
    question="What is each part worth?",
    track="ablation",
    contenders=(CONTENDERS[0], *ABLATIONS),
    baseline="trainmaster",
)
SUITE = Suite(
    "made-up",
    "A made-up comparison",
    (order(), PLACEMENT, LOADS, SWITCHING, CONCURRENCY, PARTS),
)
