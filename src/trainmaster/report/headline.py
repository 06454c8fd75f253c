"""The report's finding in words: which policy is best, by how much, and what is unsure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.report.policy_run import PolicyRun
from trainmaster.text import formatting as wording

SAME = 1.005
WORTH_A_FACTOR = 1.1


@dataclass(frozen=True, slots=True)
class Headline:
    """One sentence to read aloud, and the ones that go with it."""

    sentence: str
    details: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scored:
    """A policy with a mean completion time."""

    run: PolicyRun
    jct_s: float

    @property
    def label(self) -> str:
        return self.run.label


def headline(runs: Sequence[PolicyRun]) -> Headline:
    """Best mean JCT against the worst, and against the first, the baseline."""
    scored = [
        Scored(each, jct) for each in runs if (jct := each.result.summary.avg_jct_s) is not None
    ]
    details = [_unfinished(each) for each in runs if each.result.summary.unfinished]
    if not scored:
        return Headline(_without_means(runs), tuple(details))
    best = min(scored, key=lambda each: each.jct_s)
    worst = max(scored, key=lambda each: each.jct_s)
    baseline = scored[0]
    if baseline.run.slot == 0 and baseline not in (best, worst):
        against = _advantage(baseline.jct_s, best.jct_s)
        details.insert(0, f"Against {baseline.label}, the first named, {best.label} is {against}.")
    return Headline(_comparison(scored, best, worst), tuple(details))


def advantage_over_first(run: PolicyRun, first: PolicyRun) -> float | None:
    """How many times shorter the mean JCT is than the first policy's."""
    own, other = run.result.summary.avg_jct_s, first.result.summary.avg_jct_s
    return None if not own or not other else other / own


def _comparison(scored: Sequence[Scored], best: Scored, worst: Scored) -> str:
    length = wording.duration(best.jct_s)
    if len(scored) == 1:
        return f"Under {best.label} the average job finishes in {length}."
    if worst.jct_s <= SAME * best.jct_s:
        names = wording.listing([each.label for each in scored])
        return f"Under {names} alike, the average job finishes in {length}."
    against = _advantage(worst.jct_s, best.jct_s)
    return (
        f"Under {best.label} the average job finishes in {length}: {against} than under "
        f"{worst.label} ({wording.duration(worst.jct_s)})."
    )


def _advantage(longer_s: float, shorter_s: float) -> str:
    if shorter_s <= 0:
        return "infinitely faster"
    factor = longer_s / shorter_s
    if factor < WORTH_A_FACTOR:
        return f"{100 * (1 - shorter_s / longer_s):.1f} % sooner"
    digits = 0 if factor >= 20 else 1 if factor >= 2 else 2
    return f"{factor:,.{digits}f} times faster"


def _without_means(runs: Sequence[PolicyRun]) -> str:
    if not any(each.result.summary.jobs for each in runs):
        return "There were no jobs to compare."
    if not any(each.result.summary.finished for each in runs):
        return "No job finished under any policy, so there is no completion time to compare."
    fewest = min(runs, key=lambda each: each.result.summary.unfinished)
    left = wording.plural(fewest.result.summary.unfinished, "job")
    if len(runs) == 1:
        return f"{fewest.label} left {left} unfinished at the horizon."
    return f"No policy finished every job: {fewest.label} comes closest, with {left} left over."


def _unfinished(run: PolicyRun) -> str:
    summary, horizon = run.result.summary, run.result.horizon_s
    where = f"at the horizon ({wording.duration(horizon)})" if horizon is not None else "at the end"
    left = f"{run.label} left {wording.plural(summary.unfinished, 'job')} unfinished {where}"
    if summary.avg_jct_lower_bound_s is None:
        return f"{left}, so it has no mean completion time."
    bound = wording.duration(summary.avg_jct_lower_bound_s)
    return f"{left}, so its mean completion time is only known to be at least {bound}."
