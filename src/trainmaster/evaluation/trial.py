"""One trial: its jobs, its cluster, its contender, tuned if it has a grid, simulated and scored."""

from __future__ import annotations

import time
from pathlib import Path

from trainmaster.evaluation.score import Scored
from trainmaster.evaluation.scoring import score_of
from trainmaster.evaluation.suite import Settings, Trial
from trainmaster.evaluation.trial_simulation import Stage, policy_of, simulate
from trainmaster.evaluation.tuning import tuned
from trainmaster.evaluation.workloads import stream_of


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
