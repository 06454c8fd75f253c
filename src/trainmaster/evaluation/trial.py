"""One trial: its jobs, its cluster, its contender, tuned if it has a grid, simulated and scored."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainmaster.config.cluster import Cluster
from trainmaster.config.options import read_options
from trainmaster.config.performance import BASES, perf_model_from
from trainmaster.config.queues import queues_from
from trainmaster.config.validation import ConfigError
from trainmaster.evaluation.score import Scored
from trainmaster.evaluation.scoring import excess_of, score_of
from trainmaster.evaluation.suite import Conditions, Contender, Settings, Trial, Workload
from trainmaster.evaluation.workloads import cluster_of, stream_of
from trainmaster.model.queue import Queue
from trainmaster.model.reasons import Refused
from trainmaster.model.trace import Trace, TracedJob
from trainmaster.perf.perf_model import PerfModel
from trainmaster.policy_files import policy_named
from trainmaster.sim.driver import Estimates, Scenario, Simulation, estimates_from


class TrialError(RuntimeError):
    """A trial whose figures would mean nothing: one sentence."""


class Stage:
    """Everything of a trial but its jobs and its contender."""

    def __init__(self, workload: Workload, conditions: Conditions, seed: int) -> None:
        self.cluster: Cluster = cluster_of(workload)
        self.gpus = self.cluster.topology.training_gpus
        self._workload = workload
        self._queues = queues_of(workload)
        self._perf = perf_model_of(conditions)
        self._estimates = estimates_of(conditions)
        self._seed = seed

    def scenario(self, jobs: Sequence[TracedJob]) -> Scenario:
        called = self._workload.cluster
        return Scenario(
            trace=Trace(tuple(jobs)),
            topology=self.cluster.topology,
            cluster=called if isinstance(called, str) else self._workload.name,
            perf=self._perf,
            estimates=self._estimates,
            queues=self._queues,
            node_changes=self.cluster.changes,
            seed=self._seed,
        )


def queues_of(workload: Workload) -> dict[str, Queue]:
    """The queues that the workload defines."""
    if workload.queues is None:
        return {}
    return queues_from(workload.queues, f"the queues of {workload.name}")


def perf_model_of(conditions: Conditions) -> PerfModel:
    """What is true of speeds and costs under these conditions."""
    perf = conditions.perf
    if isinstance(perf, Mapping):
        return perf_model_from(perf, conditions.name)
    if perf not in BASES:
        raise ConfigError(f"{conditions.name}: perf is {' or '.join(BASES)}, not {perf!r}.")
    return BASES[perf]


def estimates_of(conditions: Conditions) -> Estimates:
    try:
        return estimates_from(conditions.estimates)
    except ValueError as error:
        raise ConfigError(f"{conditions.name}: estimates are one of {error}.") from None


def policy_of(name: str, settings: Settings) -> Any:
    """A fresh policy with these settings."""
    kind = policy_named(name)
    return kind(read_options(name, kind.options_type, settings, read_setting))


def read_setting(name: str) -> str:
    """The content of a file that an option names."""
    return Path(name).read_text(encoding="utf-8-sig")


def simulate(
    stage: Stage, policy: Any, jobs: Sequence[TracedJob], measured: Sequence[TracedJob]
) -> Simulation:
    """All jobs arrive, until the measured ones have ended; a policy that raises spoils the trial."""
    simulation = Simulation(stage.scenario(jobs), policy)
    simulation.run(is_enough=_Watch(simulation, measured).have_ended)
    raised = [each for each in simulation.refusals if each.why is Refused.POLICY_RAISED]
    if raised:
        raise TrialError(f"{policy.name} raised an error: {raised[0].detail}")
    return simulation


class _Watch:
    """Whether the measured jobs have ended, at one look a step: it waits for them one by one."""

    def __init__(self, simulation: Simulation, measured: Sequence[TracedJob]) -> None:
        rejected = {each.job.id for each in simulation.rejected}
        self._open = [each.job.id for each in reversed(measured) if each.job.id not in rejected]
        self._accounts = simulation.ledger.accounts

    def have_ended(self) -> bool:
        while self._open:
            account = self._accounts.get(self._open[-1])
            if account is None or account.finish_ms is None:
                return False
            self._open.pop()
        return True


# -- tuning ------------------------------------------------------------------------------------------
# Settings that a contender earns on other jobs than those it is measured on: every setting of its grid
# serves the jobs before the measured ones, alone and to their end; the one with the least excess wins,
# and of equals the first.


def tuned(contender: Contender, stage: Stage, prefix: Sequence[TracedJob]) -> Settings:
    """The best of the contender's grid on these jobs."""
    assert contender.grid, f"{contender.label} has nothing to choose from"
    if not prefix or len(contender.grid) == 1:
        return contender.grid[0]
    found = [_excess(contender, settings, stage, prefix) for settings in contender.grid]
    return contender.grid[found.index(min(found))]


def _excess(
    contender: Contender, settings: Settings, stage: Stage, prefix: Sequence[TracedJob]
) -> float:
    """Worst of all where some job does not end."""
    policy = policy_of(contender.policy, {**contender.settings, **settings})
    excess = excess_of(simulate(stage, policy, prefix, prefix))
    return float("inf") if excess is None else round(excess, 6)


# -- the trial --------------------------------------------------------------------------------------


def run_trial(trial: Trial, folder: Path | None = None) -> Scored:
    """What the trial finds; files of its workload are looked for in the data folder."""
    began = time.perf_counter()
    stage = Stage(trial.workload, trial.conditions, trial.seed)
    stream = stream_of(trial.workload, stage.gpus, trial.seed, folder)
    jobs, contender = stream.trace.jobs, trial.contender
    prefix = stream.window.before(jobs)
    chosen: Settings | None = tuned(contender, stage, prefix) if contender.grid else None
    policy = policy_of(contender.policy, {**contender.settings, **(chosen or {})})
    simulation = simulate(stage, policy, jobs, stream.window.measured(jobs))
    score = score_of(simulation, stream.window, chosen, len(prefix) if contender.grid else 0)
    return Scored(trial, score, time.perf_counter() - began)
