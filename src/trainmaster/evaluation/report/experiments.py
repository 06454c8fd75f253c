"""The section of each experiment: its workloads, figures and metrics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainmaster.evaluation.comparisons import (
    Comparison,
    ContenderScores,
    common_subject,
    ratio,
    ratios_to_baseline,
    typical,
)
from trainmaster.evaluation.number_format import with_interval
from trainmaster.evaluation.report.figures import DotPanel, dot_plot
from trainmaster.evaluation.report.ranking import rivals
from trainmaster.evaluation.report.sweeps import (
    SWEPT_TRACKS,
    ShownSpread,
    ShownSweep,
    setting_sweep,
    shown_spreads,
    shown_sweeps,
    sweeps,
)
from trainmaster.evaluation.statistics import IntervalEstimate, geometric_mean
from trainmaster.evaluation.suite import Contender, ContenderRole, Experiment, track_title
from trainmaster.report.metrics import Metric, named, shown
from trainmaster.report.rendering import Cell, Column, Figure, Row, Table, slug
from trainmaster.text import formatting as wording

MOST_OPEN = 2
"""Tables of an experiment that are shown open."""
GREY = 7
"""The palette's slot for the first bound, which is not a rival."""
METRICS = named(
    *("avg_jct_s", "passed_jct_s", "avg_excess_s", "p50_jct_s", "p95_jct_s", "p99_jct_s"),
    *("p99_rho", "rho_over_1", "max_rho", "preemptions", "gpu_hours_wasted", "gpu_util", "cost"),
)


@dataclass(frozen=True, slots=True)
class ShownDots:
    """Ratios to the baseline, with their figure."""

    figure: Figure
    subject: str
    ratios: list[IntervalEstimate]


@dataclass(frozen=True, slots=True)
class Section:
    """The report's section on one experiment."""

    experiment: Experiment
    workloads: Table
    sweeps: list[ShownSweep]
    spreads: list[ShownSpread]
    dots: ShownDots | None
    metrics: list[tuple[Comparison, Table]]


def experiments(found: Sequence[Comparison]) -> dict[str, list[Section]]:
    """Each experiment with all its comparisons, by the title of its track."""
    groups: dict[str, list[Comparison]] = {}
    for each in found:
        groups.setdefault(each.experiment.name, []).append(each)
    tracks: dict[str, list[Section]] = {}
    for group in groups.values():
        title = track_title(group[0].experiment.track)
        tracks.setdefault(title, []).append(_section(group, colour_slots(found)))
    return tracks


def _section(found: Sequence[Comparison], slots: Mapping[str, int]) -> Section:
    experiment = found[0].experiment
    is_swept = experiment.track in SWEPT_TRACKS
    swept = sweeps(found) if is_swept else ()
    by_setting = [made for each in found if is_swept and (made := setting_sweep(each)) is not None]
    is_drawn = bool(swept) or any(each.is_whole for each in by_setting)
    return Section(
        experiment,
        _workloads(found),
        list(shown_sweeps(experiment, swept, slots)),
        list(shown_spreads(experiment, by_setting)),
        None if is_drawn else _dots(experiment, found),
        [
            (each, metrics_table(each, is_folded=bool(swept) or place >= MOST_OPEN))
            for place, each in enumerate(found)
        ],
    )


def colour_slots(found: Sequence[Comparison]) -> dict[str, int]:
    """Every label with its place in the palette, whose strongest colours come first.

    Ours is the first, a bound is grey, the others by how often they are drawn as lines.
    """
    contenders = {each.label: each.contender for c in found for each in c.contenders}
    lines = Counter(
        each.label for c in found if c.experiment.track in SWEPT_TRACKS for each in c.contenders
    )
    bound = next((c.label for c in contenders.values() if c.role is ContenderRole.BOUND), None)
    others = sorted(
        (each for each in contenders.values() if each.label != bound),
        key=lambda each: (each.role is not ContenderRole.OURS, -lines[each.label]),
    )
    free = (slot for slot in range(len(contenders) + 1) if slot != GREY)
    slots = {each.label: slot for each, slot in zip(others, free, strict=False)}
    return slots if bound is None else slots | {bound: GREY}


def _workloads(found: Sequence[Comparison]) -> Table:
    """The workloads: jobs, cluster, realised load, seeds."""
    columns = (
        *("workload", "jobs measured", "GPUs", "load, realised", "seeds", "rejected"),
        "ended after the last arrival, at most",
    )
    return Table(columns, [_workload(each) for each in found])


def _workload(comparison: Comparison) -> tuple[str, ...]:
    scores = [score for each in comparison.contenders for score in each.scores.values()]
    late = max((score.after_arrivals / score.jobs for score in scores if score.jobs), default=0.0)
    load = "all at once" if comparison.load is None else f"{comparison.load:.3f}"
    return (
        comparison.title,
        wording.count(comparison.jobs),
        wording.count(comparison.gpus),
        f"{load}, transient" if comparison.load and comparison.is_transient else load,
        "one trace" if comparison.seeds == 1 else str(comparison.seeds),
        wording.count(max((score.rejected for score in scores), default=0)),
        wording.share(late),
    )


# -- dot plots ---------------------------------------------------------------------------------------


def _dots(experiment: Experiment, found: Sequence[Comparison]) -> ShownDots | None:
    """None where no two rivals can be compared."""
    subject = common_subject(found)
    panels = [DotPanel(each.title, ratios_to_baseline(each, subject.measure)) for each in found]
    if not any(
        len(panel.ratios) > 1 and len(rivals(each)) > 1
        for each, panel in zip(found, panels, strict=True)
    ):
        return None
    chart = dot_plot(
        experiment.title,
        _rows(experiment, panels),
        panels,
        f"{subject.name[0].upper()}{subject.name[1:]} / that of {experiment.baseline} (log scale)",
    )
    ratios = [estimate for panel in panels for estimate in panel.ratios.values()]
    return ShownDots(Figure(slug(experiment.name), chart), subject.name, ratios)


def _rows(experiment: Experiment, panels: Sequence[DotPanel]) -> dict[str, str]:
    """Labels with their role, lowest first by the geometric mean over the panels."""

    def place(contender: Contender) -> tuple[bool, float]:
        label = contender.label
        middle = geometric_mean([p.ratios[label].value for p in panels if label in p.ratios])
        return (middle is None, middle or 0.0)

    return {each.label: each.role.value for each in sorted(experiment.contenders, key=place)}


# -- all metrics of one comparison -------------------------------------------------------------------


def metrics_table(comparison: Comparison, is_folded: bool) -> Table:
    """All contenders in the order of their excess; the best without an oracle is marked."""
    subject, contenders = comparison.subject, comparison.contenders
    scores = [score for each in contenders for score in each.scores.values()]
    metrics = shown(METRICS, scores)
    best = {
        metric.key: metric.best(e.mean(metric.of) for e in rivals(comparison)) for metric in metrics
    }
    order = typical(contenders, subject.measure)
    rows = []
    for each in sorted(contenders, key=lambda each: order.get(each.label, math.inf)):
        is_bound = each.role is ContenderRole.BOUND
        cells = [Cell(f"{each.label} (bound)", "soft") if is_bound else Cell(each.label)]
        cells.append(Cell(_ratio(each, comparison)))
        for metric in metrics:
            words = _words(each, metric)
            is_best = words == best[metric.key] and not is_bound
            cells.append(Cell(words, "best" if is_best else ""))
        rows.append(Row(cells, each.role is ContenderRole.OURS))
    hinted = (Column(metric.label, hint=metric.hint) for metric in metrics)
    return Table(("contender", f"{subject.name} ratio", *hinted), rows, is_folded)


def _ratio(contender: ContenderScores, comparison: Comparison) -> str:
    baseline = comparison.baseline
    if contender is baseline:
        return "1"
    found = None if baseline is None else ratio(contender, baseline, comparison.subject.measure)
    return with_interval(found)


def _words(contender: ContenderScores, metric: Metric) -> str:
    value = contender.mean(metric.of)
    if value is None and metric.key == "avg_jct_s" and contender.unfinished:
        least = contender.values(lambda score: score.lower_bound_s or score.mean_jct_s)
        if least:
            return f"\N{GREATER-THAN OR EQUAL TO} {metric.words(sum(least.values()) / len(least))}"
    return metric.words(value)
