"""The same workload simulated with calibrated costs, compared with the live run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean

from benchmarks.reality_costs import PARTS, Costs, beyond
from benchmarks.reality_live import LiveJobRecord, LiveRun
from benchmarks.reality_workload import SLOTS, PolicySetup
from trainmaster.config.performance import perf_model_from
from trainmaster.daemon.policies import policy_of
from trainmaster.gpu.devices import detect_machine
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.trace import Trace, TracedJob
from trainmaster.sim.driver import Estimates, Scenario, Simulation
from trainmaster.whatif.replay import replay

JITTERS = 8
JITTER_MS = 30
"""Submissions and run times move by up to this much either way where sensitivity is tried."""


@dataclass(frozen=True, slots=True)
class JobTimes:
    """When a job ran, live or simulated."""

    start_ms: int
    finish_ms: int
    jct_ms: int
    preemptions: int


@dataclass(frozen=True, slots=True)
class ScheduleErrors:
    """Differences between two schedules, as fractions of the first."""

    mean_jct: float
    makespan: float
    p50: float
    p90: float
    worst: float


@dataclass(frozen=True, slots=True)
class RealityComparison:
    """One policy, live and simulated."""

    policy: PolicySetup
    live: tuple[LiveJobRecord, ...]
    happened: tuple[JobTimes, ...]
    """The same, for comparison."""
    simulated: tuple[JobTimes, ...]
    errors: ScheduleErrors
    kendall_tau: float
    """Of the order of first starts."""
    differing: int
    """Jobs that were suspended another number of times."""
    residuals_ms: dict[str, float]
    """Mean over jobs of the time each part took beyond its calibrated cost."""
    sensitivity: ScheduleErrors
    """The median of simulations with jitter against the one without: no model can predict better."""
    steps: int
    unlike: int
    """Steps of the event log that gave other orders when it was replayed."""
    load: tuple[float, ...]
    cpu_part: float


def simulated(
    stories: Sequence[LiveJobRecord], costs: Costs, policy: PolicySetup, jitter: int = 0
) -> tuple[JobTimes, ...]:
    """With submissions as realised, run times as designed, in the order of the stories.

    Times are those of the live clock, not counted from the first submission: policies that look at
    whole seconds or quanta, or at how old their knowledge is, do so at the same moments.
    """
    chance = random.Random(f"jitter/{jitter}")

    def moved(ms: int) -> int:
        return ms + (chance.randint(-JITTER_MS, JITTER_MS) if jitter else 0)

    jobs = [
        TracedJob(
            replace(story.job, submit_ms=moved(story.job.submit_ms)),
            moved(costs.service_ms(story.planned)),
            stays_in_memory=story.planned.stays_in_memory,
        )
        for story in stories
    ]
    perf = perf_model_from(costs.perf(), "calibrated")
    trace = Trace(tuple(sorted(jobs, key=lambda traced: traced.job.submit_ms)))
    scenario = Scenario(trace, detect_machine(SLOTS).topology, SLOTS, perf, Estimates(known=False))
    simulation = Simulation(scenario, policy_of(PolicySpec(policy.name, policy.options)))
    simulation.run()
    return tuple(_lived(simulation, traced) for traced in jobs)


def _lived(simulation: Simulation, traced: TracedJob) -> JobTimes:
    account = simulation.ledger.accounts[traced.job.id]
    assert account.start_ms is not None
    assert account.finish_ms is not None
    assert account.record is not None
    return JobTimes(
        account.start_ms,
        account.finish_ms,
        account.finish_ms - traced.job.submit_ms,
        account.record.preemptions,
    )


def compared(run: LiveRun, costs: Costs) -> RealityComparison:
    stories = run.stories
    predicted = simulated(stories, costs, run.policy)
    happened = tuple(
        JobTimes(story.start_ms or 0, story.finish_ms or 0, story.jct_ms, story.preemptions)
        for story in stories
    )
    residuals = [
        beyond(story, costs, story.jct_ms - each.jct_ms)
        for story, each in zip(stories, predicted, strict=True)
    ]
    again = list(replay(run.log))
    return RealityComparison(
        policy=run.policy,
        live=stories,
        happened=happened,
        simulated=predicted,
        errors=errors(happened, predicted),
        kendall_tau=kendall_tau(
            [each.start_ms for each in happened], [each.start_ms for each in predicted]
        ),
        differing=sum(
            one.preemptions != other.preemptions
            for one, other in zip(happened, predicted, strict=True)
        ),
        residuals_ms={part: fmean(each[part] for each in residuals) for part in PARTS},
        sensitivity=_sensitivity(stories, costs, run.policy, predicted),
        steps=len(again),
        unlike=sum(not each.is_same for each in again),
        load=run.load,
        cpu_part=run.cpu_part,
    )


def _sensitivity(
    stories: Sequence[LiveJobRecord],
    costs: Costs,
    policy: PolicySetup,
    predicted: Sequence[JobTimes],
) -> ScheduleErrors:
    found = [
        errors(predicted, simulated(stories, costs, policy, jitter))
        for jitter in range(1, JITTERS + 1)
    ]

    def middle(name: str) -> float:
        ordered = sorted(abs(getattr(each, name)) for each in found)
        return float(ordered[len(ordered) // 2])

    return ScheduleErrors(*(middle(name) for name in ScheduleErrors.__slots__))


def errors(truth: Sequence[JobTimes], guess: Sequence[JobTimes]) -> ScheduleErrors:
    jobs = sorted(
        abs(other.jct_ms - one.jct_ms) / one.jct_ms for one, other in zip(truth, guess, strict=True)
    )

    def at(part: float) -> float:
        return jobs[min(len(jobs) - 1, int(part * len(jobs)))]

    return ScheduleErrors(
        mean_jct=mean_jct_ms(guess) / mean_jct_ms(truth) - 1,
        makespan=makespan_ms(guess) / makespan_ms(truth) - 1,
        p50=at(0.5),
        p90=at(0.9),
        worst=jobs[-1],
    )


def mean_jct_ms(jobs: Sequence[JobTimes]) -> float:
    return fmean(each.jct_ms for each in jobs)


def makespan_ms(jobs: Sequence[JobTimes]) -> int:
    first = min(each.finish_ms - each.jct_ms for each in jobs)
    return max(each.finish_ms for each in jobs) - first


def kendall_tau(one: Sequence[int], other: Sequence[int]) -> float:
    """Pairs in the same order less pairs in the other, of all; ties count as neither."""
    signs = [
        ((one[i] > one[j]) - (one[i] < one[j])) * ((other[i] > other[j]) - (other[i] < other[j]))
        for i, j in combinations(range(len(one)), 2)
    ]
    return sum(signs) / max(1, len(signs))
