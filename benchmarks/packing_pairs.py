"""How well scores of packed pairs are predicted, from utilisation alone and after learning other pairs.

Gavel (OSDI'20) measured every pair of 26 jobs on three GPU types. The pairs are drawn in random order: half
of them are learned, by the estimator that `trainmaster` packs with, and the others are predicted. Gavel
states no utilisation: it is taken from a job beside its own copy, and those pairs are not judged.

    python -m benchmarks.packing_pairs [--data ../shared/data] [--out docs/measurements/packing-pairs.md]
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

from benchmarks.pages import page
from trainmaster.model.placement import Sharing
from trainmaster.model.plan import FrozenMap
from trainmaster.model.units import NOMINAL
from trainmaster.policies.trainmaster.colocation_speeds import (
    NOTHING_MEASURED,
    ColocationSpeeds,
    JobKind,
)

TYPES = ("k80", "p100", "v100")
SEEDS = range(20)
TENTH = NOMINAL // 10
Table = Mapping[str, Mapping[str, Sequence[float]]]


@dataclass(frozen=True)
class Pair:
    """Two jobs on one GPU, and the part of its speed that each kept."""

    kinds: tuple[JobKind, JobKind]
    rates: tuple[int, int]

    @property
    def score(self) -> int:
        return sum(self.rates)


def pairs_of(table: Table) -> list[Pair]:
    """Those of different jobs that fitted onto one GPU together."""
    alone = {job: rates["null"] for job, rates in table.items() if job.endswith(", 1)")}
    kinds = {job: JobKind(job, busy_of(table, job, speed)) for job, speed in alone.items()}
    found: list[Pair] = []
    for one in alone:
        for other in alone:
            packed = table[one].get(other, (0, 0))
            if one < other and min(packed) > 0:
                rates = [
                    min(NOMINAL, round(NOMINAL * speed / alone[job]))
                    for job, speed in zip((one, other), packed, strict=True)
                ]
                found.append(Pair((kinds[one], kinds[other]), (rates[0], rates[1])))
    return found


def busy_of(table: Table, job: str, alone: float) -> int:
    """Two copies that each keep a rate n need 1/n of the GPU together; all of it where they do not fit."""
    packed = table[job].get(job, (0, 0))[0]
    busy = NOMINAL if packed <= 0 else round(NOMINAL * alone / packed / 2)
    return max(TENTH, min(NOMINAL, (busy + TENTH // 2) // TENTH * TENTH))


@dataclass(frozen=True)
class Quality:
    """How good predicted scores were."""

    error: float
    """Median of |predicted - measured| score."""
    right: float
    """Percent of the decisions that were right: to pack iff the score is above 1."""
    wrongly_packed: float
    """Percent that were packed though they lose."""
    missed: float
    """Percent that were not packed though they gain."""


def quality(judged: Sequence[tuple[int, int]]) -> Quality:
    """Of (predicted, measured) scores."""
    count = len(judged)
    packed = sum(said > NOMINAL >= true for said, true in judged)
    missed = sum(said <= NOMINAL < true for said, true in judged)
    return Quality(
        median(abs(said - true) for said, true in judged) / NOMINAL,
        100 * (count - packed - missed) / count,
        100 * packed / count,
        100 * missed / count,
    )


def predicted(speeds: ColocationSpeeds, pairs: Sequence[Pair], by: Sharing) -> Iterator[int]:
    for pair in pairs:
        rates = speeds.predicted(pair.kinds, by)
        assert rates is not None
        yield sum(rates)


def judged(
    pairs: Sequence[Pair], by: Sharing, learned: float, *, by_kind: bool = True
) -> list[tuple[int, int]]:
    """The second half of the pairs in every order, after a part of the first half was learned.

    Not `by_kind`: only what all pairs have in common.
    """
    found: list[tuple[int, int]] = []
    for seed in SEEDS:
        order = list(pairs)
        random.Random(seed).shuffle(order)
        half, speeds = len(order) // 2, NOTHING_MEASURED
        for pair in order[: round(half * learned)]:
            speeds = speeds.with_measured(pair.kinds, pair.rates, by)
            if not by_kind:
                speeds = replace(speeds, effects=FrozenMap())
        held = order[half:]
        found += zip(predicted(speeds, held, by), (pair.score for pair in held), strict=True)
    return found


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    gpu: str
    law: str
    pairs: int
    always: float
    """Percent of the decisions that always packing gets right."""
    before: Quality
    tenth: Quality
    """After a tenth of the pairs."""
    common: Quality
    """After half of them, with one correction for all."""
    after: Quality
    """After half of them."""


def rows(tables: Mapping[str, Table]) -> Iterator[Row]:
    for gpu in TYPES:
        pairs = pairs_of(tables[gpu])
        gains = 100 * fmean(pair.score > NOMINAL for pair in pairs)
        for by in (Sharing.TIME, Sharing.MPS):
            before, tenth, after = (quality(judged(pairs, by, part)) for part in (0, 0.2, 1))
            common = quality(judged(pairs, by, 1, by_kind=False))
            yield Row(gpu.upper(), by.value, len(pairs), gains, before, tenth, common, after)


def main() -> None:
    root = Path(__file__).parents[1]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=root.parent / "shared" / "data")
    parser.add_argument("--out", type=Path, default=root / "docs/measurements/packing-pairs.md")
    options = parser.parse_args()
    path = options.data / "gavel/simulation_throughputs.json"
    if not path.exists():
        parser.error(f"there is no {path}; name the folder of the public data with --data.")
    text = page("packing_pairs_page.md", rows=list(rows(json.loads(path.read_text())))).rstrip()
    options.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
