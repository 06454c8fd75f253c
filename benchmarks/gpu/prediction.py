"""What the simulator says of the measured experiments: three jobs by turns, and small jobs at once.

    python -m benchmarks.gpu.prediction [--results DIR]

It reads time_slicing.json and packing_live.json, replays the same jobs under the same policy with the default
performance model, and writes prediction.json beside them: for each experiment what was measured, what is
predicted, and their ratio. The simulation is told how long a job takes alone and what it books, and nothing
else of the measurement.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainmaster.config.cluster import cluster_from
from trainmaster.config.performance import perf_model_from
from trainmaster.daemon.policies import policy_of
from trainmaster.model.job import Demand, Job, Shape
from trainmaster.model.placement import Sharing
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.trace import Trace, TracedJob
from trainmaster.model.units import GIB, MINUTE, SECOND, WHOLE
from trainmaster.sim.driver import Scenario, Simulation
from trainmaster.sim.metrics import result_of

RESULTS = Path(__file__).resolve().parents[1] / "results/gpu"
PERF = perf_model_from({"switch": {"by": "freeze"}}, "default, freezing")
SMALL_PPM = PERF.shared_gpu.small_util_ppm
"""Of the GPU's time: a job that leaves it mostly idle."""
Found = dict[str, Any]


def one_gpu(memory_gib: float) -> dict[str, object]:
    """A cluster of one H200 with so much bookable memory, as its file says it."""
    kind = {"memory_gib": memory_gib}
    return {"types": {"H200": kind}, "nodes": [{"name": "vm", "gpus": 1, "type": "H200"}]}


def makespan_s(jobs: Iterable[TracedJob], memory_gib: float, policy: PolicySpec) -> float:
    """From the first submission to the last end."""
    topology = cluster_from(one_gpu(memory_gib)).topology
    scenario = Scenario(Trace(tuple(jobs)), topology, "one H200", PERF)
    simulation = Simulation(scenario, policy_of(policy))
    simulation.run()
    found = result_of(simulation).summary.makespan_s
    assert found is not None
    return found


def job(number: int, service_ms: int, shape: Shape, sharing: Sharing, util: int) -> TracedJob:
    demand = Demand(shape, 1, 1, sharing=sharing)
    return TracedJob(Job(str(number), 0, demand, gpu_util_ppm=util), service_ms)


def by_turns(read: Found) -> Found:
    """Three jobs of which two do not fit: predicted and measured time for all of them."""
    alone, shared = read["steps"]["one-by-one"], read["steps"]["shared"]
    count = len(shared["states"])
    booked = round(shared["bookable_gib"] * shared["share"] * GIB)
    service = round(alone["makespan_s"] * SECOND / count)
    jobs = [
        job(each, service, Shape(1, memory=booked), Sharing.EXCLUSIVE, 1_000_000)
        for each in range(count)
    ]
    options = (("packing", "off"), ("quantum_s", f"{shared['quantum_s']:g}"))
    predicted = makespan_s(jobs, shared["bookable_gib"], PolicySpec("gandiva", options))
    return compared(predicted, shared["makespan_s"], "makespan_s")


def at_once(read: Found) -> list[Found]:
    """Small jobs on one GPU, by turns of the driver and by MPS: predicted and measured gain."""
    return [
        {"sharing": mode, "jobs": row["processes"]}
        | compared(gain(row["processes"], Sharing[mode.upper()]), row["gain"], "gain")
        for mode in ("time", "mps")
        for row in read["steps"].get(mode, {}).get("rows", [])
    ]


def gain(count: int, sharing: Sharing) -> float:
    """Work of all jobs in the time that one alone takes for its own."""
    service = 10 * MINUTE
    part = Shape(1, share=WHOLE // count)
    jobs = [job(each, service, part, sharing, SMALL_PPM) for each in range(count)]
    return count * service / SECOND / makespan_s(jobs, 140, PolicySpec("fifo"))


def compared(predicted: float, measured: float, what: str) -> Found:
    return {
        f"predicted_{what}": round(predicted, 3),
        f"measured_{what}": measured,
        "ratio": round(predicted / measured, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    folder = parser.parse_args().results
    found: Found = {"script": "prediction", "steps": {}}
    for name, predict in (("time_slicing", by_turns), ("packing_live", at_once)):
        if not (file := folder / f"{name}.json").exists():
            parser.error(f"{file} is missing: measure it first (benchmarks.gpu.{name})")
        found["steps"][name] = predict(json.loads(file.read_text()))
    (folder / "prediction.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found["steps"], indent=1))


if __name__ == "__main__":
    main()
