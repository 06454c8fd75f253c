"""How fast the simulator is: jobs/s, events/s, memory, and time in units that compare machines.

Each measurement runs in a process of its own, so that its peak memory is its own. A unit is the time
that `sum(range(10**7))` takes, measured in the same process just before.

    python -m benchmarks.simulator [--quick] [--out benchmarks/results/simulator.json]
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

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


def measure(policy: str, jobs: int, load: float, world: str, seed: int) -> dict[str, object]:
    """One run, in this process."""
    from trainmaster.catalog import policy_class
    from trainmaster.model.topology import parse_shorthand
    from trainmaster.perf.perf_model import DEFAULT, IDEAL
    from trainmaster.sim.driver import Scenario, Simulation
    from trainmaster.sim.metrics import result_of
    from trainmaster.traces.philly_like import generate

    trace = generate(jobs, GPUS, load, seed)
    cls = policy_class(policy)
    worlds = {"ideal": IDEAL, "default": DEFAULT}
    scenario = Scenario(trace, parse_shorthand(CLUSTER), CLUSTER, worlds[world], seed=seed)
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
        "perf": world,
        "wall_s": round(wall, 3),
        "unit_s": round(unit, 4),
        "units": round(wall / unit, 1),
        "jobs_per_s": round(jobs / wall),
        "events_per_s": round(summary.events / wall),
        "preemptions": summary.preemptions,
        "avg_jct_s": summary.avg_jct_s and round(summary.avg_jct_s, 3),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def apart(policy: str, jobs: int, load: float, world: str, seed: int = 1) -> dict[str, object]:
    """The same in a fresh process."""
    arguments = [policy, str(jobs), str(load), world, str(seed)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.simulator", "--one", *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, object] = json.loads(done.stdout)
    print(
        f"{policy:12} {jobs:>9,} jobs  load {load:<4}  {world:8}"
        f" {found['units']:>7} units  {found['wall_s']:>8} s  {found['peak_mib']} MiB",
        flush=True,
    )
    return found


def suite(quick: bool) -> list[dict[str, object]]:
    """The aims, then growth with jobs, with load, and under the default world."""
    jobs = 10_000 if quick else 100_000
    runs = [apart(policy, jobs, 0.95, "ideal") for policy in AIMS]
    runs += [apart(policy, jobs, 1.5, "ideal") for policy in AIMS]
    runs += [apart(policy, jobs // 10, 0.95, "ideal") for policy in AIMS]
    runs += [apart(policy, jobs, 0.95, "default") for policy in AIMS]
    if not quick:
        runs += [apart(policy, 10 * jobs, 0.95, "ideal") for policy in ("fifo", "srsf")]
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/simulator.json"))
    parser.add_argument("--one", nargs=5, metavar="FIELD", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        policy, jobs, load, world, seed = options.one
        print(json.dumps(measure(policy, int(jobs), float(load), world, int(seed))))
        return
    report = {
        "machine": f"{platform.machine()}, {platform.processor() or 'unknown processor'}",
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
        "cluster": CLUSTER,
        "unit": "sum(range(10**7)), best of three, in the same process",
        "aims_units": AIMS,
        "runs": suite(options.quick),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
