"""Experiments like those of the published systems, each on a workload like its paper's."""

from __future__ import annotations

from trainmaster.evaluation.suite import (
    Conditions,
    Contender,
    Crafted,
    Experiment,
    Generated,
    Workload,
)
from trainmaster.evaluation.suites import contenders as who
from trainmaster.evaluation.suites import eight_models, testbeds
from trainmaster.evaluation.suites.tracks import DEFAULT, IDEAL, SEEDS

CURVES = eight_models.curves()

ELASTIC_SHARES = Experiment(
    name="elastic-shares",
    title="512 jobs of 8 models on 512 GPUs",
    question="Static shares, first come first served, against dynamic ones (KAIST's poster).",
    track="seed",
    workloads=(
        Workload(
            "eight models",
            Crafted("eight-models-512"),
            eight_models.CLUSTER,
            SEEDS,
            warm_up=0,
        ),
    ),
    conditions=(
        Conditions(
            "switching and distance cost",
            {"base": "default", "neighbours": False, "elastic": CURVES},
            "exact",
        ),
    ),
    contenders=(who.FIFO, who.SKIP, who.MAX_MIN, who.OURS),
    baseline="fifo",
)

CONCURRENCY = Experiment(
    name="concurrency",
    title="Concurrency factor",
    question="How many jobs of a quarter of a GPU should share one (Big Brain, Figure 5)?",
    track="seed",
    workloads=(
        Workload(
            "saturating stream",
            Crafted("big-brain-stream"),
            testbeds.BIG_BRAIN_CLUSTER,
            SEEDS,
            warm_up=0,
        ),
    ),
    conditions=(
        Conditions("linear law", {"base": "ideal", "sharing": {"law": "linear"}}),
        Conditions("H200 table", {"base": "ideal", "sharing": {"law": "h200"}}),
    ),
    contenders=tuple(
        Contender(f"concurrency {factor}", "big-brain", {"concurrency": str(factor)})
        for factor in (1, 2, 3, 4)
    ),
    baseline="concurrency 1",
)

TIRESIAS = Experiment(
    name="tiresias-testbed",
    title="480 jobs on 60 GPUs",
    question="Is Tiresias far better than YARN's capacity scheduler, and near SRTF, in every bin?",
    track="seed",
    workloads=(
        Workload(
            "tiresias-480", Crafted("tiresias-480"), testbeds.TIRESIAS_CLUSTER, SEEDS, warm_up=0
        ),
    ),
    conditions=(DEFAULT,),
    contenders=(who.YARN, who.SRTF, who.TIRESIAS_L, who.TIRESIAS_G, who.GANDIVA, who.OURS),
    baseline="yarn-cs",
)

GANDIVA = Experiment(
    name="gandiva-six",
    title="Six jobs on four GPUs",
    question="Do time-slices give six equal jobs two thirds of a GPU each (Gandiva)?",
    track="seed",
    workloads=(
        Workload("six on four", Crafted("gandiva-six"), testbeds.GANDIVA_CLUSTER, warm_up=0),
    ),
    conditions=(IDEAL,),
    contenders=(who.FIFO, who.GANDIVA),
    baseline="fifo",
)

PHILLY_DELAYS = Experiment(
    name="philly-delays",
    title="Why jobs wait, by size",
    question="Do large jobs wait for locality and small ones for their share (Philly, section 3)?",
    track="seed",
    workloads=(Workload("generated 16x8", Generated(800, 0.9), "16x8", SEEDS, title="ten queues"),),
    conditions=(DEFAULT,),
    contenders=(who.PHILLY, who.FAIR),
    baseline="fair",
)

PAPERS = (ELASTIC_SHARES, CONCURRENCY, TIRESIAS, GANDIVA, PHILLY_DELAYS)
