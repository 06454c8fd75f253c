"""A suite that takes seconds: enough of everything to see that comparing works."""

from __future__ import annotations

from trainmaster.evaluation.suite import (
    Conditions,
    Contender,
    ContenderRole,
    Experiment,
    Generated,
    Suite,
    SyntheticTrace,
    Workload,
    WorkloadChanges,
)

CONTENDERS = (
    Contender("fifo", "fifo"),
    Contender("las", "las"),
    Contender(
        "tiresias-l tuned",
        "tiresias-l",
        grid=({"thresholds_gpu_s": "3600"}, {"thresholds_gpu_s": "57600"}),
    ),
    Contender("trainmaster", "trainmaster", role=ContenderRole.OURS),
    Contender("srsf", "srsf", role=ContenderRole.BOUND),
)

GENERATED = Workload(
    "generated",
    Generated(60, 0.9, changes=WorkloadChanges(longest_s=4 * 3600)),
    "4x4",
    seeds=(0, 1, 2),
)

SUITE = Suite(
    name="small",
    title="A small comparison",
    experiments=(
        Experiment(
            name="order",
            title="Order alone",
            question="Which policy makes jobs wait least when GPUs are all alike and switching is free?",
            track="order",
            workloads=(GENERATED,),
            conditions=(Conditions("ideal", "ideal"),),
            contenders=CONTENDERS,
        ),
        Experiment(
            name="placement",
            title="With locality and the cost of switching",
            question="Which policy is best when placement matters and suspending costs time?",
            track="placement",
            workloads=(
                GENERATED,
                Workload("head of line", SyntheticTrace("one-large-then-small"), "2x4", warm_up=0),
            ),
            contenders=tuple(each for each in CONTENDERS if not each.grid),
        ),
    ),
)
