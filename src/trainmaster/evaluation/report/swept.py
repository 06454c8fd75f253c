"""Figures and tables of sweeps: contenders over what was varied, or over one of their own options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trainmaster.evaluation.report.cast import Cast, look
from trainmaster.evaluation.report.comparisons import (
    Comparison,
    Measure,
    excess,
    mean_jct,
    ratios_to_baseline,
)
from trainmaster.evaluation.report.content import Column, Entry, Figure, Row, Table, Tone, slug
from trainmaster.evaluation.report.lines import LinePanel, Series, line_plot
from trainmaster.evaluation.report.phrases import basis_words, with_interval
from trainmaster.evaluation.report.sweeps import SettingSweep, Sweep
from trainmaster.evaluation.score import Score
from trainmaster.evaluation.statistics import Basis, Estimate
from trainmaster.evaluation.suite import Experiment, Standing
from trainmaster.sim.report import axes, wording
from trainmaster.sim.report.axes import Axis


def sweep_figure(experiment: Experiment, sweep: Sweep, cast: Cast, number: int) -> Figure:
    excesses = _series(experiment, sweep, cast, _mean_excess)
    ratios = _series(experiment, sweep, cast, _ratio_to_baseline)
    points = [p for each in excesses for p in each.points if p is not None and p.value > 0]
    compared = [p for each in ratios for p in each.points if p is not None]
    panels = []
    if points:
        y = axes.log_duration_axis(
            max(1.0, min(_low(p) for p in points)),
            max(_high(p) for p in points),
            "Mean excess (log)",
        )
        panels.append(LinePanel(y, excesses))
    if compared:
        low, high = min(_low(p) for p in compared), max(_high(p) for p in compared)
        title = f"Excess / that of {experiment.baseline} (log)"
        panels.append(LinePanel(axes.log_ratio_axis(low, high, title), ratios, reference=1.0))
    name = slug(experiment.name) if not number else f"{slug(experiment.name)}-{number + 1}"
    where = f" ({sweep.of})" if sweep.of else ""
    caption = (
        f"{experiment.title}{where}: mean excess, and the same over that of {experiment.baseline}, by"
        f" {sweep.steps.title}. Bands: intervals. Dotted: bounds. {basis_words(compared)}"
    )
    return Figure(name, caption, line_plot(sweep.steps, panels, experiment.title))


def _low(estimate: Estimate) -> float:
    return estimate.value if estimate.interval is None else estimate.interval.low


def _high(estimate: Estimate) -> float:
    return estimate.value if estimate.interval is None else estimate.interval.high


Point = Callable[[Comparison, str], Estimate | None]


def _mean_excess(comparison: Comparison, label: str) -> Estimate | None:
    entrant = comparison.entrant(label)
    found = None if entrant is None else entrant.estimate(excess)
    return None if found is None else Estimate(max(found.value, 1.0), None, 1, Basis.NOTHING)


def _ratio_to_baseline(comparison: Comparison, label: str) -> Estimate | None:
    return ratios_to_baseline(comparison).get(label)


def _series(experiment: Experiment, sweep: Sweep, cast: Cast, point: Point) -> tuple[Series, ...]:
    made = (
        Series(
            each.label,
            cast.slot(each.label),
            look(each),
            tuple(point(comparison, each.label) for comparison in sweep.comparisons),
        )
        for each in experiment.contenders
        if each.label in cast.slots
    )
    return tuple(series for series in made if any(series.points))


def sweep_table(experiment: Experiment, sweep: Sweep) -> Table:
    """Ratios to the baseline, a column per step."""
    columns = (
        Column("contender", is_number=False),
        *(
            Column(f"{label}{_step_note(c)}")
            for label, c in zip(sweep.steps.labels, sweep.comparisons, strict=True)
        ),
    )
    by_step = [ratios_to_baseline(each) for each in sweep.comparisons]
    bests = [
        min(
            (
                r[e.label].value
                for e in c.of_standing(Standing.OURS, Standing.PUBLISHED)
                if e.label in r
            ),
            default=None,
        )
        for c, r in zip(sweep.comparisons, by_step, strict=True)
    ]
    rows = []
    for contender in experiment.contenders:
        entries = [Entry(contender.label)]
        for ratios, best in zip(by_step, bests, strict=True):
            found = ratios.get(contender.label)
            is_best = (
                found is not None
                and found.value == best
                and contender.standing is not Standing.BOUND
            )
            words = "1" if contender.label == experiment.baseline else with_interval(found)
            entries.append(Entry(words, Tone.BEST if is_best else Tone.PLAIN))
        rows.append(Row(tuple(entries), contender.standing is Standing.OURS))
    where = f" ({sweep.of})" if sweep.of else ""
    caption = (
        f"{experiment.title}{where}: excess over that of {experiment.baseline} by {sweep.steps.title};"
        " t: transient."
    )
    return Table(caption, columns, tuple(rows))


def _step_note(comparison: Comparison) -> str:
    return " t" if comparison.is_transient else ""


# -- contenders that differ in one option ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spread:
    """A time whose mean, maximum and variance are followed over an option."""

    slug: str
    name: str
    mean: Measure
    longest: Measure
    variance: Measure


def _square_hours(deviation_s: float | None) -> float | None:
    """So that the numbers can be read."""
    return None if deviation_s is None else (deviation_s / wording.HOUR_S) ** 2


def _jct_variance(score: Score) -> float | None:
    return _square_hours(score.std_s)


def _run_variance(score: Score) -> float | None:
    return _square_hours(score.run_std_s)


SPREADS = (
    Spread("jct", "JCT", mean_jct, lambda score: score.max_s, _jct_variance),
    Spread(
        "run",
        "time from start to end",
        lambda score: score.run_s,
        lambda score: score.run_max_s,
        _run_variance,
    ),
)


def setting_figures(experiment: Experiment, found: Sequence[SettingSweep]) -> Iterator[Figure]:
    """Mean, maximum and variance by the option, of every time that was kept."""
    steps = found[0].steps
    alike = [each for each in found if each.steps == steps]
    for spread in SPREADS:
        if not any(entrant.has(spread.mean) for each in alike for entrant in each.entrants):
            continue
        panels = (
            _setting_panel(alike, spread.mean, f"Mean {spread.name}"),
            _setting_panel(alike, spread.longest, f"Longest {spread.name}"),
            _setting_panel(alike, spread.variance, f"Variance of {spread.name} (h²)"),
        )
        caption = (
            f"{experiment.title}: mean, maximum and variance of the {spread.name} by {steps.title};"
            " bands: intervals over seeds."
        )
        name = f"{slug(experiment.name)}-{spread.slug}-by-{slug(steps.title)}"
        yield Figure(name, caption, line_plot(steps, panels, caption))


def _setting_panel(found: Sequence[SettingSweep], measure: Measure, title: str) -> LinePanel:
    series = tuple(
        Series(
            each.comparison.title,
            place,
            "published",
            tuple(entrant.estimate(measure) for entrant in each.entrants),
        )
        for place, each in enumerate(found)
    )
    highest = max((_high(p) for each in series for p in each.points if p is not None), default=1.0)
    return LinePanel(_plain_axis(highest, title, measure), series)


def _plain_axis(highest: float, title: str, measure: Measure) -> Axis:
    if measure in (_jct_variance, _run_variance):
        return axes.amount_axis(highest, title)
    return axes.duration_axis(highest, title)
