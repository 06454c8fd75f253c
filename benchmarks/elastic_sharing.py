"""Elastic sharing: 512 jobs of 8 models (CNN, RNN, GAN) on 512 GPUs, static against dynamic shares.

The experiment of *Distributed Deep Learning over Shared GPU Cluster* (KAIST).

The jobs are those of `trainmaster.evaluation.suites.eight_models`. Static: `fifo` gives each what it
asks for, first come first served. Dynamic: `max-min` and `afs-l` give each between one GPU and what it
asks for.

    python -m benchmarks.elastic_sharing [--seeds 2] [--out benchmarks/results/elastic_sharing.json]
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

from trainmaster.catalog import policy_class
from trainmaster.config.options import read_options
from trainmaster.evaluation.suites.eight_models import CLUSTER, COUNTS, JOBS, MODELS
from trainmaster.evaluation.suites.eight_models import trace as workload
from trainmaster.model.result import Summary
from trainmaster.model.topology import parse_shorthand
from trainmaster.model.trace import Trace
from trainmaster.model.units import NOMINAL
from trainmaster.perf.network_contention import NetworkContention
from trainmaster.perf.perf_model import DEFAULT, IDEAL, PerfModel
from trainmaster.perf.scaling import Elasticity
from trainmaster.sim.driver import Scenario, Simulation
from trainmaster.sim.metrics import result_of

LINE_UP: tuple[tuple[str, dict[str, str]], ...] = (
    ("fifo", {}),
    ("fifo", {"backfill": "skip"}),
    ("max-min", {}),
    ("afs-l", {}),
)


def curves(base: PerfModel) -> PerfModel:
    """The same performance model with these models' curves."""
    tables = {
        model.name.replace("-", ""): {n: round(model.speedup(n) * NOMINAL) for n in COUNTS}
        for model in MODELS
    }
    return replace(base, elasticity=Elasticity(base.elasticity.doubling_ppm, tables))


ALONE = replace(DEFAULT, name="alone", neighbours=NetworkContention())
"""The default performance model, but jobs on one server do not slow each other down."""
PERFS = (IDEAL, ALONE, DEFAULT)


def run(
    trace: Trace, cluster: str, perf: PerfModel, name: str, options: dict[str, str]
) -> tuple[Summary, float]:
    """One policy's result, and the CPU seconds that it took."""
    kind = policy_class(name)
    policy = kind(read_options(name, kind.options_type, options))
    simulation = Simulation(Scenario(trace, parse_shorthand(cluster), cluster, perf), policy)
    start = time.process_time()
    simulation.run()
    return result_of(simulation).summary, time.process_time() - start


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--seeds", type=int, default=2)
    reading.add_argument("--out", type=Path)
    given = reading.parse_args()
    found = []
    for seed in range(given.seeds):
        trace = workload(JOBS, JOBS, seed)
        for perf in PERFS:
            for name, options in LINE_UP:
                summary, cpu_s = run(trace, CLUSTER, curves(perf), name, options)
                assert summary.avg_jct_s is not None
                assert summary.makespan_s is not None
                assert summary.gpu_util is not None
                one = {
                    "label": " ".join(
                        [name, *(f"{key}={value}" for key, value in options.items())]
                    ),
                    "perf": perf.name,
                    "seed": seed,
                    "mean_jct_s": round(summary.avg_jct_s),
                    "makespan_s": round(summary.makespan_s),
                    "gpu_util": round(summary.gpu_util, 3),
                    "wall_s": round(cpu_s, 2),
                }
                found.append(one)
                print("  ".join(f"{key} {value}" for key, value in one.items()), flush=True)
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
