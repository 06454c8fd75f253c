"""The orderings that papers claim, put to every comparison in which both sides took part.

A ratio below 1 is for the claim. It *holds* where the measure is lower, is a *draw* where the interval
reaches over 1 (or, without an interval, the two are within 1 % of each other), and is *reversed*
otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from trainmaster.evaluation.report.comparisons import (
    Comparison,
    Entrant,
    Measure,
    excess,
    mean_jct,
    ratio,
)
from trainmaster.evaluation.report.verdicts import rho_max
from trainmaster.evaluation.score import Score
from trainmaster.evaluation.statistics import Estimate
from trainmaster.evaluation.suite import Standing

ALIKE = 0.01


@dataclass(frozen=True, slots=True)
class Who:
    """A side of a claim: a policy, and settings that it must have."""

    policy: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        said = ", ".join(f"{key}={value}" for key, value in self.settings.items())
        return f"{self.policy} ({said})" if said else self.policy

    def find(self, comparison: Comparison) -> Entrant | None:
        """The side as published; the tuned one where there is no other."""
        found = [each for each in comparison.entrants if self._is(each)]
        return min(found, key=lambda each: bool(each.contender.grid), default=None)

    def _is(self, entrant: Entrant) -> bool:
        contender = entrant.contender
        if contender.policy != self.policy or contender.standing is Standing.ABLATION:
            return False
        if not self.settings:
            return "backfill" not in contender.settings
        return all(contender.settings.get(key) == value for key, value in self.settings.items())


@dataclass(frozen=True, slots=True)
class Claim:
    """Somebody's ordering: the measure of `better` is lower than that of `worse`."""

    better: Who
    worse: Who
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


def _fairness(score: Score) -> float | None:
    return rho_max(score)


FIFO, LAS, SRTF, SRSF = Who("fifo"), Who("las"), Who("srtf"), Who("srsf")
TIRESIAS_L, TIRESIAS_G, GITTINS = Who("tiresias-l"), Who("tiresias-g"), Who("gittins")
MAX_MIN, AFS, OPTIMUS, THEMIS = Who("max-min"), Who("afs-l"), Who("optimus"), Who("themis")
TIRESIAS, AFS_PAPER = "Tiresias (NSDI 2019)", "AFS (NSDI 2021)"
BACKFILL = "EASY backfill (Lifka 1995)"
ELASTIC = ("elastic", "seed")

CLAIMS = (
    Claim(TIRESIAS_L, Who("yarn-cs"), f"{TIRESIAS}: up to 5.5 times"),
    Claim(TIRESIAS_L, Who("gandiva"), f"{TIRESIAS}: up to 2 times"),
    Claim(TIRESIAS_G, TIRESIAS_L, f"{TIRESIAS}: a known distribution helps"),
    Claim(TIRESIAS_L, FIFO, f"{TIRESIAS}: against head-of-line blocking"),
    Claim(SRSF, SRTF, f"{TIRESIAS}: size and time, not time alone"),
    Claim(SRTF, LAS, "remaining time known beats unknown"),
    Claim(SRSF, LAS, "remaining service known beats unknown"),
    Claim(LAS, FIFO, "heavy-tailed run times favour least attained service"),
    Claim(GITTINS, LAS, "Gittins index (Gittins 1989; Scully 2018)"),
    Claim(Who("fifo", {"backfill": "easy"}), FIFO, BACKFILL),
    Claim(MAX_MIN, FIFO, "dynamic max-min sharing of elastic jobs", tracks=ELASTIC),
    Claim(AFS, MAX_MIN, AFS_PAPER, tracks=ELASTIC),
    Claim(AFS, TIRESIAS_L, f"{AFS_PAPER}: up to 3.1 times", tracks=ELASTIC),
    Claim(AFS, SRTF, f"{AFS_PAPER}: up to 2.7 times", tracks=ELASTIC),
    Claim(AFS, THEMIS, f"{AFS_PAPER}: up to 2.2 times", tracks=ELASTIC),
    Claim(OPTIMUS, Who("fair"), "Optimus (EuroSys 2018): 2.4 times", tracks=ELASTIC),
    Claim(
        THEMIS,
        TIRESIAS_L,
        "Themis (NSDI 2020): more than 2.25 times fairer",
        measure=_fairness,
        measured="largest rho",
    ),
    Claim(Who("antman"), Who("philly"), "AntMan (OSDI 2020): packing fills idle cycles"),
)


def weigh(found: Sequence[Comparison], claims: Sequence[Claim] = CLAIMS) -> tuple[Weighed, ...]:
    """Every claim of which some comparison has both sides."""
    weighed = (Weighed(claim, tuple(_instances(claim, found))) for claim in claims)
    return tuple(each for each in weighed if each.instances)


def _instances(claim: Claim, found: Sequence[Comparison]) -> Iterator[Instance]:
    for comparison in found:
        if claim.tracks and comparison.experiment.track not in claim.tracks:
            continue
        better, worse = claim.better.find(comparison), claim.worse.find(comparison)
        if better is None or worse is None:
            continue
        estimate = ratio(better, worse, claim.measure)
        if estimate is not None:
            by_excess = ratio(better, worse, excess) if claim.measure is mean_jct else None
            yield Instance(comparison, estimate, by_excess)
