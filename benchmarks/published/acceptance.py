"""The goal for our own policy, put to every comparison: met, or missed by how much.

Where waiting matters (LAS's excess is at least a fifth of its mean JCT) our excess is to be at least
10 % below that of the best published policy, elsewhere within 1 % of it. The best is chosen with
hindsight, on the measured jobs themselves: no user could have chosen better. The tails may be at most
a tenth worse than that policy's, and the worst job at most one fair share worse off than under LAS.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter

from trainmaster.evaluation.comparisons import (
    Comparison,
    ContenderScores,
    Measure,
    excess,
    lowest,
    mean_jct,
    ratio,
)
from trainmaster.evaluation.number_format import (
    change_words,
    load_words,
    ratio_words,
    with_interval,
)
from trainmaster.evaluation.report.figures import DotPanel, dot_plot
from trainmaster.evaluation.statistics import IntervalEstimate
from trainmaster.evaluation.suite import RANKED_TRACKS, ContenderRole, track_words
from trainmaster.report.metrics import signed_duration
from trainmaster.report.rendering import Cell, Column, Figure, Table, quoted
from trainmaster.text import formatting as wording
from trainmaster.text.formatting import ABSENT

MATTERS = 0.2
"""Part of LAS's mean JCT that is excess from which order matters."""
CLEARLY_LOWER = 0.9
ALIKE = 1.01
TAIL_FACTOR = 1.1
WORST_ROOM = 1.0
CLOSE = 1e-9
"""Tolerance for rounding where a bound is met exactly."""


rho_p99: Measure = attrgetter("rho_p99")
rho_over_1: Measure = attrgetter("rho_over_1")
rho_max: Measure = attrgetter("rho_max")


class Criterion(Enum):
    """What the goal asks for, in the words of the report's table and of its list of misses."""

    EXCESS = ("excess", "excess")
    RHO_P99 = ("rho p99", "99th percentile of rho")
    RHO_OVER_1 = ("share of rho > 1", "share of jobs with rho above 1")
    RHO_MAX = ("largest rho", "largest rho")


@dataclass(frozen=True, slots=True)
class Check:
    """One criterion: the value found, and the value allowed."""

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
class AcceptanceVerdict:
    """Our policy on one comparison, against the best published one."""

    comparison: Comparison
    ours: ContenderScores
    best: ContenderScores
    las: ContenderScores | None
    bound: ContenderScores | None
    """The oracle: how much is left to gain."""
    matters: bool
    """Whether LAS's excess is large enough to ask for the 10 %."""
    to_best: IntervalEstimate | None
    """Our excess over the best's; None where one is negative, or a job did not end or was rejected."""
    checks: tuple[Check, ...]
    """None where a trial of ours failed or rejected jobs that the best served: that is not a pair."""

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
        """Whether the whole interval of the excess lies on one side of the allowed value."""
        check = self.excess_check
        if check is None or self.to_best is None or self.to_best.interval is None:
            return False
        interval = self.to_best.interval
        return interval.high <= check.allowed or interval.low > check.allowed

    @property
    def room(self) -> IntervalEstimate | None:
        """The oracle's excess over the best published one's: as low as order could bring it."""
        return None if self.bound is None else ratio(self.bound, self.best, excess)


def verdicts(found: tuple[Comparison, ...]) -> tuple[AcceptanceVerdict, ...]:
    """One for each comparison of the goal's tracks that our policy and a published one took part in."""
    judged = (judge(each) for each in found if each.experiment.track in RANKED_TRACKS)
    return tuple(verdict for verdict in judged if verdict is not None)


def judge(comparison: Comparison) -> AcceptanceVerdict | None:
    ours = comparison.ours
    best = lowest(comparison.of_role(ContenderRole.PUBLISHED), comparison.subject.measure)
    if ours is None or best is None:
        return None
    las = comparison.of_policy("las")
    matters = order_matters(las)
    are_paired = ours.jobs == best.jobs
    checks = (*_excess(ours, best, matters), *_tails(ours, best), *_worst(ours, las))
    return AcceptanceVerdict(
        comparison=comparison,
        ours=ours,
        best=best,
        las=las,
        bound=_oracle(comparison),
        matters=matters,
        to_best=ratio(ours, best, excess),
        checks=checks if are_paired else (),
    )


def order_matters(las: ContenderScores | None) -> bool:
    """Whether LAS's excess is at least a fifth of its mean JCT; without LAS it is asked for."""
    if las is None:
        return True
    waiting, whole = las.mean(excess), las.mean(mean_jct)
    return waiting is None or whole is None or waiting >= MATTERS * whole * (1 - CLOSE)


def _oracle(comparison: Comparison) -> ContenderScores | None:
    bounds = comparison.of_role(ContenderRole.BOUND)
    return comparison.of_policy("srsf") or lowest(bounds, comparison.subject.measure)


def _excess(ours: ContenderScores, best: ContenderScores, matters: bool) -> Iterator[Check]:
    """As a ratio; where an excess is negative (grown jobs) as seconds."""
    asked = CLEARLY_LOWER if matters else ALIKE
    found = ratio(ours, best, excess)
    if found is not None:
        yield Check(Criterion.EXCESS, found.value, asked)
        return
    own, other = ours.mean(excess), best.mean(excess)
    if own is not None and other is not None:
        yield Check(Criterion.EXCESS, own, other + (asked - 1) * abs(other))


def _tails(ours: ContenderScores, best: ContenderScores) -> Iterator[Check]:
    for criterion, measure in (
        (Criterion.RHO_P99, rho_p99),
        (Criterion.RHO_OVER_1, rho_over_1),
    ):
        own, other = ours.mean(measure), best.mean(measure)
        if own is not None and other is not None:
            yield Check(criterion, own, TAIL_FACTOR * other)


def _worst(ours: ContenderScores, las: ContenderScores | None) -> Iterator[Check]:
    """The seed on which our worst job is furthest from LAS's worst."""
    if las is None:
        return
    own, other = ours.values(rho_max), las.values(rho_max)
    seeds = sorted(own.keys() & other.keys(), key=lambda seed: (own[seed] - other[seed], seed))
    if seeds:
        worst = seeds[-1]
        yield Check(Criterion.RHO_MAX, own[worst], other[worst] + WORST_ROOM)


# -- the section -----------------------------------------------------------------------------------


def goal_context(judged: Sequence[AcceptanceVerdict]) -> dict[str, object]:
    """The template's values about the goal; empty when our own policy took no part."""
    if not judged:
        return {}
    to_best = [each.to_best for each in judged if each.to_best is not None]
    return {
        "verdicts": judged,
        "ours": quoted(judged[0].ours.label),
        "by_track": _by_track(judged),
        "surely_lower": sum(each.is_below for each in to_best),
        "to_best": to_best,
        "goal_figure": _figure(judged),
        "goal_table": Table(COLUMNS, [_row(each) for each in judged]),
        "misses": [_miss(each) for each in judged if not each.is_met],
    }


def _by_track(verdicts: Sequence[AcceptanceVerdict]) -> str:
    tracks: dict[str, list[bool]] = {}
    for each in verdicts:
        tracks.setdefault(each.comparison.experiment.track, []).append(each.is_met)
    parts = [f"{track_words(track)} {sum(met)} of {len(met)}" for track, met in tracks.items()]
    return wording.listing(parts)


def name_of(verdict: AcceptanceVerdict) -> str:
    return f"{track_words(verdict.comparison.experiment.track)}: {verdict.comparison.title}"


def _figure(verdicts: Sequence[AcceptanceVerdict]) -> Figure:
    names = _distinct([name_of(each) for each in verdicts])
    pairs = list(zip(names, verdicts, strict=True))
    found = {name: each.to_best for name, each in pairs if each.to_best is not None}
    limits = {
        name: room.value
        for name, each in pairs
        if name in found and (room := each.room) is not None
    }
    chart = dot_plot(
        "Our excess over the best published policy's",
        {name: "met" if each.is_met else "missed" for name, each in pairs},
        [DotPanel("", found, limits)],
        "Excess over that of the best published policy (log scale, less is better)",
        references=(CLEARLY_LOWER, 1.0),
    )
    return Figure("overall-goal", chart)


def _distinct(names: Sequence[str]) -> list[str]:
    """Rows are found by name, so each needs its own."""
    return [
        name if names.count(name) == 1 else f"{name} ({names[: place + 1].count(name)})"
        for place, name in enumerate(names)
    ]


COLUMNS = (
    *("track and workload", "load", "floor", "LAS", Column("best published", is_words=True)),
    *("its mean JCT", "ours", "excess ratio", "allowed", Column("verdict", is_words=True)),
    *("excess / SRSF's", "mean JCT / floor"),
)


def _row(verdict: AcceptanceVerdict) -> tuple[str | Cell, ...]:
    comparison, ours, las = verdict.comparison, verdict.ours, verdict.las
    to_bound = None if verdict.bound is None else ratio(ours, verdict.bound, excess)
    return (
        name_of(verdict),
        load_words(comparison.load, comparison.is_transient),
        wording.duration(_floor(ours)),
        wording.duration(None if las is None else las.mean(mean_jct)),
        f"{verdict.best.label} {quoted(verdict.best.chosen)}".strip(),
        wording.duration(verdict.best.mean(mean_jct)),
        wording.duration(ours.mean(mean_jct)),
        _ratio_words(verdict),
        Cell(_allowed_words(verdict), "soft"),
        _verdict_cell(verdict),
        ratio_words(None if to_bound is None else to_bound.value),
        ratio_words(_over_floor(ours)),
    )


def _floor(contender: ContenderScores) -> float | None:
    return contender.mean(lambda score: score.floor_s)


def _over_floor(contender: ContenderScores) -> float | None:
    whole, floor = contender.mean(mean_jct), _floor(contender)
    return None if whole is None or not floor else whole / floor


def _ratio_words(verdict: AcceptanceVerdict) -> str:
    if verdict.to_best is not None:
        return with_interval(verdict.to_best)
    check = verdict.excess_check
    return ABSENT if check is None else signed_duration(check.found)


def _allowed_words(verdict: AcceptanceVerdict) -> str:
    check = verdict.excess_check
    if check is None:
        return ABSENT
    bound = ratio_words(check.allowed) if verdict.to_best else signed_duration(check.allowed)
    return f"\N{LESS-THAN OR EQUAL TO} {bound}"


def _verdict_cell(verdict: AcceptanceVerdict) -> Cell:
    if verdict.is_met:
        return Cell("met", "met")
    if verdict.excess_check is None:
        return Cell(f"undecided: {_undecided(verdict)}", "missed")
    return Cell("missed: " + ", ".join(c.criterion.value[0] for c in verdict.misses), "missed")


def _undecided(verdict: AcceptanceVerdict) -> str:
    ours, best = verdict.ours, verdict.best
    if ours.unfinished:
        return "unfinished jobs"
    return "failed trials" if ours.scores.keys() != best.scores.keys() else "rejected jobs"


def _miss(verdict: AcceptanceVerdict) -> str:
    if verdict.excess_check is None:
        return f"{name_of(verdict)}: {_undecided(verdict)}, so there is no excess to compare."
    said = "; ".join(_check_words(check, verdict) for check in verdict.misses)
    reasons = " ".join(reason for reason in (_room_words(verdict), _jct_words(verdict)) if reason)
    return f"{name_of(verdict)}: {said}. {reasons}".strip()


def _check_words(check: Check, verdict: AcceptanceVerdict) -> str:
    name = check.criterion.value[1]
    if check.criterion is Criterion.EXCESS and verdict.to_best is None:
        found, allowed = signed_duration(check.found), signed_duration(check.allowed)
        return f"{name} {found}, allowed {allowed}"
    if check.criterion is Criterion.EXCESS:
        percent = wording.significant(100 * check.missed_by, 2)
        doubt = "" if verdict.is_sure else ", within its interval"
        return (
            f"{name} {ratio_words(check.found)} of {verdict.best.label}'s where"
            f" {ratio_words(check.allowed)} is asked: missed by {percent} % of it{doubt}"
        )
    worded = wording.share if check.criterion is Criterion.RHO_OVER_1 else wording.decimal
    return f"{name} {worded(check.found)}, allowed {worded(check.allowed)}"


def _room_words(verdict: AcceptanceVerdict) -> str:
    """Whether the 10 % were within reach."""
    room, check = verdict.room, verdict.excess_check
    if room is None or check is None or check.is_met or verdict.bound is None:
        return ""
    reach = (
        f"{verdict.bound.label}, which knows every run time, only reaches {ratio_words(room.value)}"
    )
    if room.value > check.allowed:
        return f"Out of reach by ordering alone: even {reach}."
    return f"({reach.replace(' only', '')}.)"


def _jct_words(verdict: AcceptanceVerdict) -> str:
    """Where little waiting is at stake, what the miss means for a job."""
    if verdict.matters:
        return ""
    whole = ratio(verdict.ours, verdict.best, mean_jct)
    if whole is None:
        return ""
    part = verdict.best.mean(excess), verdict.best.mean(mean_jct)
    if part[0] is None or not part[1]:
        return ""
    return (
        f"Excess is only {wording.share(part[0] / part[1])} of the mean JCT there; the mean JCT is"
        f" {change_words(whole.value)}."
    )
