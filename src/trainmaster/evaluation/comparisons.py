"""Scores grouped for comparison: all contenders on one workload under the same conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import fsum
from operator import attrgetter

from trainmaster.evaluation.score import Score, SuiteResult
from trainmaster.evaluation.statistics import (
    SMALLEST,
    IntervalEstimate,
    Observed,
    geometric_mean,
    mean,
    paired_ratio,
)
from trainmaster.evaluation.suite import Conditions, Contender, ContenderRole, Experiment, Workload

Measure = Callable[[Score], float | None]

NEGLIGIBLE = 0.01
"""An excess of at most this part of the mean JCT is negligible."""


excess: Measure = attrgetter("excess_s")
mean_jct: Measure = attrgetter("mean_jct_s")


@dataclass(frozen=True, slots=True)
class Subject:
    """The measure that contenders are ranked by and compared on."""

    name: str
    measure: Measure


EXCESS = Subject("excess", excess)
MEAN_JCT = Subject("mean JCT", mean_jct)
"""Used where jobs grow: their excess can be negative, and ratios of it then mean nothing."""


@dataclass(frozen=True, slots=True)
class ContenderScores:
    """A contender and its scores by seed."""

    contender: Contender
    scores: Mapping[int, Score]

    @property
    def label(self) -> str:
        return self.contender.label

    @property
    def role(self) -> ContenderRole:
        return self.contender.role

    @property
    def jobs(self) -> dict[int, int]:
        """Measured jobs by seed, rejected ones left out."""
        return {seed: score.jobs for seed, score in self.scores.items()}

    def values(self, measure: Measure) -> dict[int, float]:
        """By seed, without seeds that lack the measure."""
        found = ((seed, measure(score)) for seed, score in sorted(self.scores.items()))
        return {seed: value for seed, value in found if value is not None}

    def mean(self, measure: Measure) -> float | None:
        """Over all seeds; None when a seed lacks it, because the rest would not be comparable."""
        values = self.values(measure).values()
        return fsum(values) / len(values) if values and len(values) == len(self.scores) else None

    def estimate(self, measure: Measure) -> IntervalEstimate | None:
        return mean(self.values(measure)) if self.has(measure) else None

    def has(self, measure: Measure) -> bool:
        """Whether every seed has it."""
        return bool(self.scores) and len(self.values(measure)) == len(self.scores)

    @property
    def unfinished(self) -> int:
        """Jobs that did not end, over all seeds."""
        return sum(score.unfinished for score in self.scores.values())

    @property
    def chosen(self) -> str:
        """What tuning picked, in words; the most frequent first where seeds differ."""
        picked = [_worded(score.chosen) for score in self.scores.values() if score.chosen]
        order = sorted(set(picked), key=lambda words: (-picked.count(words), words))
        if len(order) < 2:
            return "".join(order)
        return f"{order[0]} ({picked.count(order[0])} of {len(picked)} seeds)"


@dataclass(frozen=True, slots=True)
class Comparison:
    """All contenders on one workload under one set of conditions."""

    experiment: Experiment
    workload: Workload
    conditions: Conditions
    contenders: tuple[ContenderScores, ...]

    @property
    def title(self) -> str:
        """The workload, and the conditions where the experiment has several."""
        name = self.workload.title or self.workload.name
        several = len(self.experiment.conditions) > 1
        return f"{name}, {self.conditions.name}" if several else name

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.experiment.name, self.workload.name, self.conditions.name)

    def contender(self, label: str) -> ContenderScores | None:
        return next((each for each in self.contenders if each.label == label), None)

    def of_role(self, *roles: ContenderRole) -> tuple[ContenderScores, ...]:
        return tuple(each for each in self.contenders if each.role in roles)

    def of_policy(self, policy: str) -> ContenderScores | None:
        """The first contender that runs this policy; tuned contenders come last."""
        found = [each for each in self.contenders if each.contender.policy == policy]
        return min(found, key=lambda each: bool(each.contender.grid), default=None)

    @property
    def subject(self) -> Subject:
        """The excess; the mean JCT where an excess is negative, which orders contenders alike on a seed."""
        values = [value for each in self.contenders for value in each.values(excess).values()]
        return MEAN_JCT if any(value < 0 for value in values) else EXCESS

    @property
    def baseline(self) -> ContenderScores | None:
        return self.contender(self.experiment.baseline)

    @property
    def ours(self) -> ContenderScores | None:
        return next(iter(self.of_role(ContenderRole.OURS)), None)

    @property
    def load(self) -> float | None:
        """As realised, the mean over seeds; the jobs are the same for all contenders."""
        return next(
            (load for each in self.contenders if (load := each.mean(attrgetter("load")))), None
        )

    @property
    def is_transient(self) -> bool:
        return any(score.is_transient for each in self.contenders for score in each.scores.values())

    @property
    def has_unfinished(self) -> bool:
        return any(each.unfinished for each in self.contenders)

    @property
    def jobs(self) -> int:
        """Measured jobs of one seed."""
        return next((s.jobs for each in self.contenders for s in each.scores.values()), 0)

    @property
    def gpus(self) -> int:
        return next((s.gpus for each in self.contenders for s in each.scores.values()), 0)

    @property
    def seeds(self) -> int:
        return len({seed for each in self.contenders for seed in each.scores})


def ratio(
    ours: ContenderScores, theirs: ContenderScores, measure: Measure
) -> IntervalEstimate | None:
    """Ours over theirs on the same jobs; None unless both have the measure on every seed."""
    if not ours.has(measure) or not theirs.has(measure) or not _served_alike(ours, theirs):
        return None
    found = paired_ratio(_observed(ours, measure), _observed(theirs, measure))
    if found is None or measure is not excess:
        return found
    return replace(
        found, is_negligible=_has_negligible_excess(ours) and _has_negligible_excess(theirs)
    )


def _has_negligible_excess(contender: ContenderScores) -> bool:
    """Whether its excess is at most `NEGLIGIBLE` of its mean JCT."""
    above, whole = contender.mean(excess), contender.mean(mean_jct)
    return above is not None and above <= max(SMALLEST, NEGLIGIBLE * (whole or 0.0))


def _served_alike(ours: ContenderScores, theirs: ContenderScores) -> bool:
    """Whether neither rejects jobs that the other serves: means over different jobs cannot be compared."""
    own, other = ours.jobs, theirs.jobs
    return all(own[seed] == other[seed] for seed in own.keys() & other.keys())


def _observed(contender: ContenderScores, measure: Measure) -> dict[int, Observed]:
    has_blocks = measure is excess
    return {
        seed: Observed(value, contender.scores[seed].excess_blocks_s if has_blocks else ())
        for seed, value in contender.values(measure).items()
    }


def common_subject(found: Iterable[Comparison]) -> Subject:
    """The measure that all of these can be compared on."""
    return MEAN_JCT if any(each.subject is MEAN_JCT for each in found) else EXCESS


def ratios_to_baseline(comparison: Comparison, measure: Measure) -> dict[str, IntervalEstimate]:
    """The measure over the baseline's, by label."""
    baseline = comparison.baseline
    if baseline is None:
        return {}
    pairs = ((each.label, ratio(each, baseline, measure)) for each in comparison.contenders)
    return {label: found for label, found in pairs if found is not None}


def typical(contenders: Iterable[ContenderScores], measure: Measure) -> dict[str, float]:
    """The geometric mean over seeds, as paired ratios are, for each that has the measure on every one.

    So the lowest has no ratio above 1 to another. A contender that failed on the hardest seed, or
    rejected jobs that others served, is left out.
    """
    candidates = tuple(contenders)
    most: dict[int, int] = {}
    for each in candidates:
        for seed, score in each.scores.items():
            most[seed] = max(score.jobs, most.get(seed, 0))
    whole = [each for each in candidates if each.jobs == most and each.has(measure)]
    values = {each.label: each.values(measure).values() for each in whole}
    floored = {label: [max(v, SMALLEST) for v in own] for label, own in values.items()}
    return {label: geometric_mean(own) or 0.0 for label, own in floored.items()}


def lowest(contenders: Iterable[ContenderScores], measure: Measure) -> ContenderScores | None:
    """The contender with the lowest typical value; the first of equals."""
    candidates = tuple(contenders)
    values = typical(candidates, measure)
    scored = [each for each in candidates if each.label in values]
    return min(scored, key=lambda each: values[each.label], default=None)


def comparisons(result: SuiteResult) -> tuple[Comparison, ...]:
    """Every comparison of which at least one trial was run, in the suite's order."""
    return tuple(found for found in _all(result) if found.contenders)


def _all(result: SuiteResult) -> Iterator[Comparison]:
    scores: dict[tuple[str, str, str, str], dict[int, Score]] = {}
    for each in result.scored:
        trial = each.trial
        key = (trial.experiment, trial.workload.name, trial.conditions.name, trial.contender.label)
        scores.setdefault(key, {})[trial.seed] = each.score
    for experiment in result.suite.experiments:
        for workload in experiment.workloads:
            for conditions in experiment.conditions:
                place = (experiment.name, workload.name, conditions.name)
                contenders = (
                    ContenderScores(contender, scores.get((*place, contender.label), {}))
                    for contender in experiment.contenders
                )
                kept = tuple(each for each in contenders if each.scores)
                yield Comparison(experiment, workload, conditions, kept)


def _worded(settings: Mapping[str, str] | None) -> str:
    return " ".join(f"{key}={value}" for key, value in (settings or {}).items())
