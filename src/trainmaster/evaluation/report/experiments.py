"""A section for each experiment: its question, what was run, a figure, and all measures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from trainmaster.evaluation.report.cast import Cast, look
from trainmaster.evaluation.report.comparisons import Comparison, Measure, excess, mean_jct, ratio
from trainmaster.evaluation.report.content import (
    Block,
    Column,
    Entry,
    Figure,
    Heading,
    Paragraph,
    Row,
    Table,
    Tone,
    plain,
)
from trainmaster.evaluation.report.dots import DotPanel, DotPlot, DotRow, dot_plot
from trainmaster.evaluation.report.lines import LinePanel, Series, line_plot
from trainmaster.evaluation.report.phrases import basis_words, with_interval
from trainmaster.evaluation.report.scoreboard import scoreboard
from trainmaster.evaluation.report.standings import rivals
from trainmaster.evaluation.report.sweeps import SettingSweep, Sweep, setting_sweep, sweeps
from trainmaster.evaluation.report.tracks import track_title
from trainmaster.evaluation.score import Score
from trainmaster.evaluation.statistics import Basis, Estimate, geometric_mean
from trainmaster.evaluation.suite import Contender, Experiment, Standing
from trainmaster.sim.report import axes, wording
from trainmaster.sim.report.axes import Axis

SHOWN = 2
"""So many tables of an experiment are open."""
SWEPT_TRACKS = ("sweep", "seed")


def experiments(found: Sequence[Comparison], cast: Cast) -> Iterator[Block]:
    """Track by track, each experiment with all its comparisons."""
    tracks: dict[str, dict[str, list[Comparison]]] = {}
    for each in found:
        experiment = each.experiment
        tracks.setdefault(experiment.track, {}).setdefault(experiment.name, []).append(each)
    for track, by_experiment in tracks.items():
        yield Heading(track_title(track), f"track-{slug(track)}")
        for group in by_experiment.values():
            yield from _experiment(group[0].experiment, group, cast)


def slug(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "x"


def _experiment(experiment: Experiment, found: Sequence[Comparison], cast: Cast) -> Iterator[Block]:
    yield Heading(experiment.title, slug(experiment.name), 3)
    yield Paragraph(experiment.question, is_lead=True)
    yield _workloads(experiment, found)
    swept = sweeps(found) if experiment.track in SWEPT_TRACKS else ()
    for number, sweep in enumerate(swept):
        yield _sweep_figure(experiment, sweep, cast, number)
        yield _sweep_table(experiment, sweep)
    by_setting = [made for each in found if (made := setting_sweep(each)) is not None]
    if by_setting and experiment.track in SWEPT_TRACKS:
        yield _setting_figure(experiment, by_setting)
    if not swept and _has_ratios(found):
        yield _dots(experiment, found)
    for place, each in enumerate(found):
        yield scoreboard(each, is_folded=bool(swept) or place >= SHOWN)


def _workloads(experiment: Experiment, found: Sequence[Comparison]) -> Table:
    """What ran: jobs, cluster, load as realised, seeds."""
    columns = (
        Column("workload", is_number=False),
        Column("jobs measured"),
        Column("GPUs"),
        Column("load, realised"),
        Column("seeds"),
        Column("rejected"),
        Column("ended after the last arrival, at most"),
    )
    rows = tuple(Row(plain(*_workload(each))) for each in found)
    caption = f"{experiment.title}: what was run. Every contender meets the same jobs."
    return Table(caption, columns, rows)


def _workload(comparison: Comparison) -> tuple[str, ...]:
    scores = [score for each in comparison.entrants for score in each.scores.values()]
    late = max((score.after_arrivals / score.jobs for score in scores if score.jobs), default=0.0)
    return (
        comparison.title,
        wording.count(comparison.jobs),
        wording.count(comparison.gpus),
        _load_words(comparison),
        "one trace" if comparison.seeds == 1 else str(comparison.seeds),
        wording.count(max((score.rejected for score in scores), default=0)),
        wording.share(late),
    )


def _load_words(comparison: Comparison) -> str:
    if comparison.load is None:
        return "all at once"
    return f"{comparison.load:.3f}{', transient' if comparison.is_transient else ''}"


# -- dot plots ---------------------------------------------------------------------------------------


def _ratios(comparison: Comparison) -> dict[str, Estimate]:
    """Excess over the baseline's, by label."""
    baseline = comparison.baseline
    if baseline is None:
        return {}
    pairs = ((each.label, ratio(each, baseline)) for each in comparison.entrants)
    return {label: found for label, found in pairs if found is not None}


def _has_ratios(found: Sequence[Comparison]) -> bool:
    """Ablations alone have a section of their own."""
    return any(len(_ratios(each)) > 1 and len(rivals(each)) > 1 for each in found)


def _dots(experiment: Experiment, found: Sequence[Comparison]) -> Figure:
    by_title = [(each.title, _ratios(each)) for each in found]
    panels = tuple(DotPanel(title, ratios, {}) for title, ratios in by_title)
    everything = [estimate for _, ratios in by_title for estimate in ratios.values()]
    plot = DotPlot(
        _rows(experiment, [ratios for _, ratios in by_title]),
        panels,
        f"Excess / that of {experiment.baseline} (log scale)",
    )
    caption = (
        f"{experiment.title}: excess over that of {experiment.baseline}, less is better."
        f" Hollow dots are bounds. {basis_words(everything)}"
    )
    return Figure(slug(experiment.name), caption, dot_plot(plot, experiment.title))


def _rows(experiment: Experiment, panels: Sequence[dict[str, Estimate]]) -> tuple[DotRow, ...]:
    """Lowest first, by the geometric mean over the panels; those without a ratio last."""

    def place(contender: Contender) -> tuple[bool, float]:
        values = [found[contender.label].value for found in panels if contender.label in found]
        middle = geometric_mean(values)
        return (middle is None, middle or 0.0)

    ordered = sorted(experiment.contenders, key=place)
    return tuple(DotRow(each.label, look(each)) for each in ordered)


# -- line plots --------------------------------------------------------------------------------------


def _sweep_figure(experiment: Experiment, sweep: Sweep, cast: Cast, number: int) -> Figure:
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
    return _ratios(comparison).get(label)


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


def _sweep_table(experiment: Experiment, sweep: Sweep) -> Table:
    """Ratios to the baseline, a column per step."""
    columns = (
        Column("contender", is_number=False),
        *(
            Column(f"{label}{_step_note(c)}")
            for label, c in zip(sweep.steps.labels, sweep.comparisons, strict=True)
        ),
    )
    by_step = [_ratios(each) for each in sweep.comparisons]
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


def _variance(score: Score) -> float | None:
    """In square hours, so that the numbers can be read."""
    return None if score.std_s is None else (score.std_s / wording.HOUR_S) ** 2


def _maximum(score: Score) -> float | None:
    return score.max_s


def _setting_figure(experiment: Experiment, found: Sequence[SettingSweep]) -> Figure:
    steps = found[0].steps
    alike = [each for each in found if each.steps == steps]
    panels = (
        _setting_panel(alike, mean_jct, "Mean JCT"),
        _setting_panel(alike, _maximum, "Maximum JCT"),
        _setting_panel(alike, _variance, "Variance of JCT (h²)"),
    )
    caption = (
        f"{experiment.title}: mean, maximum and variance of the JCT by {steps.title};"
        " bands: intervals over seeds."
    )
    return Figure(f"{slug(experiment.name)}-by-setting", caption, line_plot(steps, panels, caption))


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
    if measure is _variance:
        return axes.amount_axis(highest, title)
    return axes.duration_axis(highest, title)
