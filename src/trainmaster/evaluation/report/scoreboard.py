"""The table of all measures of one comparison, a row per contender."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainmaster.evaluation.report.comparisons import (
    Comparison,
    Entrant,
    Measure,
    excess,
    mean_jct,
    ratio,
)
from trainmaster.evaluation.report.content import Column, Entry, Row, Table, Tone
from trainmaster.evaluation.report.phrases import (
    price_words,
    seconds_words,
    with_interval,
)
from trainmaster.evaluation.report.verdicts import rho_max, rho_over_1, rho_p99
from trainmaster.evaluation.score import Score
from trainmaster.evaluation.suite import Standing
from trainmaster.sim.report import wording
from trainmaster.sim.report.wording import ABSENT, RHO


@dataclass(frozen=True, slots=True)
class Reading:
    """A column: the measure, how it is worded, and whether less is better (None: neither)."""

    title: str
    measure: Measure
    worded: Callable[[float | None], str]
    is_less_better: bool | None = True
    is_optional: bool = False
    """Left out where no contender has it."""


def _whole(value: float | None) -> str:
    return ABSENT if value is None else f"{value:,.0f}"


def _score(name: str) -> Measure:
    def measure(score: Score) -> float | None:
        value: float | None = getattr(score, name)
        return value

    return measure


READINGS = (
    Reading("mean JCT", mean_jct, wording.duration),
    Reading("of passed", _score("passed_jct_s"), wording.duration, is_optional=True),
    Reading("excess", excess, seconds_words),
    Reading("p50", _score("p50_s"), wording.duration),
    Reading("p95", _score("p95_s"), wording.duration),
    Reading("p99", _score("p99_s"), wording.duration),
    Reading(f"{RHO} p99", rho_p99, wording.decimal),
    Reading(f"{RHO} > 1", rho_over_1, wording.share),
    Reading(f"{RHO} max", rho_max, wording.decimal),
    Reading("preemp\N{SOFT HYPHEN}tions", _score("preemptions"), _whole, is_less_better=None),
    Reading("wasted GPU-h", _score("gpu_hours_wasted"), wording.decimal, is_less_better=None),
    Reading("GPU use", _score("gpu_util"), wording.share, is_less_better=None),
    Reading("cost", _score("cost"), price_words, is_optional=True),
)


def scoreboard(comparison: Comparison, is_folded: bool) -> Table:
    """All contenders in the order of their excess; the best of those that know no oracle is marked."""
    readings = [each for each in READINGS if _is_shown(each, comparison)]
    bests = {each.title: _best(each, comparison) for each in readings}
    against = Column(f"excess / {comparison.experiment.baseline}")
    columns = (
        Column("contender", is_number=False),
        against,
        *(Column(each.title) for each in readings),
    )
    ordered = sorted(comparison.entrants, key=_by_excess)
    rows = tuple(_row(each, comparison, readings, bests) for each in ordered)
    return Table(_caption(comparison), columns, rows, is_folded)


def _caption(comparison: Comparison) -> str:
    seeds = comparison.seeds
    over = f"means over {seeds} seeds" if seeds > 1 else "one trace"
    notes = []
    if any(each.total(_unfinished) for each in comparison.entrants):
        notes.append("with unfinished jobs a mean is only known to be at least what is shown")
    if any(each.standing is Standing.BOUND for each in comparison.entrants):
        notes.append("bounds know what no policy can know and are not marked")
    rest = f"; {'; '.join(notes)}" if notes else ""
    return f"{comparison.title}: all measures, {over}{rest}."


def _unfinished(score: Score) -> int:
    return score.unfinished


def _by_excess(entrant: Entrant) -> tuple[bool, float]:
    value = entrant.mean(excess)
    return (value is None, value or 0.0)


def _is_shown(reading: Reading, comparison: Comparison) -> bool:
    return not reading.is_optional or any(e.values(reading.measure) for e in comparison.entrants)


def _best(reading: Reading, comparison: Comparison) -> float | None:
    if not reading.is_less_better:
        return None
    eligible = comparison.of_standing(Standing.OURS, Standing.PUBLISHED)
    values = [v for each in eligible if (v := each.mean(reading.measure)) is not None]
    return min(values, default=None) if len(values) > 1 else None


def _row(
    entrant: Entrant,
    comparison: Comparison,
    readings: Sequence[Reading],
    bests: dict[str, float | None],
) -> Row:
    baseline = comparison.baseline
    against = ratio(entrant, baseline) if baseline is not None else None
    is_bound = entrant.standing is Standing.BOUND
    name = f"{entrant.label} (bound)" if is_bound else entrant.label
    entries = [
        Entry(name, Tone.SOFT if is_bound else Tone.PLAIN),
        Entry(with_interval(against) if entrant is not baseline else "1"),
    ]
    for reading in readings:
        value = entrant.mean(reading.measure)
        words = _value_words(entrant, reading, value)
        is_best = value is not None and value == bests[reading.title] and not is_bound
        entries.append(Entry(words, Tone.BEST if is_best else Tone.PLAIN))
    return Row(tuple(entries), is_emphasised=entrant.standing is Standing.OURS)


def _value_words(entrant: Entrant, reading: Reading, value: float | None) -> str:
    if value is None and reading.measure is mean_jct:
        least = entrant.values(lambda score: score.lower_bound_s or score.mean_jct_s)
        if least and entrant.total(_unfinished):
            mean = sum(least.values()) / len(least)
            return f"\N{GREATER-THAN OR EQUAL TO} {wording.duration(mean)}"
    return reading.worded(value)
