"""A campaign as JSON: the same bytes for the same suite, however it was run."""

from __future__ import annotations

import json
from dataclasses import asdict

from trainmaster.evaluation.score import Campaign, Scored
from trainmaster.evaluation.suite import Suite


def to_json(campaign: Campaign) -> str:
    """`{"suite", "trials": [...], "skipped": [...], "failures": [...]}`, one trial per line."""
    suite = campaign.suite
    trials = ",\n".join(json.dumps(_trial(each)) for each in campaign.scored)
    rest = {
        "skipped": [asdict(each) for each in campaign.skipped],
        "failures": [{"trial": str(each.trial), "error": each.error} for each in campaign.failures],
    }
    head = json.dumps({"suite": suite.name, "title": suite.title})[:-1]
    return f'{head}, "trials": [\n{trials}\n], {json.dumps(rest)[1:]}\n'


def _trial(scored: Scored) -> dict[str, object]:
    trial, contender = scored.trial, scored.trial.contender
    return {
        "experiment": trial.experiment,
        "workload": trial.workload.name,
        "conditions": trial.conditions.name,
        "contender": contender.label,
        "policy": contender.policy,
        "settings": dict(contender.settings),
        "standing": contender.standing.value,
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
