"""How fast the simulator is: jobs/s, events/s, memory, and time in units that compare machines.

Each measurement runs in its own process, so that its peak memory is its own. A unit is the time
that `sum(range(10**7))` takes, measured in the same process just before.

    python -m benchmarks.simulator [--quick] [--out benchmarks/results/simulator.json]
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

from benchmarks.fresh_process import in_fresh_process, write_report
from trainmaster.catalog import policy_class
from trainmaster.config.performance import BASES
from trainmaster.model.topology import parse_shorthand
from trainmaster.sim.driver import Scenario, Simulation
from trainmaster.sim.metrics import result_of
from trainmaster.traces.philly_like import generate

CLUSTER, GPUS = "8x39x8", 2_496
AIMS = {"fifo": 50.0, "srsf": 50.0, "tiresias-l": 75.0}
"""Units for 100,000 jobs at load 0.95."""


def unit_s() -> float:
    """The best of three: the machine's own speed, least disturbed."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        sum(range(10**7))
        times.append(time.perf_counter() - start)
    return min(times)


def measure(policy: str, jobs: int, load: float, perf: str, seed: int) -> dict[str, object]:
    """One run, in this process."""
    trace = generate(jobs, GPUS, load, seed)
    cls = policy_class(policy)
    scenario = Scenario(trace, parse_shorthand(CLUSTER), CLUSTER, BASES[perf], seed=seed)
    simulation = Simulation(scenario, cls(cls.options_type()))
    unit = unit_s()
    start = time.perf_counter()
    simulation.run()
    wall = time.perf_counter() - start
    summary = result_of(simulation).summary
    return {
        "policy": policy,
        "jobs": jobs,
        "load": load,
        "perf": perf,
        "wall_s": round(wall, 3),
        "unit_s": round(unit, 4),
        "units": round(wall / unit, 1),
        "jobs_per_s": round(jobs / wall),
        "events_per_s": round(summary.events / wall),
        "preemptions": summary.preemptions,
        "avg_jct_s": summary.avg_jct_s and round(summary.avg_jct_s, 3),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def measure_and_print(
    policy: str, jobs: int, load: float, perf: str, seed: int = 1
) -> dict[str, object]:
    """Measure in a fresh process, and print the figures."""
    found = in_fresh_process(measure, policy, jobs, load, perf, seed)
    print(
        f"{policy:12} {jobs:>9,} jobs  load {load:<4}  {perf:8}"
        f" {found['units']:>7} units  {found['wall_s']:>8} s  {found['peak_mib']} MiB",
        flush=True,
    )
    return found


def suite(quick: bool) -> list[dict[str, object]]:
    """The aims, then growth with jobs, with load, and under the default performance model."""
    jobs = 10_000 if quick else 100_000
    runs = [measure_and_print(policy, jobs, 0.95, "ideal") for policy in AIMS]
    runs += [measure_and_print(policy, jobs, 1.5, "ideal") for policy in AIMS]
    runs += [measure_and_print(policy, jobs // 10, 0.95, "ideal") for policy in AIMS]
    runs += [measure_and_print(policy, jobs, 0.95, "default") for policy in AIMS]
    if not quick:
        runs += [measure_and_print(policy, 10 * jobs, 0.95, "ideal") for policy in ("fifo", "srsf")]
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/simulator.json"))
    options = parser.parse_args()
    write_report(
        options.out,
        cluster=CLUSTER,
        unit="sum(range(10**7)), best of three, in the same process",
        aims_units=AIMS,
        runs=suite(options.quick),
    )


if __name__ == "__main__":
    main()
