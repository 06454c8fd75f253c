"""How much of the GPUs' time each policy spends on switching by its defaults, under `--perf default`.

The share is the GPU time that runs held while they were being suspended, started again, moved or
resized, over all GPU time that runs held. Failed attempts and profiling are left out: no policy can help
them. A simulation that is not over after `--limit` CPU seconds is cut off, and counts up to there.

    python -m benchmarks.switching [--limit 240] [--only las,gandiva] [--trace crowded]
                                   [--out benchmarks/results/switching.json]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.fresh_process import in_fresh_process, write_report
from trainmaster.catalog import POLICIES, policy_class
from trainmaster.model.job import gpus
from trainmaster.model.topology import parse_shorthand
from trainmaster.model.trace import Trace, TracedJob
from trainmaster.perf.perf_model import DEFAULT
from trainmaster.sim.driver import Estimates, Scenario, Simulation
from trainmaster.sim.metrics import result_of
from trainmaster.traces.philly_like import generate

PERF = replace(DEFAULT, profiling_ms=0, has_failures=False)
MOST = 0.1
"""The largest share of the GPUs' time that a policy may spend on switching by its defaults."""


class Case(NamedTuple):
    """A trace, a cluster, and what policies are told of run times."""

    trace: Callable[[], Trace]
    cluster: str
    estimates: Estimates = Estimates()


def shortened(trace: Trace, factor: int) -> Trace:
    """The same jobs in less time: shorter by a factor, and arriving so much sooner."""

    def faster(each: TracedJob) -> TracedJob:
        job = replace(each.job, submit_ms=each.job.submit_ms // factor)
        return replace(each, job=job, service_ms=max(1, each.service_ms // factor))

    return Trace(tuple(map(faster, trace.jobs)))


def elastic(trace: Trace, every: int) -> Trace:
    """One job in `every` may have from half to twice its GPUs."""
    jobs = list(trace.jobs)
    for n in range(0, len(jobs), every):
        count, job = jobs[n].job.demand.nominal.count, jobs[n].job
        demand = gpus(count, minimum=max(1, count // 2), maximum=2 * count)
        jobs[n] = replace(jobs[n], job=replace(job, demand=demand))
    return Trace(tuple(jobs))


UNTOLD = Estimates(known=False)
CASES = {
    "crowded": Case(lambda: generate(1_435, 64, 1.3, 1), "8x8"),
    "short jobs": Case(lambda: shortened(generate(2_400, 64, 1.0, 2), 10), "8x8", UNTOLD),
    "short elastic": Case(lambda: shortened(elastic(generate(1_000, 64, 1.0, 5), 1), 10), "8x8"),
    "half elastic": Case(lambda: elastic(generate(1_000, 64, 1.1, 4), 2), "8x8", UNTOLD),
}


def measure(case: str, policy: str, limit_s: float) -> dict[str, object]:
    """One policy on one trace, in this process."""
    trace, cluster, estimates = CASES[case]
    kind = policy_class(policy)
    scenario = Scenario(trace(), parse_shorthand(cluster), cluster, PERF, estimates)
    simulation = Simulation(scenario, kind(kind.options_type()))
    start, steps = time.process_time(), 0

    def is_enough() -> bool:
        nonlocal steps
        steps += 1
        return steps % 256 == 0 and time.process_time() - start > limit_s

    simulation.run(is_enough=is_enough)
    accounts = simulation.ledger.accounts.values()
    held = sum(each.trained + each.charged for each in accounts)
    summary = result_of(simulation).summary
    return {
        "trace": case,
        "policy": policy,
        "share": round(sum(each.charged for each in accounts) / held, 4),
        "preemptions": summary.preemptions,
        "avg_jct_s": summary.avg_jct_s and round(summary.avg_jct_s),
        "is_over": not summary.unfinished,
        "cpu_s": round(time.process_time() - start, 1),
    }


def measure_all(
    cases: Sequence[str], policies: Sequence[str], limit_s: float
) -> list[dict[str, object]]:
    found = []
    for case in cases:
        for policy in policies:
            one = in_fresh_process(measure, case, policy, limit_s)
            found.append(one)
            print("  ".join(f"{key} {value}" for key, value in one.items()), flush=True)
    return found


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--limit", type=float, default=240.0, help="CPU seconds per simulation")
    reading.add_argument("--only", default=",".join(POLICIES), help="policies, with commas between")
    reading.add_argument("--trace", default=",".join(CASES), help="traces, with commas between")
    reading.add_argument("--out", type=Path)
    given = reading.parse_args()
    runs = measure_all(given.trace.split(","), given.only.split(","), given.limit)
    if given.out is not None:
        write_report(given.out, most=MOST, limit_cpu_s=given.limit, runs=runs)


if __name__ == "__main__":
    main()
