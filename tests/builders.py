"""Small words for building clusters, jobs and runs in tests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from trainmaster.catalog import policy_class
from trainmaster.config.options import read_options
from trainmaster.core.policy import Policy
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Job, Shape, gpus
from trainmaster.model.placement import Placement, Role, Sharing, Slice
from trainmaster.model.result import JobResult, Result
from trainmaster.model.topology import (
    SLOT_TYPE,
    GpuType,
    NodeSpec,
    Topology,
    build,
    parse_shorthand,
)
from trainmaster.model.trace import Outcome, Trace, TracedJob
from trainmaster.model.units import GIB, MINUTE, NOMINAL, SECOND, WHOLE, to_ms
from trainmaster.perf.perf_model import IDEAL, PerfModel
from trainmaster.sim.driver import Scenario, Simulation
from trainmaster.sim.metrics import result_of

TYPES = {
    "gpu": GpuType(),
    "fast": GpuType("fast", 32 * GIB, NOMINAL),
    "slow": GpuType("slow", 8 * GIB, NOMINAL // 2),
    "cpu": GpuType("cpu", 4 * GIB),
    "slowcpu": GpuType("cpu", 4 * GIB, NOMINAL // 10),
    "slot": GpuType(SLOT_TYPE, 4 * GIB),
}
"""Device types that a cluster written in words may name."""

NODE = re.compile(r"(?P<name>\w+)\[(?P<gpus>\d+)(?P<type>[a-z]+)?(?:/(?P<islands>\d+))?\]")


def cluster(text: str) -> Topology:
    """`4x2`, or in words: `rack r1: n1[8] n2[8]   rack r2: n3[4slow] n4[8/2]` (/2: two islands)."""
    if re.fullmatch(r"\d+(x\d+)+", text):
        return parse_shorthand(text)
    specs = []
    has_islands = False
    for number, rack in enumerate(re.split(r"\brack \w+:", text)[1:] or [text]):
        for found in NODE.finditer(rack):
            islands = int(found["islands"] or 1)
            has_islands |= islands > 1
            specs.append(
                NodeSpec(
                    found["name"],
                    int(found["gpus"]),
                    (0, number),
                    type=TYPES[found["type"] or "gpu"],
                    islands=islands,
                )
            )
    inner = ("node", "island", "gpu") if has_islands else ("node", "gpu")
    return build(("cluster", "rack", *inner), specs)


def fraction(share: float, memory: int = 0, sharing: Sharing | None = None) -> Demand:
    """Demand for a part of one GPU."""
    return Demand(Shape(1, round(share * WHOLE), memory), 1, 1, sharing=sharing)


def a_job(
    name: str,
    size: int | Demand = 1,
    *,
    at_s: float = 0.0,
    model: str = "",
    priority: int = 0,
    retries: int = 2,
    queue: str = "default",
    role: Role = Role.GUARANTEED,
    gpu_util_ppm: int | None = None,
    preemptible: bool = True,
) -> Job:
    return Job(
        name,
        to_ms(at_s),
        gpus(size) if isinstance(size, int) else size,
        model=model,
        priority=priority,
        retries=retries,
        queue=queue,
        role=role,
        gpu_util_ppm=gpu_util_ppm,
        preemptible=preemptible,
    )


def traced(
    name: str,
    size: int | Demand,
    service_s: float,
    *,
    at_s: float = 0.0,
    model: str = "",
    priority: int = 0,
    queue: str = "default",
    outcome: Outcome = Outcome.SUCCEEDED,
    failed_s: Sequence[float] = (),
    gpu_util_ppm: int | None = None,
) -> TracedJob:
    job = a_job(
        name,
        size,
        at_s=at_s,
        model=model,
        priority=priority,
        queue=queue,
        retries=len(failed_s),
        gpu_util_ppm=gpu_util_ppm,
    )
    return TracedJob(job, to_ms(service_s), outcome, tuple(to_ms(s) for s in failed_s))


def a_trace(*jobs: TracedJob) -> Trace:
    return Trace(tuple(sorted(jobs, key=lambda each: each.job.submit_ms)))


def a_policy(name: str, **options: object) -> Policy:
    """From the catalog, with options as the command line would read them."""
    kind = policy_class(name)
    given = {key: str(value) for key, value in options.items()}
    policy: Policy = kind(read_options(name, kind.options_type, given, _content))
    return policy


def _content(name: str) -> str:
    return Path(name).read_text()


def a_scenario(
    jobs: Iterable[TracedJob],
    topology: str | Topology,
    world: PerfModel = IDEAL,
    *,
    node_changes: tuple[e.NodeChange, ...] = (),
    until_s: float | None = None,
    seed: int = 0,
) -> Scenario:
    return Scenario(
        trace=a_trace(*jobs),
        topology=cluster(topology) if isinstance(topology, str) else topology,
        cluster=str(topology),
        perf=world,
        node_changes=node_changes,
        until_ms=None if until_s is None else to_ms(until_s),
        seed=seed,
    )


def simulated(scenario: Scenario, policy: Policy) -> Simulation:
    """A finished run."""
    simulation = Simulation(scenario, policy)
    simulation.run()
    return simulation


def outcome_of(scenario: Scenario, policy: Policy) -> Result:
    return result_of(simulated(scenario, policy))


def finishes(result: Result) -> dict[str, float | None]:
    """When each job ended, in seconds."""
    return {j.job_id: None if j.finish_ms is None else j.finish_ms / SECOND for j in result.jobs}


def one(result: Result, name: str) -> JobResult:
    return next(job for job in result.jobs if job.job_id == name)


def at(seconds: float, event: object) -> e.NodeChange:
    """A planned change of the cluster."""
    return e.NodeChange(to_ms(seconds), event)  # type: ignore[arg-type]


def on(
    topology: Topology, *devices: int, share: int = WHOLE, memory: int = 0, **kind: object
) -> Placement:
    """A placement on these GPUs."""
    slices = tuple(Slice(topology.node_of_gpu[gpu], gpu, share, memory) for gpu in devices)
    return Placement(slices, topology.span_of_gpus(devices), **kind)  # type: ignore[arg-type]


def costly(world: PerfModel = IDEAL, **switching: object) -> PerfModel:
    """A world in which switching takes time: `costly(suspend_ms=5000)`."""
    return replace(world, preemption_cost=replace(world.preemption_cost, **switching))  # type: ignore[arg-type]


__all__ = [
    "MINUTE",
    "NOMINAL",
    "SECOND",
    "TYPES",
    "WHOLE",
    "a_job",
    "a_policy",
    "a_scenario",
    "a_trace",
    "at",
    "cluster",
    "costly",
    "finishes",
    "fraction",
    "on",
    "one",
    "outcome_of",
    "simulated",
    "traced",
]
