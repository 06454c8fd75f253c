"""How fast every policy decides: whole simulations against `tiresias-l`, and single passes.

Runs: 20,000 Philly-like jobs on 8x39x8 at load 0.95, and half as many to see growth; CPU time as a
ratio to `tiresias-l` in the same run of this script. Passes: 10,000 jobs wait on a full cluster of
10,000 GPUs, then of 100,000, one job arrives or ends at a time; what one decision takes. Each in
its own process. `trainmaster/queues` is `trainmaster` with stated queues, three of the trace's.

    python -m benchmarks.policies [--quick] [--only NAME,...] [--out benchmarks/results/policies.json]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.fresh_process import in_fresh_process, write_report
from trainmaster.catalog import POLICIES, policy_class
from trainmaster.config.options import read_options
from trainmaster.model import job as demand
from trainmaster.model.job import Job
from trainmaster.model.topology import parse_shorthand
from trainmaster.model.trace import Trace, TracedJob
from trainmaster.perf.perf_model import IDEAL
from trainmaster.sim.driver import Scenario, Simulation
from trainmaster.traces.philly_like import generate

CLUSTER, GPUS, LOAD, SEED = "8x39x8", 2_496, 0.95, 1
BASELINE = "tiresias-l"
AIMS = {
    **dict.fromkeys(("gittins", "tiresias-g", "qssf", "philly", "fair", "two-level"), 3.0),
    **dict.fromkeys(("gandiva", "themis", "optimus", "afs-l", "max-min", "goodput"), 20.0),
    "trainmaster/queues": 20.0,
}
"""Times the CPU time of `tiresias-l`."""
CASES = {"trainmaster/queues": {"queues": "vc0:3,vc1:2,vc2:1"}}
"""Cases that are measured besides every policy with its defaults: the options of each."""
PASS_CLUSTERS = {"10k": "25x50x8", "100k": "250x50x8"}
WAITING = 10_000
PASS_AIM_MS = 100.0
ARRIVALS = 100


def policy_of(case: str) -> Any:
    kind = policy_class(case.partition("/")[0])
    return kind(read_options(case, kind.options_type, CASES.get(case, {})))


def simulate(policy: str, jobs: int) -> dict[str, object]:
    """One run, in this process."""
    trace = generate(jobs, GPUS, LOAD, SEED)
    scenario = Scenario(trace, parse_shorthand(CLUSTER), CLUSTER, IDEAL, seed=SEED)
    simulation = Simulation(scenario, policy_of(policy))
    start = time.process_time()
    simulation.run()
    return {"cpu_s": round(time.process_time() - start, 3), "events": simulation.events}


def decide(policy: str, cluster: str) -> dict[str, object]:
    """Time single passes with `WAITING` jobs on a full cluster."""
    topology = parse_shorthand(cluster)
    scenario = Scenario(_crowd(topology.training_gpus), topology, cluster, IDEAL, seed=SEED)
    simulation = Simulation(scenario, policy_of(policy))
    controller = simulation.controller
    step, times, waiting = controller.step, [], []

    def timed(now: int, events: object) -> object:
        start = time.process_time()
        decision = step(now, events)  # type: ignore[arg-type]
        if decision.planned:
            times.append(1000 * (time.process_time() - start))
            waiting.append(controller.state.waiting)
        return decision

    controller.step = timed  # type: ignore[method-assign, assignment]
    while simulation.arrived < len(simulation.accepted) and simulation.step():
        pass
    first, later = times[0], sorted(times[1:])
    return {
        "first_ms": round(first, 2),
        "median_ms": round(later[len(later) // 2], 3),
        "p99_ms": round(later[int(0.99 * len(later))], 3),
        "passes": len(times),
        "waiting": waiting[-1],
    }


def _crowd(gpus: int) -> Trace:
    """Jobs that fill the cluster and `WAITING` more, all at once; then one every ten seconds."""
    random = Random(SEED)
    demands = {size: demand.gpus(size) for size in (1, 2, 4, 8, 16)}
    models = ("", "vgg16", "resnet50", "alexnet", "inception3")
    jobs: list[TracedJob] = []

    def add(at_ms: int) -> int:
        size = random.choices((1, 2, 4, 8, 16), (60, 10, 15, 12, 3))[0]
        name, queue = f"j{len(jobs)}", f"q{random.randrange(15)}"
        job = Job(name, at_ms, demands[size], queue=queue, model=random.choice(models))
        jobs.append(TracedJob(job, round(random.lognormvariate(10.5, 1.5) * 1000) + 600_000))
        return size

    filled = 0
    while filled < gpus:
        filled += add(0)
    for _ in range(WAITING):
        add(0)
    for index in range(ARRIVALS):
        add(10_000 * (index + 1))
    return Trace(tuple(jobs))


def in_subprocess(
    measure: Callable[..., dict[str, object]], *args: object, limit_s: int
) -> dict[str, object]:
    """Measure in a fresh process; a time-out or an error is a result."""
    try:
        return in_fresh_process(measure, *args, limit_s=limit_s)
    except TimeoutError:
        return {"over_s": limit_s}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


def measure(policy: str, jobs: int, baseline: float | None, limit_s: int) -> dict[str, object]:
    whole, half = (in_subprocess(simulate, policy, n, limit_s=limit_s) for n in (jobs, jobs // 2))
    passes = {
        name: in_subprocess(decide, policy, cluster, limit_s=limit_s)
        for name, cluster in PASS_CLUSTERS.items()
    }
    found: dict[str, object] = {"policy": policy, "jobs": jobs, "run": whole, "half": half}
    cpu, cpu_half = whole.get("cpu_s"), half.get("cpu_s")
    if isinstance(cpu, float) and baseline:
        found["times_baseline"] = round(cpu / baseline, 2)
    if isinstance(cpu, float) and isinstance(cpu_half, float) and cpu_half:
        found["growth_of_twice_the_jobs"] = round(cpu / cpu_half, 2)
    found["passes"] = passes
    print(
        f"{policy:12} {whole}  x{found.get('times_baseline', '-')} (aim {AIMS.get(policy, '-')})"
        f"  twice the jobs x{found.get('growth_of_twice_the_jobs', '-')}  passes {passes}",
        flush=True,
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs")
    parser.add_argument("--only", help="these policies, with commas between")
    parser.add_argument("--limit-s", type=int, default=900, help="give up a measurement after this")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/policies.json"))
    options = parser.parse_args()
    names = options.only.split(",") if options.only else [*POLICIES, *CASES]
    jobs = 2_000 if options.quick else 20_000
    first = in_subprocess(simulate, BASELINE, jobs, limit_s=options.limit_s)
    cpu_s = first.get("cpu_s")
    baseline = cpu_s if isinstance(cpu_s, float) else None
    write_report(
        options.out,
        cluster=CLUSTER,
        load=LOAD,
        baseline={"policy": BASELINE, **first},
        aims_times_baseline=AIMS,
        **{"pass": {"waiting": WAITING, "clusters": PASS_CLUSTERS, "aim_ms": PASS_AIM_MS}},
        policies=[measure(name, jobs, baseline, options.limit_s) for name in names],
    )


if __name__ == "__main__":
    main()
