"""One trial: its jobs, its cluster, its contender, tuned if it has a grid, simulated and scored."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainmaster.config.performance import BASES, perf_model_from
from trainmaster.config.queues import queues_from, user_limits_from
from trainmaster.config.validation import ConfigError
from trainmaster.evaluation.score import ScoredTrial
from trainmaster.evaluation.scoring import excess_of, score_of
from trainmaster.evaluation.suite import Conditions, Contender, PolicySettings, Trial, Workload
from trainmaster.evaluation.workloads import cluster_of, stream_of
from trainmaster.model.reasons import Refused
from trainmaster.model.trace import Trace, TracedJob
from trainmaster.perf.perf_model import PerfModel
from trainmaster.policy_files import policy_with
from trainmaster.sim.driver import Estimates, Scenario, Simulation, estimates_from


class TrialError(RuntimeError):
    """A trial whose figures would mean nothing: one sentence."""


def empty_scenario(workload: Workload, conditions: Conditions, seed: int) -> Scenario:
    """The scenario of a trial, without its jobs."""
    cluster, named = cluster_of(workload), f"the queues of {workload.name}"
    return Scenario(
        trace=Trace(()),
        topology=cluster.topology,
        cluster=workload.cluster if isinstance(workload.cluster, str) else workload.name,
        perf=perf_model_of(conditions),
        estimates=estimates_of(conditions),
        queues={} if workload.queues is None else queues_from(workload.queues, named),
        user_limits=() if workload.queues is None else user_limits_from(workload.queues, named),
        node_changes=cluster.changes,
        seed=seed,
    )


def perf_model_of(conditions: Conditions) -> PerfModel:
    """The performance model of these conditions."""
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


def simulate(
    scenario: Scenario, policy: Any, jobs: Sequence[TracedJob], measured: Sequence[TracedJob]
) -> Simulation:
    """All jobs arrive, until the measured ones have ended; a policy that raises spoils the trial."""
    simulation = Simulation(replace(scenario, trace=Trace(tuple(jobs))), policy)
    rejected = {each.job.id for each in simulation.rejected}
    running = [each.job.id for each in reversed(measured) if each.job.id not in rejected]
    accounts = simulation.ledger.accounts

    def have_ended() -> bool:
        """Checks one job per step: it waits for the measured jobs one after the other."""
        while running:
            account = accounts.get(running[-1])
            if account is None or account.finish_ms is None:
                return False
            running.pop()
        return True

    simulation.run(is_enough=have_ended)
    raised = [each for each in simulation.refusals if each.why is Refused.POLICY_RAISED]
    if raised:
        raise TrialError(f"{policy.name} raised an error: {raised[0].detail}")
    return simulation


# -- tuning ------------------------------------------------------------------------------------------
# A contender is tuned on other jobs than it is measured on: every setting of its grid is simulated on the
# jobs before the measured ones, until all of them end; the lowest excess wins, the first of equals.


def tuned(contender: Contender, scenario: Scenario, prefix: Sequence[TracedJob]) -> PolicySettings:
    """The best of the contender's grid on these jobs."""
    assert contender.grid, f"{contender.label} has no grid"
    if not prefix or len(contender.grid) == 1:
        return contender.grid[0]
    found = [_excess(contender, settings, scenario, prefix) for settings in contender.grid]
    return contender.grid[found.index(min(found))]


def _excess(
    contender: Contender, settings: PolicySettings, scenario: Scenario, prefix: Sequence[TracedJob]
) -> float:
    """Infinite if some job does not end."""
    policy = policy_with(contender.policy, {**contender.settings, **settings})
    excess = excess_of(simulate(scenario, policy, prefix, prefix))
    return float("inf") if excess is None else round(excess, 6)


# -- the trial --------------------------------------------------------------------------------------


def run_trial(trial: Trial, folder: Path | None = None) -> ScoredTrial:
    """Run the trial; the files of its workload are looked for in `folder`."""
    began = time.perf_counter()
    scenario = empty_scenario(trial.workload, trial.conditions, trial.seed)
    stream = stream_of(trial.workload, scenario.topology.training_gpus, trial.seed, folder)
    jobs, contender = stream.trace.jobs, trial.contender
    prefix = stream.window.before(jobs)
    chosen: PolicySettings | None = tuned(contender, scenario, prefix) if contender.grid else None
    policy = policy_with(contender.policy, {**contender.settings, **(chosen or {})})
    simulation = simulate(scenario, policy, jobs, stream.window.measured(jobs))
    score = score_of(simulation, stream.window, chosen, len(prefix) if contender.grid else 0)
    return ScoredTrial(trial, score, time.perf_counter() - began)
