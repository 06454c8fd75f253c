"""The goal for our own policy, put to every comparison: met, or missed by how much.

Where waiting matters (LAS's excess is at least a fifth of its mean JCT) our excess is to be at least
10 % below that of the best published policy, elsewhere within 1 % of it. The best is chosen with
hindsight, on the measured jobs themselves: nobody could have chosen better. The tails may be at most
a tenth worse than that policy's, and the worst job at most one fair share worse off than under LAS,
unless the policy states a bound of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from trainmaster.evaluation.report.comparisons import (
    Comparison,
    Entrant,
    excess,
    lowest,
    mean_jct,
    ratio,
)
from trainmaster.evaluation.score import Score
from trainmaster.evaluation.statistics import Estimate
from trainmaster.evaluation.suite import Standing

GOAL_TRACKS = ("order", "placement", "packing", "elastic")
MATTERS = 0.2
"""Part of LAS's mean JCT that is excess from which order matters."""
CLEARLY_LOWER = 0.9
ALIKE = 1.01
TAIL_FACTOR = 1.1
WORST_ROOM = 1.0
STATED_BOUNDS: Mapping[str, float] = {}
"""By policy: the largest rho that its documentation promises; allowed where it is more than LAS's + 1."""
CLOSE = 1e-9
"""Of a bound that is met exactly, nothing may be lost to rounding."""


class Criterion(Enum):
    """What the goal asks for, in the words of the report."""

    EXCESS = "excess"
    RHO_P99 = "rho p99"
    RHO_OVER_1 = "share of rho > 1"
    RHO_MAX = "largest rho"


@dataclass(frozen=True, slots=True)
class Check:
    """One criterion: what was found, what is allowed."""

    criterion: Criterion
    found: float
    allowed: float

    @property
    def is_met(self) -> bool:
        return self.found <= self.allowed + CLOSE * max(1.0, abs(self.allowed))

    @property
    def missed_by(self) -> float:
        return max(0.0, self.found - self.allowed)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Our policy on one comparison, against the best published one."""

    comparison: Comparison
    ours: Entrant
    best: Entrant
    las: Entrant | None
    bound: Entrant | None
    """The oracle that none can reach: what is left to gain."""
    matters: bool
    """Whether LAS's excess is large enough for the 10 % to be asked."""
    to_best: Estimate | None
    """Our excess over the best's; None where one is negative, or a job did not end or was rejected."""
    checks: tuple[Check, ...]
    """None where a trial of ours failed or rejected jobs that the best served: that is no pair."""

    @property
    def is_met(self) -> bool:
        return self.excess_check is not None and all(check.is_met for check in self.checks)

    @property
    def excess_check(self) -> Check | None:
        return next((c for c in self.checks if c.criterion is Criterion.EXCESS), None)

    @property
    def misses(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.is_met)

    @property
    def is_sure(self) -> bool:
        """Whether the whole interval of the excess lies on one side of what is allowed."""
        check = self.excess_check
        if check is None or self.to_best is None or self.to_best.interval is None:
            return False
        interval = self.to_best.interval
        return interval.high <= check.allowed or interval.low > check.allowed

    @property
    def room(self) -> Estimate | None:
        """The oracle's excess over the best published one's: as low as order could bring it."""
        return None if self.bound is None else ratio(self.bound, self.best, excess)


def verdicts(found: tuple[Comparison, ...]) -> tuple[Verdict, ...]:
    """One for each comparison of the goal's tracks that our policy and a published one took part in."""
    judged = (judge(each) for each in found if each.experiment.track in GOAL_TRACKS)
    return tuple(verdict for verdict in judged if verdict is not None)


def judge(comparison: Comparison) -> Verdict | None:
    ours = comparison.ours
    best = lowest(comparison.of_standing(Standing.PUBLISHED), comparison.subject.measure)
    if ours is None or best is None:
        return None
    las = comparison.of_policy("las")
    matters = order_matters(las)
    are_paired = ours.jobs == best.jobs
    checks = (*_excess(ours, best, matters), *_tails(ours, best), *_worst(ours, las))
    return Verdict(
        comparison=comparison,
        ours=ours,
        best=best,
        las=las,
        bound=_oracle(comparison),
        matters=matters,
        to_best=ratio(ours, best, excess),
        checks=checks if are_paired else (),
    )


def order_matters(las: Entrant | None) -> bool:
    """Whether LAS's excess is at least a fifth of its mean JCT; without LAS it is asked for."""
    if las is None:
        return True
    waiting, whole = las.mean(excess), las.mean(mean_jct)
    return waiting is None or whole is None or waiting >= MATTERS * whole * (1 - CLOSE)


def _oracle(comparison: Comparison) -> Entrant | None:
    bounds = comparison.of_standing(Standing.BOUND)
    return comparison.of_policy("srsf") or lowest(bounds, comparison.subject.measure)


def _excess(ours: Entrant, best: Entrant, matters: bool) -> Iterator[Check]:
    """As a ratio; where an excess is negative (grown jobs) as seconds."""
    asked = CLEARLY_LOWER if matters else ALIKE
    found = ratio(ours, best, excess)
    if found is not None:
        yield Check(Criterion.EXCESS, found.value, asked)
        return
    own, other = ours.mean(excess), best.mean(excess)
    if own is not None and other is not None:
        yield Check(Criterion.EXCESS, own, other + (asked - 1) * abs(other))


def _tails(ours: Entrant, best: Entrant) -> Iterator[Check]:
    for criterion, measure in (
        (Criterion.RHO_P99, rho_p99),
        (Criterion.RHO_OVER_1, rho_over_1),
    ):
        own, other = ours.mean(measure), best.mean(measure)
        if own is not None and other is not None:
            yield Check(criterion, own, TAIL_FACTOR * other)


def _worst(ours: Entrant, las: Entrant | None) -> Iterator[Check]:
    """The seed on which our worst job is furthest from LAS's worst."""
    if las is None:
        return
    own, other = ours.values(rho_max), las.values(rho_max)
    seeds = sorted(own.keys() & other.keys(), key=lambda seed: (own[seed] - other[seed], seed))
    if seeds:
        worst = seeds[-1]
        stated = STATED_BOUNDS.get(ours.contender.policy, 0.0)
        yield Check(Criterion.RHO_MAX, own[worst], max(stated, other[worst] + WORST_ROOM))


def rho_p99(score: Score) -> float | None:
    return score.rho_p99


def rho_over_1(score: Score) -> float | None:
    return score.rho_over_1


def rho_max(score: Score) -> float | None:
    return score.rho_max
