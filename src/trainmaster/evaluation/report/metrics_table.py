"""The table of all measures of one comparison, a row per contender."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainmaster.evaluation.report.acceptance_check import rho_max, rho_over_1, rho_p99
from trainmaster.evaluation.report.comparisons import (
    Comparison,
    Entrant,
    Measure,
    excess,
    mean_jct,
    measure_named,
    ratio,
    typical,
)
from trainmaster.evaluation.report.document_model import Column, Entry, Row, Table, Tone
from trainmaster.evaluation.report.number_format import (
    common_unit,
    in_unit,
    price_words,
    with_interval,
)
from trainmaster.evaluation.score import Score
from trainmaster.evaluation.suite import Standing
from trainmaster.report.axes import TimeUnit
from trainmaster.text import formatting as wording
from trainmaster.text.formatting import ABSENT, RHO

GPU_HOURS = "GPU\N{NON-BREAKING HYPHEN}h"


@dataclass(frozen=True, slots=True)
class Reading:
    """A column: the measure, how it is worded, and whether less is better (None: neither)."""

    title: str
    measure: Measure
    worded: Callable[[float | None], str] | None = None
    """None: a length of time, the whole column in one unit."""
    is_less_better: bool | None = True
    is_optional: bool = False
    """Left out where no contender has it."""


def _whole(value: float | None) -> str:
    return ABSENT if value is None else f"{value:,.0f}"


PASSED = measure_named("passed_jct_s")
SAME_UNIT = (mean_jct, PASSED)
"""Columns that are read against each other."""
READINGS = (
    Reading("mean JCT", mean_jct),
    Reading("of passed", PASSED, is_optional=True),
    Reading("excess", excess),
    Reading("p50", measure_named("p50_s")),
    Reading("p95", measure_named("p95_s")),
    Reading("p99", measure_named("p99_s")),
    Reading(f"{RHO} p99", rho_p99, wording.decimal),
    Reading(f"{RHO} > 1", rho_over_1, wording.share),
    Reading(f"{RHO} max", rho_max, wording.decimal),
    Reading("preemptions", measure_named("preemptions"), _whole, is_less_better=None),
    Reading(
        f"wasted {GPU_HOURS}",
        measure_named("gpu_hours_wasted"),
        wording.decimal,
        is_less_better=None,
    ),
    Reading("GPU use", measure_named("gpu_util"), wording.share, is_less_better=None),
    Reading("cost", measure_named("cost"), price_words, is_optional=True),
)


@dataclass(frozen=True, slots=True)
class Shown:
    """A reading as this table shows it: in its unit, with its best value."""

    reading: Reading
    unit: TimeUnit | None
    best: float | None

    @property
    def title(self) -> str:
        return (
            self.reading.title
            if self.unit is None
            else f"{self.reading.title} ({self.unit.symbol})"
        )

    def worded(self, value: float | None) -> str:
        if self.unit is not None:
            return in_unit(value, self.unit)
        return str(value) if self.reading.worded is None else self.reading.worded(value)


def scoreboard(comparison: Comparison, is_folded: bool) -> Table:
    """All contenders in the order of their excess; the best of those that know no oracle is marked."""
    subject = comparison.subject
    readings = [_shown(each, comparison) for each in READINGS if _is_shown(each, comparison)]
    columns = (
        Column("contender", is_number=False),
        Column(f"{subject.name} ratio"),
        *(Column(each.title) for each in readings),
    )
    order = typical(comparison.entrants, subject.measure)
    ordered = sorted(comparison.entrants, key=lambda each: order.get(each.label, math.inf))
    rows = tuple(_row(each, comparison, readings) for each in ordered)
    return Table(_caption(comparison), columns, rows, is_folded)


def _shown(reading: Reading, comparison: Comparison) -> Shown:
    together = SAME_UNIT if reading.measure in SAME_UNIT else (reading.measure,)
    values = [each.mean(measure) for each in comparison.entrants for measure in together]
    unit = common_unit(values) if reading.worded is None else None
    return Shown(reading, unit, _best(reading, comparison))


def _caption(comparison: Comparison) -> str:
    seeds = comparison.seeds
    over = f"means over {seeds} seeds" if seeds > 1 else "one trace"
    notes = [f"{comparison.subject.name} ratio: over that of {comparison.experiment.baseline}"]
    if any(each.total(_unfinished) for each in comparison.entrants):
        notes.append("with unfinished jobs a mean is only known to be at least what is shown")
    return f"{comparison.title}: all measures, {over}; {'; '.join(notes)}."


def _unfinished(score: Score) -> int:
    return score.unfinished


def _is_shown(reading: Reading, comparison: Comparison) -> bool:
    return not reading.is_optional or any(e.values(reading.measure) for e in comparison.entrants)


def _best(reading: Reading, comparison: Comparison) -> float | None:
    if not reading.is_less_better:
        return None
    eligible = comparison.of_standing(Standing.OURS, Standing.PUBLISHED)
    values = [v for each in eligible if (v := each.mean(reading.measure)) is not None]
    return min(values, default=None) if len(values) > 1 else None


def _row(entrant: Entrant, comparison: Comparison, readings: Sequence[Shown]) -> Row:
    baseline = comparison.baseline
    measure = comparison.subject.measure
    against = ratio(entrant, baseline, measure) if baseline is not None else None
    is_bound = entrant.standing is Standing.BOUND
    name = f"{entrant.label} (bound)" if is_bound else entrant.label
    entries = [
        Entry(name, Tone.SOFT if is_bound else Tone.PLAIN),
        Entry(with_interval(against) if entrant is not baseline else "1"),
    ]
    for shown in readings:
        value = entrant.mean(shown.reading.measure)
        is_best = value is not None and value == shown.best and not is_bound
        tone = Tone.BEST if is_best else Tone.PLAIN
        entries.append(Entry(_value_words(entrant, shown, value), tone))
    return Row(tuple(entries), is_emphasised=entrant.standing is Standing.OURS)


def _value_words(entrant: Entrant, shown: Shown, value: float | None) -> str:
    if value is None and shown.reading.measure is mean_jct:
        least = entrant.values(lambda score: score.lower_bound_s or score.mean_jct_s)
        if least and entrant.total(_unfinished):
            return f"\N{GREATER-THAN OR EQUAL TO} {shown.worded(sum(least.values()) / len(least))}"
    return shown.worded(value)
