"""What each part of our own policy is worth: the same without it.

Two parts have no place here: fair shares need stated queues, and deadlines need jobs that have some.
"""

from __future__ import annotations

from trainmaster.evaluation.suite import Experiment, Workload
from trainmaster.evaluation.suites.contenders import LAS, OURS, altered
from trainmaster.evaluation.suites.philly_traces import PHILLY_1K, VIRTUAL_CLUSTERS, Split
from trainmaster.evaluation.suites.sweeps import STREAM
from trainmaster.evaluation.suites.tracks import DEFAULT, HALF_ELASTIC_STREAMS, ONE_GPU_MIX_STREAM

ORDERING_PARTS = (
    altered("without learning", "learn", "off"),
    altered("without history", "history", "off"),
    altered("without siblings", "siblings", "off"),
    altered("without a cap", "cap", "0"),
    altered("without hysteresis", "hysteresis", "1"),
    altered("without charged switches", "charge_switches", "off"),
    altered("without a least run", "min_run_s", "0"),
    altered("without guard", "guard_ratio", "0"),
    altered("without locality", "locality", "off"),
)
PACKING_PARTS = (
    altered("without packing", "packing", "off"),
    altered("packing by turns", "packing", "time"),
)
ELASTIC_PARTS = (altered("without growing", "grow", "off"),)

FOR_TUNING: tuple[Workload, ...] = tuple(
    each.workload() for each in VIRTUAL_CLUSTERS if each.split is Split.TUNE
)

ABLATIONS = (
    Experiment(
        name="ablation-order",
        title="Parts that order and place",
        question="What is each part worth?",
        track="ablation",
        workloads=(STREAM, PHILLY_1K, *FOR_TUNING),
        conditions=(DEFAULT,),
        contenders=(OURS, *ORDERING_PARTS, LAS),
        baseline="trainmaster",
    ),
    Experiment(
        name="ablation-packing",
        title="Packing",
        question="What is sharing GPUs worth, side by side and by turns?",
        track="ablation",
        workloads=(ONE_GPU_MIX_STREAM,),
        conditions=(DEFAULT,),
        contenders=(OURS, *PACKING_PARTS, LAS),
        baseline="trainmaster",
    ),
    Experiment(
        name="ablation-elastic",
        title="Growing",
        question="What is it worth to grow elastic jobs into idle GPUs?",
        track="ablation",
        workloads=(HALF_ELASTIC_STREAMS[0],),
        conditions=(DEFAULT,),
        contenders=(OURS, *ELASTIC_PARTS, LAS),
        baseline="trainmaster",
    ),
)
