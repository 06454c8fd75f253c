"""Words for scenarios of our own policy: what it has seen before, who asks then, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tests.builders import a_policy, a_scenario, outcome_of, traced
from trainmaster.model.queue import Queue
from trainmaster.model.result import Result
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import to_ms
from trainmaster.perf.perf_model import IDEAL, PerfModel
from trainmaster.policies.trainmaster.options import LocalityTerms, PackingTerms, ResizingTerms
from trainmaster.policies.trainmaster.policy import Trainmaster
from trainmaster.sim.driver import Estimates, Scenario

UNKNOWN = Estimates(known=False)


def ours(
    *,
    locality: LocalityTerms | str = "on",
    packing: PackingTerms | str = "mps",
    resizing: ResizingTerms | None = None,
    **options: object,
) -> Trainmaster:
    """The default policy, with these options, and with other terms of a stage where a test needs them."""
    terms = {"locality": locality, "packing": packing, "resizing": resizing}
    options |= {name: value for name, value in terms.items() if isinstance(value, str)}
    policy = a_policy("trainmaster", **options)
    assert isinstance(policy, Trainmaster)
    changed = {name: each for name, each in terms.items() if each and not isinstance(each, str)}
    return Trainmaster(policy.options, replace(policy.settings, **changed))  # type: ignore[arg-type]


def by(user: str, app: str, job: TracedJob) -> TracedJob:
    """The same job of a user and a program."""
    return replace(job, job=replace(job.job, user=user, app=app))


def situation(
    jobs: Iterable[TracedJob],
    cluster: str = "1x1",
    world: PerfModel = IDEAL,
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


def punctual(*, margin: float = 0.0, **options: object) -> Trainmaster:
    """With nothing added to predictions unless said; runs may be preempted at any time."""
    given = {"deadline_margin": margin, "min_run_s": 0, "learn": "off", "siblings": "off"} | options
    return ours(locality="off", packing="off", **given)  # type: ignore[arg-type]


def within(deadline_s: float, job: TracedJob) -> TracedJob:
    """The same job with a deadline so long after its submission."""
    deadline = job.job.submit_ms + to_ms(deadline_s)
    return replace(job, job=replace(job.job, deadline_ms=deadline))


def asked(name: str, size: int, service_s: float, within_s: float, at_s: float = 0.0) -> TracedJob:
    """A job with a deadline so long after its submission."""
    return within(within_s, traced(name, size, service_s, at_s=at_s))
