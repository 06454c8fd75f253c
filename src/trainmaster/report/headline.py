"""The report's finding in words: which policy is best, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def headline(runs: Sequence[PolicyRun]) -> Headline:
    """Best mean JCT against the worst, and against the first, the baseline."""
    jcts = {run.label: jct for run in runs if (jct := run.result.summary.avg_jct_s) is not None}
    details = [_unfinished(each) for each in runs if each.result.summary.unfinished]
    if not jcts:
        return Headline(_without_means(runs), tuple(details))
    best, worst = min(jcts, key=jcts.__getitem__), max(jcts, key=jcts.__getitem__)
    first = runs[0].label
    if first in jcts and first not in (best, worst):
        against = _advantage(jcts[first], jcts[best])
        details.insert(0, f"Against {first}, the first named, {best} is {against}.")
    return Headline(_comparison(jcts, best, worst), tuple(details))


def advantage_over_first(run: PolicyRun, first: PolicyRun) -> float | None:
    """How many times shorter the mean JCT is than the first policy's."""
    own, other = run.result.summary.avg_jct_s, first.result.summary.avg_jct_s
    return None if not own or not other else other / own


def _comparison(jcts: Mapping[str, float], best: str, worst: str) -> str:
    length = wording.duration(jcts[best])
    if len(jcts) == 1:
        return f"Under {best} the average job finishes in {length}."
    if jcts[worst] <= SAME * jcts[best]:
        return f"Under {wording.listing(list(jcts))} alike, the average job finishes in {length}."
    against = _advantage(jcts[worst], jcts[best])
    return (
        f"Under {best} the average job finishes in {length}: {against} than under "
        f"{worst} ({wording.duration(jcts[worst])})."
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
