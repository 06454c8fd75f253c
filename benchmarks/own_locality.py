"""What it is worth to let gangs wait for nearness by what distance costs them: generated traces.

Each contender runs the same traces (paired), ordered by `gittins`: anywhere, fewest nodes first
(relaxing); the fewest nodes or wait (consolidated); that for skewed models only (Tiresias' rule); ours
(policies/trainmaster/delay_scheduling.py, defragmentation.py), and ours without a part. Worlds: the
default one; without neighbours; ideal; where the default tables are up to 20 % off; where nobody names
a model; and, as a bound, where neither distance nor company costs anything. Estimates: none.

    python -m benchmarks.own_locality [--seeds 11:14] [--loads 0.7,0.9,1.1] [--worlds default,ideal]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from math import exp, log
from multiprocessing import Pool

from tests.builders import cluster
from tests.policies.closeness_hosts import NearGittins
from trainmaster.core.policy import Policy
from trainmaster.core.state import JobRecord
from trainmaster.model.trace import Trace, TracedJob
from trainmaster.perf.locality import Locality
from trainmaster.perf.model_zoo import skew_ppm
from trainmaster.perf.network_contention import Neighbours
from trainmaster.perf.perf_model import DEFAULT, IDEAL, World
from trainmaster.placement.placers import CONSOLIDATED, RELAXING, Placer
from trainmaster.policies.gittins import Gittins, GittinsOptions
from trainmaster.policies.trainmaster.delay_scheduling import Terms
from trainmaster.sim.driver import Estimates, Scenario, Simulation
from trainmaster.sim.metrics import result_of
from trainmaster.traces.philly_like import generate

CLUSTERS = {"16x8": 128, "4x15x4": 240}
JOBS = 4_000
SKEWED = 400_000
WORLDS: dict[str, World] = {
    "default": DEFAULT,
    "no neighbours": replace(DEFAULT, neighbours=Neighbours()),
    "20 % off": replace(DEFAULT, locality=replace(DEFAULT.locality, error_ppm=200_000)),
    "unnamed": DEFAULT,
    "ideal": IDEAL,
    "bound": replace(DEFAULT, locality=Locality(), neighbours=Neighbours()),
}


class Placed(Gittins):
    """`gittins` with a placer by job."""

    def __init__(self, choose: Callable[[JobRecord], Placer]) -> None:
        super().__init__(GittinsOptions(min_run_s=60.0))
        self._choose = choose

    def placer(self, record: JobRecord) -> Placer:
        return self._choose(record)

    def group(self, record: JobRecord) -> Hashable:
        return (record.group, self._choose(record).insists)


def by_skew(record: JobRecord) -> Placer:
    return CONSOLIDATED if skew_ppm(record.job.model) > SKEWED else RELAXING


def ours(terms: Terms = Terms(), **parts: bool) -> Callable[[], Policy]:  # noqa: B008
    return lambda: NearGittins(terms, min_run_s=60.0, **parts)


CONTENDERS: dict[str, Callable[[], Policy]] = {
    "relaxing": lambda: Placed(lambda record: RELAXING),
    "consolidated": lambda: Placed(lambda record: CONSOLIDATED),
    "by skew": lambda: Placed(by_skew),
    "ours": ours(),
    "ours, no gathering": ours(gathers=False),
    "ours, no room made": ours(makes_room=False),
    "ours, side by side": ours(Terms(is_considerate=False)),
    "ours, no patience": ours(Terms(patience_ppm=0)),
}
MAIN = tuple(CONTENDERS)[:4]

Task = tuple[str, str, float, int, str]


def a_trace(gpus: int, load: float, seed: int, *, is_named: bool) -> Trace:
    """Philly-like jobs that all pass at the first attempt."""
    jobs = generate(JOBS, gpus, load, seed).jobs
    named = [each.job if is_named else replace(each.job, model="") for each in jobs]
    return Trace(tuple(TracedJob(job, j.service_ms) for job, j in zip(named, jobs, strict=True)))


def run(task: Task) -> tuple[Task, float, float, int, int]:
    """(task, mean excess, mean JCT, preemptions, migrations)."""
    where, world, load, seed, contender = task
    trace = a_trace(CLUSTERS[where], load, seed, is_named=world != "unnamed")
    scenario = Scenario(
        trace, cluster(where), where, WORLDS[world], Estimates(known=False), seed=seed
    )
    simulation = Simulation(scenario, CONTENDERS[contender]())
    simulation.run()
    got = result_of(simulation).summary
    assert got.avg_excess_s is not None
    assert got.avg_jct_s is not None
    return task, got.avg_excess_s, got.avg_jct_s, got.preemptions, got.migrations


def rows(found: list[tuple[Task, float, float, int, int]]) -> Iterator[str]:
    """Excess in seconds, relative to relaxing (geometric mean of the seeds' ratios), JCT relative."""
    results = {task: rest for task, *rest in found}
    yield "| cluster | world | load | contender | excess (s) | of relaxing | JCT | preemptions | moves |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for where, world, load, contender in dict.fromkeys((t[0], t[1], t[2], t[4]) for t in results):
        seeds = [
            t[3] for t in results if (t[0], t[1], t[2], t[4]) == (where, world, load, contender)
        ]
        mine = [results[where, world, load, seed, contender] for seed in seeds]
        base = [
            results.get((where, world, load, seed, "relaxing"), mine[n])
            for n, seed in enumerate(seeds)
        ]
        pairs = list(zip(mine, base, strict=True))
        excess, jct = (
            exp(sum(log(max(1.0, m[k]) / max(1.0, b[k])) for m, b in pairs) / len(pairs))
            for k in (0, 1)
        )
        mean = [sum(each[k] for each in mine) / len(mine) for k in range(4)]
        yield (
            f"| {where} | {world} | {load} | {contender} | {mean[0]:,.0f} | {excess:.3f} | {jct:.4f} "
            f"| {mean[2]:,.0f} | {mean[3]:,.0f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="11:14")
    parser.add_argument("--loads", default="0.7,0.9,1.1")
    parser.add_argument("--worlds", default="default")
    parser.add_argument("--contenders", default=";".join(MAIN), help="; between names, or all")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    first, last = map(int, given.seeds.split(":"))
    names = tuple(CONTENDERS) if given.contenders == "all" else given.contenders.split(";")
    tasks: list[Task] = [
        (where, world, float(load), seed, name)
        for where in CLUSTERS
        for world in given.worlds.split(",")
        for load in given.loads.split(",")
        for name in names
        for seed in range(first, last)
    ]
    with Pool(given.processes) as pool:
        print("\n".join(rows(pool.map(run, tasks, chunksize=1))))


if __name__ == "__main__":
    main()
