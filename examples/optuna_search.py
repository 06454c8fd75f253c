"""A search by Optuna, each trial a job of Trainmaster, several at once; bad ones are pruned while they run.

pip install 'trainmaster[notebook]' optuna
python examples/optuna_search.py --trials 20 --at-once 4 --gpus 1
"""

from __future__ import annotations

import argparse
import time

import optuna

import trainmaster
from trainmaster.client.job import Job


def train(lr: float, momentum: float, steps: int, step_s: float) -> float:
    """A stand-in for your training: it reports its loss, by which bad trials are recognised."""
    import trainmaster_sdk

    loss = 10.0
    with trainmaster_sdk.run() as tm:
        for step in range(steps):
            loss = (lr - 0.1) ** 2 + (momentum - 0.9) ** 2 + loss * 0.5
            tm.progress(step=step + 1, loss=loss, total_steps=steps)
            time.sleep(step_s)
    return loss


def search(
    study: optuna.Study,
    client: trainmaster.Client,
    trials: int,
    at_once: int,
    steps: int,
    step_s: float,
) -> None:
    """Keep `at_once` jobs going until there were so many trials."""
    running: dict[Job, optuna.Trial] = {}
    asked = 0
    while asked < trials or running:
        while asked < trials and len(running) < at_once:
            trial = study.ask()
            lr = trial.suggest_float("lr", 1e-3, 1.0, log=True)
            momentum = trial.suggest_float("momentum", 0.5, 0.99)
            name = f"{study.study_name}-{trial.number}"
            running[client.submit(train, lr, momentum, steps, step_s, name=name)] = trial
            asked += 1
        for job, trial in list(running.items()):
            if look(study, job, trial):
                del running[job]
        time.sleep(min(0.2, step_s))


def look(study: optuna.Study, job: Job, trial: optuna.Trial) -> bool:
    """Tell the study how a trial does; whether it is over."""
    row = job.row()
    if row.has_ended:
        error = job.exception()
        if error is None:
            study.tell(trial, job.result())
        else:
            print(f"trial {trial.number} has no result: {error}")
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return True
    progress = row.progress
    if progress is not None and progress.loss is not None:
        trial.report(progress.loss, progress.step)
        if trial.should_prune():
            job.cancel()
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            return True
    return False


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--trials", type=int, default=20)
    options.add_argument("--at-once", type=int, default=4)
    options.add_argument("--gpus", type=float, default=1)
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--step-s", type=float, default=0.2)
    asked = options.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        study_name="search",
        sampler=optuna.samplers.TPESampler(seed=0, constant_liar=True),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3),
    )
    client = trainmaster.Client(gpus=asked.gpus)
    search(study, client, asked.trials, asked.at_once, asked.steps, asked.step_s)
    states = [trial.state.name.lower() for trial in study.trials]
    said = ", ".join(f"{states.count(each)} {each}" for each in dict.fromkeys(states))
    print(f"{len(states)} trials: {said}")
    print(f"best: {study.best_value:.4f} with {study.best_params}")


if __name__ == "__main__":
    main()
