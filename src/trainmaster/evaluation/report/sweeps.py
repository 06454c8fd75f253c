"""Sweeps: what an experiment varies, read from the names and settings of its steps, and its figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainmaster.evaluation.comparisons import (
    EXCESS,
    Comparison,
    ContenderScores,
    Measure,
    common_subject,
    mean_jct,
    ratios_to_baseline,
)
from trainmaster.evaluation.number_format import with_interval
from trainmaster.evaluation.report.figures import LinePanel, Series, SweptValues, line_plot
from trainmaster.evaluation.score import Score
from trainmaster.evaluation.statistics import SMALLEST, Basis, IntervalEstimate
from trainmaster.evaluation.suite import Contender, ContenderRole, Experiment
from trainmaster.report.charts import time_unit
from trainmaster.report.rendering import Cell, Figure, Row, Table, slug

SWEPT_TRACKS = ("sweep", "paper")
NUMBERED = re.compile(r"^(?P<before>.*?)(?P<number>\d+(?:\.\d+)?)(?P<after>\D*)$")
Name = Callable[[Comparison], str]
FEWEST = 3
"""Two steps are a comparison, three make a sweep."""
ROOM = 1.15


@dataclass(frozen=True, slots=True)
class Sweep:
    """Comparisons that differ in one number."""

    of: str
    """What stays the same: the conditions, or the workload."""
    steps: SweptValues
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True, slots=True)
class SettingSweep:
    """Contenders of one comparison that differ in one option of their policy."""

    comparison: Comparison
    steps: SweptValues
    contenders: tuple[ContenderScores, ...]

    @property
    def is_whole(self) -> bool:
        """Whether no other contender takes part."""
        return len(self.contenders) == len(self.comparison.contenders)


def sweeps(found: Sequence[Comparison]) -> tuple[Sweep, ...]:
    """The sweeps of one experiment: over its conditions, or over its workloads."""

    def conditions(each: Comparison) -> str:
        return each.conditions.name

    by_title = _sweeps(found, lambda each: each.workload.title or each.workload.name, conditions)
    return by_title or _sweeps(found, conditions, lambda each: each.workload.name)


def _sweeps(found: Sequence[Comparison], fixed: Name, varied: Name) -> tuple[Sweep, ...]:
    """One sweep over `varied` for each value of `fixed`; empty when one of them is not a sweep."""
    groups: dict[str, list[Comparison]] = {}
    for each in found:
        groups.setdefault(fixed(each), []).append(each)
    made = []
    for of, group in groups.items():
        steps = steps_of([varied(each) for each in group])
        if steps is None:
            return ()
        order = sorted(range(len(group)), key=steps.values.__getitem__)
        values = tuple(steps.values[place] for place in order)
        labels = tuple(steps.labels[place] for place in order)
        ordered = SweptValues(steps.title, values, labels)
        made.append(Sweep(of, ordered, tuple(group[place] for place in order)))
    return tuple(made)


def steps_of(names: Sequence[str]) -> SweptValues | None:
    """Names that differ in one number only: `load 0.5`, `load 0.7`; `0 s`, `10 s`, `60 s`."""
    matches = [NUMBERED.match(name) for name in names]
    found = [match for match in matches if match is not None]
    if len(names) < FEWEST or len(found) < len(names):
        return None
    around = {(match["before"].strip(" =:,"), match["after"].strip()) for match in found}
    values = tuple(float(match["number"]) for match in found)
    if len(around) != 1 or len(set(values)) < len(values):
        return None
    before, after = next(iter(around))
    title = f"{before} ({after})" if before and after else before or after
    return SweptValues(title, values, tuple(match["number"] for match in found))


def setting_sweep(comparison: Comparison) -> SettingSweep | None:
    """The contenders of one policy that differ in one number among their settings."""
    policies = dict.fromkeys(each.contender.policy for each in comparison.contenders)
    for policy in policies:
        same = [each for each in comparison.contenders if each.contender.policy == policy]
        found = _by_setting(comparison, same)
        if found is not None:
            return found
    return None


def _by_setting(comparison: Comparison, same: Sequence[ContenderScores]) -> SettingSweep | None:
    settings = [each.contender.settings for each in same]
    keys = {key for each in settings for key in each}
    varied = [key for key in sorted(keys) if len({each.get(key) for each in settings}) > 1]
    if len(same) < FEWEST or len(varied) != 1:
        return None
    texts = [each.get(varied[0], "") for each in settings]
    if not all(re.fullmatch(r"\d+(?:\.\d+)?", text) for text in texts):
        return None
    pairs = sorted(zip(texts, same, strict=True), key=lambda pair: float(pair[0]))
    values = tuple(float(text) for text, _ in pairs)
    steps = SweptValues(varied[0], values, tuple(text for text, _ in pairs))
    return SettingSweep(comparison, steps, tuple(each for _, each in pairs))


# -- figures -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShownSweep:
    """A sweep's figure and table."""

    of: str
    subject: str
    varied: str
    figure: Figure
    table: Table
    ratios: list[IntervalEstimate]
    """To the baseline, all that are drawn."""


def shown_sweeps(
    experiment: Experiment, found: Sequence[Sweep], slots: Mapping[str, int]
) -> Iterator[ShownSweep]:
    """For each sweep the measure itself, the same over the baseline's, and a table of that."""
    for number, sweep in enumerate(found):
        subject = common_subject(sweep.comparisons)
        ratios = [ratios_to_baseline(each, subject.measure) for each in sweep.comparisons]
        means = [_averages(each, subject.measure) for each in sweep.comparisons]
        title = "Mean excess" if subject is EXCESS else "Mean JCT"
        panels = (
            LinePanel(f"{title} (log)", _series(experiment, slots, means)),
            LinePanel(
                f"Over that of {experiment.baseline} (log)", _series(experiment, slots, ratios),
                is_time=False, reference=1.0, room=ROOM,
            ),
        )  # fmt: skip
        name = slug(experiment.name) + (f"-{number + 1}" if number else "")
        chart = line_plot(experiment.title, sweep.steps, panels)
        yield ShownSweep(
            sweep.of,
            subject.name,
            sweep.steps.title,
            Figure(name, chart),
            _table(experiment, sweep, ratios),
            panels[1].points,
        )


def _averages(comparison: Comparison, measure: Measure) -> dict[str, IntervalEstimate]:
    """By label. Without intervals: they show how traces differ and would hide how contenders differ."""
    means = ((each.label, each.mean(measure)) for each in comparison.contenders)
    return {
        label: IntervalEstimate(max(value, SMALLEST), None, 1, Basis.NOTHING)
        for label, value in means
        if value is not None
    }


def _series(
    experiment: Experiment,
    slots: Mapping[str, int],
    points: Sequence[Mapping[str, IntervalEstimate]],
) -> tuple[Series, ...]:
    made = (
        Series(
            each.label,
            slots[each.label],
            each.role.value,
            tuple(at.get(each.label) for at in points),
        )
        for each in experiment.contenders
        if each.label in slots
    )
    return tuple(series for series in made if any(series.points))


def _table(
    experiment: Experiment, sweep: Sweep, ratios: Sequence[Mapping[str, IntervalEstimate]]
) -> Table:
    """Ratios to the baseline, a column per step, the lowest of each marked."""
    steps = zip(sweep.steps.labels, sweep.comparisons, strict=True)
    titles = [f"{label}{' t' if each.is_transient else ''}" for label, each in steps]
    rows = [
        Row(
            (each.label, *(_ratio_cell(each, experiment, found) for found in ratios)),
            each.role is ContenderRole.OURS,
        )
        for each in experiment.contenders
    ]
    return Table(("contender", *titles), rows)


def _ratio_cell(
    contender: Contender, experiment: Experiment, ratios: Mapping[str, IntervalEstimate]
) -> Cell:
    if contender.label == experiment.baseline:
        return Cell("1")
    usable = (ContenderRole.OURS, ContenderRole.PUBLISHED)
    rivals = [each.label for each in experiment.contenders if each.role in usable]
    lowest = min((ratios[label].value for label in rivals if label in ratios), default=None)
    found = ratios.get(contender.label)
    is_lowest = found is not None and contender.label in rivals and found.value == lowest
    return Cell(with_interval(found), "best" if is_lowest else "")


# -- contenders that differ in one option ------------------------------------------------------------

SPREADS: tuple[tuple[str, str, Measure, Measure, Measure], ...] = (
    ("jct", "JCT", mean_jct, lambda s: s.max_s, lambda s: s.std_s),
    ("run", "time from start to end", lambda s: s.run_s, lambda s: s.run_max_s, lambda s: s.run_std_s),
)  # fmt: skip
"""Times whose mean, maximum and standard deviation are followed over an option."""


@dataclass(frozen=True, slots=True)
class ShownSpread:
    """Mean, maximum and variance of a time, by an option of a policy."""

    time: str
    option: str
    figure: Figure


def shown_spreads(experiment: Experiment, found: Sequence[SettingSweep]) -> Iterator[ShownSpread]:
    """One figure for each of `SPREADS` that was measured."""
    alike = [each for each in found if each.steps == found[0].steps]
    for key, name, average, longest, deviation in SPREADS:
        if not any(contender.has(average) for each in alike for contender in each.contenders):
            continue
        steps = alike[0].steps
        spread = LinePanel("", _setting_series(alike, deviation)).points
        unit = time_unit(max((point.high for point in spread), default=1.0))

        def variance(
            score: Score, deviation: Measure = deviation, unit_s: float = unit.seconds
        ) -> float | None:
            deviation_s = deviation(score)
            return None if deviation_s is None else (deviation_s / unit_s) ** 2

        panels = (
            LinePanel(f"Mean {name}", _setting_series(alike, average), is_log=False),
            LinePanel(f"Longest {name}", _setting_series(alike, longest), is_log=False),
            LinePanel(
                f"Variance of {name} ({unit.symbol}²)",
                _setting_series(alike, variance),
                is_time=False,
                is_log=False,
            ),
        )
        label = f"{experiment.title}: mean, maximum and variance of the {name} by {steps.title}"
        figure = f"{slug(experiment.name)}-{key}-by-{slug(steps.title)}"
        chart = line_plot(label, steps, panels)
        yield ShownSpread(name, steps.title, Figure(figure, chart))


def _setting_series(found: Sequence[SettingSweep], measure: Measure) -> tuple[Series, ...]:
    is_one_workload = len({each.comparison.workload.name for each in found}) == 1
    return tuple(
        Series(
            each.comparison.conditions.name if is_one_workload else each.comparison.title,
            place,
            "published",
            tuple(contender.estimate(measure) for contender in each.contenders),
        )
        for place, each in enumerate(found)
    )
