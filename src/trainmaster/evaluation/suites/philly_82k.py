"""All 82,247 jobs of Philly's trace: too slow for every day, so it is a separate suite."""

from __future__ import annotations

from trainmaster.evaluation.suite import (
    Conditions,
    Experiment,
    Suite,
    TraceFile,
    TraceSubset,
    Workload,
)
from trainmaster.evaluation.suites.contenders import named
from trainmaster.evaluation.suites.philly_traces import PHILLY_82K

BUSIEST_DAYS = 36

SUITE = Suite(
    name="philly-82k",
    title="All jobs of Philly",
    experiments=(
        Experiment(
            name="philly-82k",
            title="82,247 jobs, order alone",
            question="Which policy makes jobs wait least over 15 weeks of a real cluster?",
            track="order",
            workloads=(
                Workload(
                    "philly-82k 50x8",
                    TraceFile(PHILLY_82K, "philly-82k"),
                    "50x8",
                    title="all jobs on 400 GPUs",
                ),
                Workload(
                    "philly-36-days 88x8",
                    TraceFile(PHILLY_82K, "philly-82k", TraceSubset(busiest_days=BUSIEST_DAYS)),
                    "88x8",
                    title="the busiest 36 days on 704 GPUs",
                ),
            ),
            conditions=(Conditions("ideal", "ideal"),),
            contenders=named("trainmaster, las, tiresias-l tuned, gittins by class, srsf"),
        ),
    ),
)
