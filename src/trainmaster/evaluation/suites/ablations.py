"""What each part of our own policy is worth: the same without it."""

from __future__ import annotations

from trainmaster.evaluation.suite import Experiment, Workload
from trainmaster.evaluation.suites.contenders import LAS, OURS, without
from trainmaster.evaluation.suites.philly_traces import PHILLY_1K, VIRTUAL_CLUSTERS, Split
from trainmaster.evaluation.suites.sweeps import STREAM
from trainmaster.evaluation.suites.tracks import DEFAULT

PARTS = (
    without("learning", "learn", "off"),
    without("hysteresis", "keep", "1"),
    without("charged switches", "charge_switches", "off"),
    without("guard", "guard_ratio", "0"),
    without("reservations", "reserve", "off"),
    without("memory of shares", "half_life_s", "0"),
    without("a least run", "min_run_s", "0"),
)

REAL: tuple[Workload, ...] = tuple(
    each.workload() for each in VIRTUAL_CLUSTERS if each.split is Split.TUNE
)

ABLATIONS = (
    Experiment(
        name="ablation-order",
        title="Parts that order and place",
        question="What is each part worth?",
        track="ablation",
        workloads=(STREAM, PHILLY_1K, *REAL),
        conditions=(DEFAULT,),
        contenders=(OURS, *PARTS, LAS),
        baseline="trainmaster",
    ),
)
