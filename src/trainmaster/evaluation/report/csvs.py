"""All scores as one CSV file, a line per trial."""

from __future__ import annotations

import csv
import io
from dataclasses import fields

from trainmaster.evaluation.score import Campaign, Score, Scored

TRIAL = ("experiment", "track", "workload", "conditions", "contender", "policy", "standing", "seed")
APART = ("chosen", "delays", "bins", "excess_blocks_s", "remarks")
MEASURES = tuple(each.name for each in fields(Score) if each.name not in APART)


def scores_csv(campaign: Campaign) -> str:
    """In the suite's order; an absent value is an empty field."""
    tracks = {each.name: each.track for each in campaign.suite.experiments}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*TRIAL, *MEASURES, "chosen"])
    for each in campaign.scored:
        writer.writerow(_line(each, tracks[each.trial.experiment]))
    return text.getvalue()


def _line(scored: Scored, track: str) -> list[str]:
    trial, score = scored.trial, scored.score
    chosen = " ".join(f"{key}={value}" for key, value in (score.chosen or {}).items())
    return [
        trial.experiment,
        track,
        trial.workload.name,
        trial.conditions.name,
        trial.contender.label,
        trial.contender.policy,
        trial.contender.standing.value,
        str(trial.seed),
        *(_field(getattr(score, name)) for name in MEASURES),
        chosen,
    ]


def _field(value: float | bool | None) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, int) else f"{value:.6f}".rstrip("0").rstrip(".")
