"""Words for scenarios of our own policy: what it has seen before, who asks then, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tests.builders import a_policy, a_scenario, outcome_of, traced
from trainmaster.core.policy import Policy
from trainmaster.model.queue import Queue
from trainmaster.model.result import Result
from trainmaster.model.trace import TracedJob
from trainmaster.perf.perf_model import IDEAL, World
from trainmaster.sim.driver import Estimates, Scenario

UNKNOWN = Estimates(known=False)
ALONE: Mapping[str, object] = {"packing": "off"}
"""Every job has its GPUs for itself: what is tested here is who runs, not beside whom."""


def ours(**options: object) -> Policy:
    return a_policy("trainmaster", **(ALONE | options))


def by(user: str, app: str, job: TracedJob) -> TracedJob:
    """The same job of a user and a program."""
    return replace(job, job=replace(job.job, user=user, app=app))


def situation(
    jobs: Iterable[TracedJob],
    cluster: str = "1x1",
    world: World = IDEAL,
    *,
    queues: Iterable[Queue] = (),
) -> Scenario:
    """Without estimates: what is known is what was seen."""
    scenario = a_scenario(jobs, cluster, world)
    named = {queue.name: queue for queue in queues}
    return replace(scenario, estimates=UNKNOWN, queues=named)


def ran(jobs: Iterable[TracedJob], cluster: str = "1x1", **options: object) -> Result:
    return outcome_of(situation(jobs, cluster), ours(**options))


def seen(
    kind: str, service_s: float, *, times: int = 25, size: int = 1, start_s: float = 0.0
) -> list[TracedJob]:
    """Jobs of a queue, one after the other, each alone: what the policy has seen of their kind."""
    every = service_s + 5
    return [
        traced(f"{kind}-{size}-{n}", size, service_s, at_s=start_s + n * every, queue=kind)
        for n in range(times)
    ]


def after(jobs: Iterable[TracedJob]) -> float:
    """When all of them have ended if each ran alone, and their siblings are long past: in seconds."""
    ends = max(each.job.submit_ms + each.service_ms for each in jobs) / 1000
    return 3_600 * (ends // 3_600 + 6)
