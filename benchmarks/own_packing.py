"""What sharing GPUs gains: generated traces of mostly single-GPU jobs, in worlds of different laws.

Each contender runs the same traces (paired): `gittins`, which never shares; the same with company
(policies/trainmaster/colocation.py) on different terms; and the published systems that share. Worlds: the
default one; the same with pairs and laws that are really up to 20 % off; jobs that slow each other down
in proportion (nothing to gain); the utilisation law; and, where ../shared/data is there, Gavel's measured
V100 pairs, which nobody tells the policy. Estimates: none.

    python -m benchmarks.own_packing [--seeds 10:20] [--loads 0.9,1.05,1.2] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import exp, log
from multiprocessing import Pool
from pathlib import Path
from random import Random

from tests.builders import a_policy, cluster
from tests.policies.packing_hosts import PackingGittins
from trainmaster.core.policy import Policy
from trainmaster.model.job import Demand, Job, Shape
from trainmaster.model.placement import Sharing
from trainmaster.model.trace import Trace, TracedJob
from trainmaster.model.units import GIB, NOMINAL, SECOND
from trainmaster.perf.default_parameters import SHARED_GPU
from trainmaster.perf.gpu_interference import Law, Measured, SharedGpu
from trainmaster.perf.perf_model import DEFAULT, World
from trainmaster.policies.trainmaster.colocation_state import Terms
from trainmaster.sim.driver import Estimates, Scenario, Simulation
from trainmaster.sim.metrics import result_of

CLUSTER, GPUS, JOBS = "8x4", 32, 800
GAVEL = Path(__file__).parents[2] / "shared/data/gavel/simulation_throughputs.json"
MIX = {
    "mlp": (1.5, 0.15),
    "lm": (3.0, 0.25),
    "gnmt": (5.0, 0.35),
    "resnet18": (3.0, 0.45),
    "a3c": (1.0, 0.5),
    "unet": (7.0, 0.6),
    "recommendation": (4.0, 0.6),
    "transformer": (6.0, 0.7),
    "resnet50": (6.0, 0.85),
    "bert": (10.0, 0.95),
}
"""Model: GiB and utilisation of a job, each of them about that; every model is as frequent."""
TIME, MPS = Terms(sharing=Sharing.TIME), Terms(sharing=Sharing.MPS)


def packing(terms: Terms) -> object:
    return lambda: PackingGittins(terms)


CONTENDERS = {
    "gittins": lambda: a_policy("gittins"),
    "time": packing(TIME),
    "mps": packing(MPS),
    "nobody joins": packing(replace(TIME, gain_ppm=2 * NOMINAL)),
    "gandiva": lambda: a_policy("gandiva"),
    "antman": lambda: a_policy("antman", opportunistic_after_s=60),
    "big-brain": lambda: a_policy("big-brain"),
    "big-brain mps": lambda: a_policy("big-brain", sharing="mps"),
}
TUNED = {
    f"{sharing.value} {most} gain{gain / 1e6:g} kept{kept / 1e6:g}": packing(
        Terms(sharing=sharing, most=most, gain_ppm=gain, kept_ppm=kept)
    )
    for sharing, most in ((Sharing.TIME, 2), (Sharing.MPS, 2), (Sharing.MPS, 4))
    for gain in (150_000, 300_000, 450_000)
    for kept in (450_000, 600_000, 700_000)
}
ALL = {**CONTENDERS, **TUNED}


# -- worlds ----------------------------------------------------------------------------------------


def off_by(shared: SharedGpu, part: float, random: Random) -> SharedGpu:
    """The same GPU where every number is up to that part off."""

    def shaken(value: int) -> int:
        return round(value * random.uniform(1 - part, 1 + part))

    return replace(
        shared,
        pairs={pair: min(NOMINAL, shaken(rate)) for pair, rate in shared.pairs.items()},
        tables={
            mode: Measured(*({n: max(NOMINAL, shaken(t)) if n > 1 else t for n, t in each.items()}
                             for each in (table.small, table.filling)))
            for mode, table in shared.tables.items()
        },
    )  # fmt: skip


@cache
def gavel_pairs() -> dict[tuple[str, str], int]:
    """What each single-GPU model keeps beside each other one on a V100, as Gavel measured."""
    table = json.loads(GAVEL.read_text())["v100"]
    single = [name for name in table if name.endswith(", 1)")]
    found = {}
    for mine in single:
        alone = table[mine]["null"]
        for other in single:
            both = table[mine].get(other)
            if both is not None and alone:
                rate = min(1.0, max(0.05, both[0] / alone))
                found[plain(mine), plain(other)] = round(rate * NOMINAL)
    return found


def plain(name: str) -> str:
    """`('ResNet-18 (batch size 16)', 1)` as a name without brackets."""
    return "".join(letter for letter in name[:-4].lower() if letter.isalnum())


def world(name: str, seed: int) -> World:
    shared = {
        "default": SHARED_GPU,
        "20 % off": off_by(SHARED_GPU, 0.2, Random(f"off/{seed}")),
        "linear": replace(SHARED_GPU, law=Law.LINEAR, pairs={}),
        "utilisation": replace(SHARED_GPU, law=Law.UTILISATION, pairs={}),
    }.get(name, SHARED_GPU)
    if name == "gavel":
        shared = replace(shared, law=Law.LINEAR, pairs=gavel_pairs())
    switching = replace(DEFAULT.switching, can_freeze=name == "freezing")
    return replace(DEFAULT, shared_gpu=shared, switching=switching)


WORLDS = (
    *("default", "20 % off", "linear", "utilisation", "freezing", "gangs"),
    *(("gavel",) if GAVEL.exists() else ()),
)
SINGLE = {"gangs": 0.5}
"""Part of the jobs that want one GPU, where it is not nine in ten."""


# -- traces ----------------------------------------------------------------------------------------


def a_trace(seed: int, load: float, *, is_gavel: bool, single: float = 0.9) -> Trace:
    """Jobs with a median of 15 minutes and a long tail, nine in ten on one GPU."""
    random = Random(f"packing/{seed}")
    names = sorted({mine for mine, _ in gavel_pairs()}) if is_gavel else list(MIX)
    drawn = []
    for _ in range(JOBS):
        model = random.choice(names)
        memory, busy = MIX.get(model, (4.0, 0.0))
        size = 1 if random.random() < single else random.choice((2, 4, 8))
        service = min(2e5, max(30.0, exp(random.gauss(log(900), 1.7))))
        memory = round(memory * random.uniform(0.8, 1.2) * 4) / 4
        busy = min(1.0, max(0.05, busy * random.uniform(0.85, 1.15)))
        drawn.append((model, memory, None if is_gavel else busy, size, round(service * SECOND)))
    span = sum(size * service for *_, size, service in drawn) / (GPUS * load)
    times = sorted(random.random() for _ in drawn)
    jobs = []
    for index, (model, memory, busy, size, service) in enumerate(drawn):
        submit = round((times[index] - times[0]) / (times[-1] - times[0]) * span)
        demand = Demand(Shape(size, memory=round(memory * GIB)), size, size)
        used = None if busy is None else round(busy * NOMINAL)
        job = Job(f"j{index}", submit, demand, model=model, gpu_util_ppm=used)
        jobs.append(TracedJob(job, service))
    return Trace(tuple(jobs))


# -- runs ------------------------------------------------------------------------------------------


def run(task: tuple[str, float, int, str]) -> dict[str, object]:
    name, load, seed, contender = task
    policy: Policy = ALL[contender]()
    scenario = Scenario(
        a_trace(seed, load, is_gavel=name == "gavel", single=SINGLE.get(name, 0.9)),
        cluster(CLUSTER),
        CLUSTER,
        world(name, seed),
        Estimates(known=False),
    )
    simulation = Simulation(scenario, policy)
    simulation.run()
    got = result_of(simulation).summary
    return {
        "world": name,
        "load": load,
        "seed": seed,
        "contender": contender,
        "jct": got.avg_jct_s,
        "excess": got.avg_excess_s,
        "p99": got.p99_jct_s,
        "rho": got.p99_rho,
        "preemptions": got.preemptions,
        "migrations": got.migrations,
        "refusals": len(simulation.refusals),
    }


def tables(rows: list[dict[str, object]]) -> Iterator[str]:
    """Ratios to `gittins` on the same trace, geometric means over seeds."""
    found = {(r["world"], r["load"], r["seed"], r["contender"]): r for r in rows}
    worlds = list(dict.fromkeys(r["world"] for r in rows))
    loads = sorted({r["load"] for r in rows})
    for measure in ("jct", "excess", "rho"):
        yield f"\n{measure} relative to gittins without sharing"
        yield "| contender | " + " | ".join(f"{w} {n}" for w in worlds for n in loads) + " |"
        for contender in dict.fromkeys(r["contender"] for r in rows):
            cells = []
            for name in worlds:
                for load in loads:
                    logs = [
                        log(r[measure] / found[name, load, r["seed"], "gittins"][measure])
                        for r in rows
                        if (r["world"], r["load"], r["contender"]) == (name, load, contender)
                    ]
                    cells.append(f"{exp(sum(logs) / len(logs)):.3f}" if logs else "")
            yield f"| {contender} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="10:20")
    parser.add_argument("--loads", default="0.9,1.05,1.2")
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--out", default="")
    given = parser.parse_args()
    first, last = map(int, given.seeds.split(":"))
    chosen = ALL if given.contenders == "all" else given.contenders.split(",")
    chosen = ("gittins", *TUNED) if given.contenders == "tuned" else chosen
    tasks = [
        (name, float(load), seed, contender)
        for contender in chosen
        for name in given.worlds.split(",")
        for load in given.loads.split(",")
        for seed in range(first, last)
    ]
    with Pool(os.cpu_count()) as pool:
        rows = list(pool.imap_unordered(run, tasks, chunksize=2))
    rows.sort(
        key=lambda row: tasks.index((row["world"], row["load"], row["seed"], row["contender"]))
    )
    print("\n".join(tables(rows)))
    if given.out:
        Path(given.out).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
