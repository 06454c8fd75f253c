"""The orderings that papers claim, put to every comparison in which both sides took part.

A ratio below 1 is for the claim. It *holds* where the measure is lower, is a *draw* where the interval
reaches over 1 (or, without an interval, the two are within 1 % of each other), and is *reversed*
otherwise. Where both sides come to exactly the same they have decided alike, and the claim is *untested*
there. A side that takes part in its tuned form only is that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from benchmarks.published.acceptance import rho_max
from trainmaster.evaluation.comparisons import (
    Comparison,
    ContenderScores,
    Measure,
    excess,
    mean_jct,
    ratio,
)
from trainmaster.evaluation.number_format import ratio_words, with_interval
from trainmaster.evaluation.statistics import IntervalEstimate, geometric_mean
from trainmaster.report.rendering import Cell, Column, Table
from trainmaster.text import formatting as wording

ALIKE = 0.01


@dataclass(frozen=True, slots=True)
class PublishedClaim:
    """A published ordering of two contenders by label: the measure of `better` is the lower one."""

    better: str
    worse: str
    source: str
    measure: Measure = mean_jct
    measured: str = "mean JCT"
    tracks: tuple[str, ...] = ()
    """Where it was claimed; everywhere when empty."""

    def __str__(self) -> str:
        return f"{self.better} below {self.worse}"


class ClaimOutcome(Enum):
    HELD = "held"
    DRAW = "draw"
    REVERSED = "reversed"
    UNTESTED = "untested"


@dataclass(frozen=True, slots=True)
class Instance:
    """A claim on one comparison."""

    comparison: Comparison
    found: IntervalEstimate
    in_excess: IntervalEstimate | None
    """The same pair by excess. Service is the same for both, so a difference in one is a difference in
    the other, and for a fixed trace only the excess is known block by block."""

    @property
    def outcome(self) -> ClaimOutcome:
        interval = self.found.interval
        if self.found.value == 1.0 and (interval is None or interval.low == interval.high):
            return ClaimOutcome.UNTESTED
        if interval is None and self.in_excess is not None:
            interval = self.in_excess.interval
        if interval is not None and interval.has(1.0):
            return ClaimOutcome.DRAW
        if abs(self.found.value - 1.0) <= ALIKE:
            return ClaimOutcome.DRAW
        return ClaimOutcome.HELD if self.found.value < 1.0 else ClaimOutcome.REVERSED


@dataclass(frozen=True, slots=True)
class ClaimEvidence:
    """A claim with all comparisons for or against it."""

    claim: PublishedClaim
    instances: tuple[Instance, ...]

    def count(self, outcome: ClaimOutcome) -> int:
        return sum(each.outcome is outcome for each in self.instances)

    @property
    def is_tested(self) -> bool:
        """Whether in some comparison its two sides did not decide alike."""
        return self.count(ClaimOutcome.UNTESTED) < len(self.instances)


TIRESIAS, AFS = "Tiresias (NSDI 2019)", "AFS (NSDI 2021)"
GITTINS = "Gittins index (Gittins 1989; Scully 2018)"
ELASTIC = ("elastic", "paper")

CLAIMS = (
    PublishedClaim("tiresias-l", "yarn-cs", f"{TIRESIAS}: up to 5.5 times"),
    PublishedClaim("tiresias-l", "gandiva", f"{TIRESIAS}: up to 2 times"),
    PublishedClaim("tiresias-g", "tiresias-l", f"{TIRESIAS}: a known distribution helps"),
    PublishedClaim("tiresias-l", "fifo", f"{TIRESIAS}: against head-of-line blocking"),
    PublishedClaim("srsf", "srtf", f"{TIRESIAS}: size and time, not time alone"),
    PublishedClaim("srtf", "las", "remaining time known beats unknown"),
    PublishedClaim("srsf", "las", "remaining service known beats unknown"),
    PublishedClaim("las", "fifo", "heavy-tailed run times favour least attained service"),
    PublishedClaim("gittins global", "las", GITTINS),
    PublishedClaim("gittins by class", "gittins global", "knowing a job's class helps"),
    PublishedClaim("qssf", "fifo", "Helios (SC 2021): shortest first by history"),
    PublishedClaim("fifo easy", "fifo", "EASY backfill (Lifka 1995)"),
    PublishedClaim("max-min", "fifo", "dynamic max-min sharing of elastic jobs", tracks=ELASTIC),
    PublishedClaim("afs-l", "max-min", AFS, tracks=ELASTIC),
    PublishedClaim("afs-l", "tiresias-l", f"{AFS}: up to 3.1 times", tracks=ELASTIC),
    PublishedClaim("afs-l", "srtf", f"{AFS}: up to 2.7 times", tracks=ELASTIC),
    PublishedClaim("afs-l", "themis", f"{AFS}: up to 2.2 times", tracks=ELASTIC),
    PublishedClaim("optimus", "fair", "Optimus (EuroSys 2018): 2.4 times", tracks=ELASTIC),
    PublishedClaim("goodput", "tiresias-l", "Pollux (OSDI 2021): 37 to 50 % lower", tracks=ELASTIC),
    PublishedClaim("goodput", "optimus", "Pollux (OSDI 2021)", tracks=ELASTIC),
    PublishedClaim(
        "themis",
        "tiresias-l",
        "Themis (NSDI 2020): more than 2.25 times fairer",
        measure=rho_max,
        measured="largest rho",
    ),
    PublishedClaim("antman", "philly", "AntMan (OSDI 2020): packing fills idle cycles"),
    PublishedClaim("gandiva", "philly", "Gandiva (OSDI 2018): packing and time-slices"),
)


def check_claims(
    found: Sequence[Comparison], claims: Sequence[PublishedClaim] = CLAIMS
) -> tuple[ClaimEvidence, ...]:
    """Every claim with the comparisons that have both sides: for some there is none."""
    return tuple(ClaimEvidence(claim, tuple(_instances(claim, found))) for claim in claims)


def _instances(claim: PublishedClaim, found: Sequence[Comparison]) -> Iterator[Instance]:
    for comparison in found:
        if claim.tracks and comparison.experiment.track not in claim.tracks:
            continue
        better, worse = _side(comparison, claim.better), _side(comparison, claim.worse)
        if better is None or worse is None:
            continue
        estimate = ratio(better, worse, claim.measure)
        if estimate is not None:
            by_excess = ratio(better, worse, excess) if claim.measure is mean_jct else None
            yield Instance(comparison, estimate, by_excess)


def _side(comparison: Comparison, label: str) -> ContenderScores | None:
    """The contender of that label, or its tuned form where only that took part."""
    return comparison.contender(label) or comparison.contender(f"{label} tuned")


# -- the section -----------------------------------------------------------------------------------

COLUMNS = (
    *("claim", Column("by whom", is_words=True), Column("measure", is_words=True)),
    *("held", "draw", "reversed", "ratio", "lowest", "highest"),
)


def claims_context(found: Sequence[Comparison]) -> dict[str, object]:
    all_claims = check_claims(found)
    checked = [each for each in all_claims if each.is_tested]
    return {
        "claims": checked,
        "claims_table": Table(COLUMNS, [_row(each) for each in checked]),
        "reversals": [_against(each) for each in checked if each.count(ClaimOutcome.REVERSED)],
        "untested": [_untested(each) for each in all_claims if not each.is_tested],
    }


def _untested(checked: ClaimEvidence) -> str:
    claim, places = checked.claim, len(checked.instances)
    why = "no experiment has both"
    if places:
        where = wording.plural(places, "comparison")
        why = f"the two decided alike in all of {where}, so that nothing was compared"
    return f"{claim}, {claim.measured} ({claim.source}): {why}."


def _row(checked: ClaimEvidence) -> tuple[str | Cell, ...]:
    tested = [each for each in checked.instances if each.outcome is not ClaimOutcome.UNTESTED]
    values = [each.found.value for each in tested]
    held, turned = checked.count(ClaimOutcome.HELD), checked.count(ClaimOutcome.REVERSED)
    claim = checked.claim
    return (
        *(str(claim), claim.source, claim.measured),
        Cell(str(held), "met" if held and not turned else ""),
        str(checked.count(ClaimOutcome.DRAW)),
        Cell(str(turned), "missed" if turned else ""),
        *map(ratio_words, (geometric_mean(values), min(values), max(values))),
    )


def _against(checked: ClaimEvidence) -> str:
    turned = [each for each in checked.instances if each.outcome is ClaimOutcome.REVERSED]
    turned.sort(key=lambda each: -each.found.value)
    named = [_place(each) for each in turned[:6]]
    if len(turned) > len(named):
        named.append(f"{len(turned) - len(named)} more")
    return f"{checked.claim}: reversed on {wording.listing(named)}."


def _place(instance: Instance) -> str:
    comparison = instance.comparison
    where = f"{comparison.experiment.title}: {comparison.title}"
    return f"{where} ({with_interval(instance.found)})"
