"""Figures and tables of sweeps: contenders over what was varied, or over one of their own options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainmaster.evaluation.report.comparisons import (
    EXCESS,
    Comparison,
    Measure,
    Subject,
    common_subject,
    mean_jct,
    ratios_to_baseline,
)
from trainmaster.evaluation.report.document_model import (
    Column,
    Entry,
    Figure,
    Row,
    Table,
    Tone,
    slug,
)
from trainmaster.evaluation.report.line_plot import LinePanel, Series, line_plot
from trainmaster.evaluation.report.number_format import basis_words, with_interval
from trainmaster.evaluation.report.series_style import Cast, look
from trainmaster.evaluation.report.sweep_detection import SettingSweep, Sweep
from trainmaster.evaluation.score import Score
from trainmaster.evaluation.statistics import SMALLEST, Basis, Estimate
from trainmaster.evaluation.suite import Contender, Experiment, Standing
from trainmaster.report import axes

ROOM = 1.15
"""So much is left around the lines of a log axis; bands are cut off there."""


def sweep_figure(experiment: Experiment, sweep: Sweep, cast: Cast, number: int) -> Figure:
    """The measure itself, and over the baseline's, side by side."""
    subject = common_subject(sweep.comparisons)
    means = _series(experiment, sweep, cast, lambda c, label: _mean(c, label, subject))
    ratios = _series(
        experiment, sweep, cast, lambda c, label: ratios_to_baseline(c, subject.measure).get(label)
    )
    points, compared = _points(means), _points(ratios)
    panels = []
    if points:
        low, high = min(_low(p) for p in points), max(_high(p) for p in points)
        title = "Mean excess (log)" if subject is EXCESS else "Mean JCT (log)"
        panels.append(LinePanel(axes.log_duration_axis(low, high, title), means))
    if compared:
        low, high = min(p.value for p in compared) / ROOM, max(p.value for p in compared) * ROOM
        title = f"Over that of {experiment.baseline} (log)"
        panels.append(LinePanel(axes.log_ratio_axis(low, high, title), ratios, reference=1.0))
    name = slug(experiment.name) if not number else f"{slug(experiment.name)}-{number + 1}"
    caption = (
        f"{_title(experiment, sweep)}: {subject.name}, and the same over that of"
        f" {experiment.baseline}, by {sweep.steps.title}. Bands: intervals. Dotted: bounds."
        f" {basis_words(compared)}"
    )
    return Figure(name, caption, line_plot(sweep.steps, panels, experiment.title))


def _title(experiment: Experiment, sweep: Sweep) -> str:
    return f"{experiment.title} ({sweep.of})" if sweep.of else experiment.title


def _points(series: Sequence[Series]) -> list[Estimate]:
    return [point for each in series for point in each.points if point is not None]


def _low(estimate: Estimate) -> float:
    return estimate.value if estimate.interval is None else estimate.interval.low


def _high(estimate: Estimate) -> float:
    return estimate.value if estimate.interval is None else estimate.interval.high


Point = Callable[[Comparison, str], Estimate | None]


def _mean(comparison: Comparison, label: str, subject: Subject) -> Estimate | None:
    """Without its interval, which is that of the traces and would hide that of the differences."""
    entrant = comparison.entrant(label)
    value = None if entrant is None else entrant.mean(subject.measure)
    return None if value is None else Estimate(max(value, SMALLEST), None, 1, Basis.NOTHING)


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
    """Ratios to the baseline, a column per step, the lowest of each marked."""
    subject = common_subject(sweep.comparisons)
    steps = list(zip(sweep.steps.labels, sweep.comparisons, strict=True))
    columns = (
        Column("contender", is_number=False),
        *(Column(f"{label}{' t' if each.is_transient else ''}") for label, each in steps),
    )
    by_step = [ratios_to_baseline(each, subject.measure) for _, each in steps]
    rows = tuple(
        Row(
            (
                Entry(contender.label),
                *(_ratio_entry(contender, experiment, ratios) for ratios in by_step),
            ),
            is_emphasised=contender.standing is Standing.OURS,
        )
        for contender in experiment.contenders
    )
    caption = (
        f"{_title(experiment, sweep)}: {subject.name} over that of {experiment.baseline} by"
        f" {sweep.steps.title}; t: transient."
    )
    return Table(caption, columns, rows)


def _ratio_entry(
    contender: Contender, experiment: Experiment, ratios: Mapping[str, Estimate]
) -> Entry:
    found = ratios.get(contender.label)
    if contender.label == experiment.baseline:
        return Entry("1")
    usable = (Standing.OURS, Standing.PUBLISHED)
    rivals = [each.label for each in experiment.contenders if each.standing in usable]
    lowest = min((ratios[label].value for label in rivals if label in ratios), default=None)
    is_lowest = found is not None and contender.label in rivals and found.value == lowest
    return Entry(with_interval(found), Tone.BEST if is_lowest else Tone.PLAIN)


# -- contenders that differ in one option ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spread:
    """A time whose mean, maximum and variance are followed over an option."""

    slug: str
    name: str
    mean: Measure
    longest: Measure
    deviation: Measure


SPREADS = (
    Spread("jct", "JCT", mean_jct, lambda score: score.max_s, lambda score: score.std_s),
    Spread(
        "run",
        "time from start to end",
        lambda score: score.run_s,
        lambda score: score.run_max_s,
        lambda score: score.run_std_s,
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
            _time_panel(alike, spread.mean, f"Mean {spread.name}"),
            _time_panel(alike, spread.longest, f"Longest {spread.name}"),
            _variance_panel(alike, spread),
        )
        caption = (
            f"{experiment.title}: mean, maximum and variance of the {spread.name} by {steps.title};"
            " bands: intervals over seeds."
        )
        name = f"{slug(experiment.name)}-{spread.slug}-by-{slug(steps.title)}"
        yield Figure(name, caption, line_plot(steps, panels, caption))


def _time_panel(found: Sequence[SettingSweep], measure: Measure, title: str) -> LinePanel:
    series = _setting_series(found, measure)
    return LinePanel(axes.duration_axis(_highest(series), title), series)


def _variance_panel(found: Sequence[SettingSweep], spread: Spread) -> LinePanel:
    """In the square of the unit that suits the largest deviation."""
    unit = axes.time_unit(_highest(_setting_series(found, spread.deviation)))

    def variance(score: Score) -> float | None:
        deviation_s = spread.deviation(score)
        return None if deviation_s is None else (deviation_s / unit.seconds) ** 2

    series = _setting_series(found, variance)
    title = f"Variance of {spread.name} ({unit.symbol}²)"
    return LinePanel(axes.amount_axis(_highest(series), title), series)


def _setting_series(found: Sequence[SettingSweep], measure: Measure) -> tuple[Series, ...]:
    return tuple(
        Series(
            _apart(each.comparison, found),
            place,
            "published",
            tuple(entrant.estimate(measure) for entrant in each.entrants),
        )
        for place, each in enumerate(found)
    )


def _apart(comparison: Comparison, found: Sequence[SettingSweep]) -> str:
    """What tells this comparison from the others: its conditions where the workload is the same."""
    is_one_workload = len({each.comparison.workload.name for each in found}) == 1
    return comparison.conditions.name if is_one_workload else comparison.title


def _highest(series: Sequence[Series]) -> float:
    return max((_high(point) for point in _points(series)), default=1.0)
