"""One thing varied at a time: load, cost of switching, what is known, thresholds, failures, clusters."""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.evaluation.suite import Conditions, Contender, Experiment, Generated, Workload
from trainmaster.evaluation.suites import contenders as who
from trainmaster.evaluation.suites.tracks import (
    DEFAULT,
    HALF_ELASTIC,
    IDEAL,
    ONE_GPU_MIX_STREAM,
    SEEDS,
    stream,
)

JOBS = 400
SMALL = 200
CLUSTER = "4x8"
"""Few enough GPUs that so few jobs queue."""

STREAM = stream("generated 4x8", 0.9, CLUSTER, JOBS)

LOADS = Experiment(
    name="load",
    title="Load",
    question="How does the difference between policies grow with the load?",
    track="sweep",
    workloads=tuple(
        stream(f"load {load:.1f}", load, CLUSTER, JOBS) for load in (0.5, 0.7, 0.9, 1.0, 1.2)
    ),
    conditions=(IDEAL,),
    contenders=who.BEST_ORDERING,
    baseline="las",
)

SWITCHING = Experiment(
    name="switch-cost",
    title="Cost of switching",
    question="What is left of preemption when each change of hands costs seconds to minutes?",
    track="sweep",
    workloads=(STREAM,),
    conditions=tuple(
        Conditions(f"switch cost {cost} s", {"base": "ideal", "switch": {"resume_s": cost}})
        for cost in (0, 10, 60, 300)
    ),
    contenders=(*who.BEST_ORDERING, who.FIFO),
    baseline="las",
)

PROFILED: Mapping[str, object] = {"base": "default", "profiling_s": 40}
"""Who is told how fast elastic jobs are on several sizes pays for measuring it (docs/perf.md)."""

ESTIMATES = Experiment(
    name="estimates",
    title="Error of estimates",
    question="What are estimates of run times worth when they are wrong by up to so much?",
    track="sweep",
    workloads=(
        Workload("half elastic 2x8", Generated(SMALL, 0.9, changes=HALF_ELASTIC), "2x8", SEEDS),
    ),
    conditions=(
        Conditions("error 0", PROFILED, "exact"),
        *(Conditions(f"error {error}", PROFILED, f"noisy:{error}") for error in (0.2, 0.5, 1)),
    ),
    contenders=(who.OURS, who.LAS, who.EASY, who.AFS_L, who.OPTIMUS, who.SRSF),
    baseline="las",
)

PACKING_TABLE = Experiment(
    name="packing-table",
    title="Error of the packing table",
    question="What remains of packing when the table of speeds is wrong by up to so much?",
    track="sweep",
    workloads=(ONE_GPU_MIX_STREAM,),
    conditions=tuple(
        Conditions(f"table error {error}", {"base": "default", "table_error": error})
        for error in (0, 0.2, 0.4)
    ),
    contenders=(who.OURS, who.LAS, who.ANTMAN, who.BIG_BRAIN, who.SRSF),
    baseline="las",
)

THRESHOLDS = Experiment(
    name="thresholds",
    title="Thresholds of Tiresias-L",
    question="How much depends on the limit between its queues?",
    track="sweep",
    workloads=tuple(stream(f"load {load}", load, CLUSTER, JOBS) for load in (0.9, 1.2)),
    conditions=(IDEAL,),
    contenders=(
        *(
            Contender(f"tiresias-l {limit}", "tiresias-l", {"thresholds_gpu_s": limit})
            for limit in ("600", "3600", "18000", "57600", "230400")
        ),
        *(who.OURS, who.LAS, who.SRSF),
    ),
    baseline="las",
)

FAILURES = Experiment(
    name="failures",
    title="Failing nodes",
    question="Who suffers most when nodes fail every so many hours and are away for four?",
    track="sweep",
    workloads=(STREAM,),
    conditions=tuple(
        Conditions(
            f"node MTBF {hours} h",
            {"base": "default", "node_failures": {"mtbf_h": hours, "repair_h": 4}},
        )
        for hours in (100, 300, 1_000, 3_000)
    ),
    contenders=who.BEST_ORDERING,
    baseline="las",
)

CLUSTER_SIZE = Experiment(
    name="cluster-size",
    title="Size of the cluster",
    question="Does the order of the policies change with the number of GPUs?",
    track="sweep",
    workloads=tuple(
        stream(f"nodes of eight, {8 * nodes} GPUs", 0.9, f"{nodes}x8", JOBS)
        for nodes in (2, 4, 8, 16)
    ),
    conditions=(DEFAULT,),
    contenders=who.BEST_ORDERING,
    baseline="las",
)

NODE_SHAPE = Experiment(
    name="node-shape",
    title="Shape of the nodes",
    question="Does it change with the number of GPUs in a node?",
    track="sweep",
    workloads=tuple(
        stream(f"32 GPUs in nodes of {gpus}", 0.9, f"{32 // gpus}x{gpus}", JOBS)
        for gpus in (2, 4, 8, 16)
    ),
    conditions=(DEFAULT,),
    contenders=who.BEST_ORDERING,
    baseline="las",
)

SWEEPS = (
    *(LOADS, SWITCHING, ESTIMATES, PACKING_TABLE),
    *(THRESHOLDS, FAILURES, CLUSTER_SIZE, NODE_SHAPE),
)
