"""A suite result as JSON: the same bytes for the same suite, however it was run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict

from trainmaster.evaluation.score import FailedTrial, ScoredTrial, Skipped, SuiteResult, score_from
from trainmaster.evaluation.suite import Suite


def to_json(result: SuiteResult) -> str:
    """`{"suite", "trials": [...], "skipped": [...], "failures": [...]}`, one trial per line."""
    suite = result.suite
    trials = ",\n".join(json.dumps(_trial(each)) for each in result.scored)
    rest = {
        "skipped": [asdict(each) for each in result.skipped],
        "failures": [{"trial": str(each.trial), "error": each.error} for each in result.failures],
    }
    head = json.dumps({"suite": suite.name, "title": suite.title})[:-1]
    return f'{head}, "trials": [\n{trials}\n], {json.dumps(rest)[1:]}\n'


def from_json(text: str, suite_of: Callable[[str], Suite]) -> SuiteResult:
    """Read a written result; trials that the suite no longer has are left out."""
    found = json.loads(text)
    suite = suite_of(found["suite"])
    trials = {str(trial): trial for trial in suite.trials()}
    named = [(trials.get(_name(each)), score_from(each["score"])) for each in found["trials"]]
    failed = [(trials.get(each["trial"]), each["error"]) for each in found["failures"]]
    return SuiteResult(
        suite=suite,
        scored=tuple(ScoredTrial(trial, score, 0.0) for trial, score in named if trial is not None),
        skipped=tuple(Skipped(**each) for each in found["skipped"]),
        failures=tuple(FailedTrial(trial, error) for trial, error in failed if trial is not None),
    )


def _name(entry: Mapping[str, object]) -> str:
    return (
        f"{entry['experiment']}: {entry['contender']} on {entry['workload']},"
        f" {entry['conditions']}, seed {entry['seed']}"
    )


def _trial(scored: ScoredTrial) -> dict[str, object]:
    trial, contender = scored.trial, scored.trial.contender
    return {
        "experiment": trial.experiment,
        "workload": trial.workload.name,
        "conditions": trial.conditions.name,
        "contender": contender.label,
        "policy": contender.policy,
        "settings": dict(contender.settings),
        "standing": contender.role.value,
        "seed": trial.seed,
        "score": asdict(scored.score),
    }


def listed(suite: Suite) -> dict[str, object]:
    """A suite in a list of suites."""
    trials = list(suite.trials())
    return {
        "suite": suite.name,
        "title": suite.title,
        "trials": len(trials),
        "experiments": [
            {
                "experiment": each.name,
                "title": each.title,
                "question": each.question,
                "track": each.track,
                "workloads": [workload.name for workload in each.workloads],
                "conditions": [conditions.name for conditions in each.conditions],
                "contenders": [contender.label for contender in each.contenders],
                "trials": sum(1 for _ in each.trials()),
            }
            for each in suite.experiments
        ],
    }
