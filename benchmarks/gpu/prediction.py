"""What the simulator says of the measured experiments: three jobs by turns, and small jobs at once.

    python -m benchmarks.gpu.prediction [--results DIR]

It reads time_slicing.json, packing_live.json and profile_packing.json, replays the same jobs under the same
policy with the default performance model, and writes prediction.json beside them: for each experiment what
was measured, what is predicted, and their ratio. The simulation is told how long a job takes alone, what it
books and what part of the GPU it uses alone, and nothing else of the measurement.

That part is the GPU time of a step, which is the GPU's own and was measured by hand (packing_gpu.json, eight
processes that keep it busy), over the time of a step alone (docs/perf.md).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from trainmaster.config.cluster import cluster_from
from trainmaster.config.performance import perf_model_from
from trainmaster.daemon.policies import policy_of
from trainmaster.model.job import Demand, Job, Shape
from trainmaster.model.placement import Sharing
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.trace import Trace, TracedJob
from trainmaster.model.units import GIB, MINUTE, NOMINAL, SECOND, WHOLE
from trainmaster.sim.driver import Scenario, Simulation
from trainmaster.sim.metrics import result_of

RESULTS = Path(__file__).resolve().parents[1] / "results/gpu"
PERF = perf_model_from({"switch": {"by": "freeze"}}, "default, freezing")
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


def gpu_ms_per_step() -> float:
    """What a step of the small model takes of an H200's time, whatever its host does."""
    rows = json.loads((RESULTS.parent / "packing_gpu.json").read_text())["rows"]
    busy = max(
        (row for row in rows if (row["mode"], row["job"]) == ("time", "small")),
        key=lambda row: int(row["processes"]),
    )
    return float(busy["ms_per_step"]) / int(busy["processes"])


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


def packing_live(read: Found) -> list[Found]:
    steps = read["steps"]
    modes = [mode for mode in ("time", "mps") if "rows" in steps.get(mode, {})]
    rows = [(mode, row["processes"], row["gain"]) for mode in modes for row in steps[mode]["rows"]]
    return at_once(rows, steps["time"]["rows"][0]["ms_per_step"])


def profile_packing(read: Found) -> list[Found]:
    rows = read["steps"]["packing"]["rows"]
    found = [(row["sharing"], row["copies"], row["gain"]) for row in rows]
    return at_once(found, rows[0]["mean_ms"])


def at_once(rows: Iterable[tuple[str, int, float]], alone_ms: float) -> list[Found]:
    """Small jobs on one GPU, by turns of the driver and by MPS: predicted and measured gain."""
    util = round(gpu_ms_per_step() / alone_ms * NOMINAL)
    return [
        {"sharing": mode, "jobs": count, "util": round(util / NOMINAL, 3)}
        | compared(gain(count, Sharing(mode), util), measured, "gain")
        for mode, count, measured in rows
    ]


def gain(count: int, sharing: Sharing, util: int) -> float:
    """Work of all jobs in the time that one alone takes for its own."""
    service = 10 * MINUTE
    part = Shape(1, share=WHOLE // count)
    jobs = [job(each, service, part, sharing, util) for each in range(count)]
    return count * service / SECOND / makespan_s(jobs, 140, PolicySpec("fifo"))


def compared(predicted: float, measured: float, what: str) -> Found:
    return {
        f"predicted_{what}": round(predicted, 3),
        f"measured_{what}": measured,
        "ratio": round(predicted / measured, 3),
    }


EXPERIMENTS: Mapping[str, Callable[[Found], Found | list[Found]]] = {
    "time_slicing": by_turns,
    "packing_live": packing_live,
    "profile_packing": profile_packing,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    folder = parser.parse_args().results
    found: Found = {"script": "prediction", "steps": {}}
    for name, predict in EXPERIMENTS.items():
        if not (file := folder / f"{name}.json").exists():
            parser.error(f"{file} is missing: measure it first (benchmarks.gpu.{name})")
        try:
            found["steps"][name] = predict(json.loads(file.read_text()))
        except KeyError as error:
            parser.error(f"{file} lacks {error}: measure all of it first (benchmarks.gpu.{name})")
    (folder / "prediction.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found["steps"], indent=1))


if __name__ == "__main__":
    main()
