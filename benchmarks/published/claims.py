"""The orderings that papers claim, put to every comparison in which both sides took part.

A ratio below 1 is for the claim. It *holds* where the measure is lower, is a *draw* where the interval
reaches over 1 (or, without an interval, the two are within 1 % of each other), and is *reversed*
otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from benchmarks.published.acceptance import rho_max
from trainmaster.evaluation.comparisons import (
    Comparison,
    Measure,
    excess,
    mean_jct,
    ratio,
)
from trainmaster.evaluation.number_format import ratio_words, with_interval
from trainmaster.evaluation.statistics import Estimate, geometric_mean
from trainmaster.report.rendering import Cell, Column, Table
from trainmaster.text import formatting as wording

ALIKE = 0.01


@dataclass(frozen=True, slots=True)
class Claim:
    """Somebody's ordering of two contenders by label: the measure of `better` is the lower one."""

    better: str
    worse: str
    source: str
    measure: Measure = mean_jct
    measured: str = "mean JCT"
    tracks: tuple[str, ...] = ()
    """Where it was claimed; everywhere when empty."""

    def __str__(self) -> str:
        return f"{self.better} below {self.worse}"


class Outcome(Enum):
    HELD = "held"
    DRAW = "draw"
    REVERSED = "reversed"


@dataclass(frozen=True, slots=True)
class Instance:
    """A claim on one comparison."""

    comparison: Comparison
    found: Estimate
    in_excess: Estimate | None
    """The same pair by excess. Service is the same for both, so what parts them here parts them there;
    and of a fixed trace only the excess is known block by block."""

    @property
    def outcome(self) -> Outcome:
        interval = self.found.interval
        if interval is None and self.in_excess is not None:
            interval = self.in_excess.interval
        if interval is not None and interval.has(1.0):
            return Outcome.DRAW
        if abs(self.found.value - 1.0) <= ALIKE:
            return Outcome.DRAW
        return Outcome.HELD if self.found.value < 1.0 else Outcome.REVERSED


@dataclass(frozen=True, slots=True)
class Weighed:
    """A claim and all that speaks for or against it."""

    claim: Claim
    instances: tuple[Instance, ...]

    def count(self, outcome: Outcome) -> int:
        return sum(each.outcome is outcome for each in self.instances)


TIRESIAS, AFS = "Tiresias (NSDI 2019)", "AFS (NSDI 2021)"
GITTINS = "Gittins index (Gittins 1989; Scully 2018)"
ELASTIC = ("elastic", "paper")

CLAIMS = (
    Claim("tiresias-l", "yarn-cs", f"{TIRESIAS}: up to 5.5 times"),
    Claim("tiresias-l", "gandiva", f"{TIRESIAS}: up to 2 times"),
    Claim("tiresias-g", "tiresias-l", f"{TIRESIAS}: a known distribution helps"),
    Claim("tiresias-l", "fifo", f"{TIRESIAS}: against head-of-line blocking"),
    Claim("srsf", "srtf", f"{TIRESIAS}: size and time, not time alone"),
    Claim("srtf", "las", "remaining time known beats unknown"),
    Claim("srsf", "las", "remaining service known beats unknown"),
    Claim("las", "fifo", "heavy-tailed run times favour least attained service"),
    Claim("gittins", "las", GITTINS),
    Claim("gittins global", "las", GITTINS),
    Claim("gittins by class", "gittins global", "what is known of a job's class is worth knowing"),
    Claim("qssf", "fifo", "Helios (SC 2021): shortest first by history"),
    Claim("fifo easy", "fifo", "EASY backfill (Lifka 1995)"),
    Claim("max-min", "fifo", "dynamic max-min sharing of elastic jobs", tracks=ELASTIC),
    Claim("afs-l", "max-min", AFS, tracks=ELASTIC),
    Claim("afs-l", "tiresias-l", f"{AFS}: up to 3.1 times", tracks=ELASTIC),
    Claim("afs-l", "srtf", f"{AFS}: up to 2.7 times", tracks=ELASTIC),
    Claim("afs-l", "themis", f"{AFS}: up to 2.2 times", tracks=ELASTIC),
    Claim("optimus", "fair", "Optimus (EuroSys 2018): 2.4 times", tracks=ELASTIC),
    Claim("goodput", "tiresias-l", "Pollux (OSDI 2021): 37 to 50 % lower", tracks=ELASTIC),
    Claim("goodput", "optimus", "Pollux (OSDI 2021)", tracks=ELASTIC),
    Claim(
        "themis",
        "tiresias-l",
        "Themis (NSDI 2020): more than 2.25 times fairer",
        measure=rho_max,
        measured="largest rho",
    ),
    Claim("antman", "philly", "AntMan (OSDI 2020): packing fills idle cycles"),
    Claim("gandiva", "philly", "Gandiva (OSDI 2018): packing and time-slices"),
)


def weigh(found: Sequence[Comparison], claims: Sequence[Claim] = CLAIMS) -> tuple[Weighed, ...]:
    """Every claim of which some comparison has both sides."""
    weighed = (Weighed(claim, tuple(_instances(claim, found))) for claim in claims)
    return tuple(each for each in weighed if each.instances)


def _instances(claim: Claim, found: Sequence[Comparison]) -> Iterator[Instance]:
    for comparison in found:
        if claim.tracks and comparison.experiment.track not in claim.tracks:
            continue
        better, worse = comparison.entrant(claim.better), comparison.entrant(claim.worse)
        if better is None or worse is None:
            continue
        estimate = ratio(better, worse, claim.measure)
        if estimate is not None:
            by_excess = ratio(better, worse, excess) if claim.measure is mean_jct else None
            yield Instance(comparison, estimate, by_excess)


# -- the section -----------------------------------------------------------------------------------

COLUMNS = (
    *("claim", Column("by whom", is_words=True), Column("measure", is_words=True)),
    *("held", "draw", "reversed", "ratio", "lowest", "highest"),
)


def claims_context(found: Sequence[Comparison]) -> dict[str, object]:
    weighed = weigh(found)
    return {
        "claims": weighed,
        "claims_table": Table(COLUMNS, [_row(each) for each in weighed]),
        "reversals": [_against(each) for each in weighed if each.count(Outcome.REVERSED)],
    }


def _row(weighed: Weighed) -> tuple[str | Cell, ...]:
    values = [each.found.value for each in weighed.instances]
    held, turned = weighed.count(Outcome.HELD), weighed.count(Outcome.REVERSED)
    claim = weighed.claim
    return (
        *(str(claim), claim.source, claim.measured),
        Cell(str(held), "met" if held and not turned else ""),
        str(weighed.count(Outcome.DRAW)),
        Cell(str(turned), "missed" if turned else ""),
        *map(ratio_words, (geometric_mean(values), min(values), max(values))),
    )


def _against(weighed: Weighed) -> str:
    turned = [each for each in weighed.instances if each.outcome is Outcome.REVERSED]
    turned.sort(key=lambda each: -each.found.value)
    named = [_place(each) for each in turned[:6]]
    if len(turned) > len(named):
        named.append(f"{len(turned) - len(named)} more")
    return f"{weighed.claim}: reversed on {wording.listing(named)}."


def _place(instance: Instance) -> str:
    comparison = instance.comparison
    where = f"{comparison.experiment.title}: {comparison.title}"
    return f"{where} ({with_interval(instance.found)})"
