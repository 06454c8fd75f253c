"""A section for each experiment: its question, what was run, a figure, and all metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from trainmaster.evaluation.comparisons import (
    Comparison,
    Entrant,
    common_subject,
    ratio,
    ratios_to_baseline,
    typical,
)
from trainmaster.evaluation.number_format import basis_words, with_interval
from trainmaster.evaluation.report.figures import DotPanel, dot_plot
from trainmaster.evaluation.report.ranking import rivals
from trainmaster.evaluation.report.series_style import Cast
from trainmaster.evaluation.report.sweeps import (
    SWEPT_TRACKS,
    setting_figures,
    setting_sweep,
    sweep_blocks,
    sweeps,
)
from trainmaster.evaluation.statistics import Estimate, geometric_mean
from trainmaster.evaluation.suite import Contender, Experiment, Standing, track_title
from trainmaster.report.document import (
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
    slug,
)
from trainmaster.report.metrics import Metric, named, shown
from trainmaster.text import formatting as wording

MOST_OPEN = 2
"""So many tables of an experiment are open."""
METRICS = named(
    *("avg_jct_s", "passed_jct_s", "avg_excess_s", "p50_jct_s", "p95_jct_s", "p99_jct_s"),
    *("p99_rho", "rho_over_1", "max_rho", "preemptions", "gpu_hours_wasted", "gpu_util", "cost"),
)


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


def _experiment(experiment: Experiment, found: Sequence[Comparison], cast: Cast) -> Iterator[Block]:
    yield Heading(experiment.title, f"experiment-{slug(experiment.name)}", 3)
    yield Paragraph(experiment.question, is_lead=True)
    yield _workloads(experiment, found)
    is_swept = experiment.track in SWEPT_TRACKS
    swept = sweeps(found) if is_swept else ()
    yield from sweep_blocks(experiment, swept, cast)
    by_setting = [made for each in found if is_swept and (made := setting_sweep(each)) is not None]
    if by_setting:
        yield from setting_figures(experiment, by_setting)
    is_drawn = bool(swept) or any(each.is_whole for each in by_setting)
    if not is_drawn and _has_ratios(found):
        yield _dots(experiment, found)
    for place, each in enumerate(found):
        yield metrics_table(each, is_folded=bool(swept) or place >= MOST_OPEN)


def _workloads(experiment: Experiment, found: Sequence[Comparison]) -> Table:
    """What ran: jobs, cluster, load as realised, seeds."""
    titles = ("jobs measured", "GPUs", "load, realised", "seeds", "rejected")
    columns = (
        Column("workload", is_number=False),
        *map(Column, titles),
        Column("ended after the last arrival, at most"),
    )
    rows = tuple(Row(plain(*_workload(each))) for each in found)
    caption = f"{experiment.title}: what was run. Every contender meets the same jobs."
    return Table(caption, columns, rows)


def _workload(comparison: Comparison) -> tuple[str, ...]:
    scores = [score for each in comparison.entrants for score in each.scores.values()]
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


def _has_ratios(found: Sequence[Comparison]) -> bool:
    measure = common_subject(found).measure
    return any(
        len(ratios_to_baseline(each, measure)) > 1 and len(rivals(each)) > 1 for each in found
    )


def _dots(experiment: Experiment, found: Sequence[Comparison]) -> Figure:
    subject = common_subject(found)
    by_title = [(each.title, ratios_to_baseline(each, subject.measure)) for each in found]
    everything = [estimate for _, ratios in by_title for estimate in ratios.values()]
    chart = dot_plot(
        experiment.title,
        _rows(experiment, [ratios for _, ratios in by_title]),
        [DotPanel(title, ratios, {}) for title, ratios in by_title],
        f"{subject.name[0].upper()}{subject.name[1:]} / that of {experiment.baseline} (log scale)",
    )
    caption = (
        f"{experiment.title}: {subject.name} over that of {experiment.baseline}, less is better."
        f" Hollow dots are bounds. {basis_words(everything)}"
    )
    return Figure(slug(experiment.name), caption, chart.svg())


def _rows(experiment: Experiment, panels: Sequence[dict[str, Estimate]]) -> dict[str, str]:
    """Labels with their standing, lowest first by the geometric mean over the panels."""

    def place(contender: Contender) -> tuple[bool, float]:
        values = [found[contender.label].value for found in panels if contender.label in found]
        middle = geometric_mean(values)
        return (middle is None, middle or 0.0)

    return {each.label: each.standing.value for each in sorted(experiment.contenders, key=place)}


# -- all metrics of one comparison -------------------------------------------------------------------


def metrics_table(comparison: Comparison, is_folded: bool) -> Table:
    """All contenders in the order of their excess; the best of those without an oracle is marked."""
    subject, entrants = comparison.subject, comparison.entrants
    scores = [score for each in entrants for score in each.scores.values()]
    metrics = shown(METRICS, scores)
    best = {
        metric.key: metric.best(e.mean(metric.of) for e in rivals(comparison)) for metric in metrics
    }
    order = typical(entrants, subject.measure)
    rows = []
    for each in sorted(entrants, key=lambda each: order.get(each.label, math.inf)):
        is_bound = each.standing is Standing.BOUND
        name = Entry(f"{each.label} (bound)", Tone.SOFT) if is_bound else Entry(each.label)
        cells = []
        for metric in metrics:
            words = _words(each, metric)
            is_best = words == best[metric.key] and not is_bound
            cells.append(Entry(words, Tone.BEST if is_best else Tone.PLAIN))
        rows.append(
            Row((name, Entry(_ratio(each, comparison)), *cells), each.standing is Standing.OURS)
        )
    columns = (
        Column("contender", is_number=False),
        Column(f"{subject.name} ratio"),
        *(Column(metric.label, hint=metric.hint) for metric in metrics),
    )
    return Table(_caption(comparison), columns, tuple(rows), is_folded)


def _ratio(entrant: Entrant, comparison: Comparison) -> str:
    baseline = comparison.baseline
    if entrant is baseline:
        return "1"
    found = None if baseline is None else ratio(entrant, baseline, comparison.subject.measure)
    return with_interval(found)


def _caption(comparison: Comparison) -> str:
    seeds = comparison.seeds
    over = f"means over {seeds} seeds" if seeds > 1 else "one trace"
    notes = [f"{comparison.subject.name} ratio: over that of {comparison.experiment.baseline}"]
    if any(each.total(lambda score: score.unfinished) for each in comparison.entrants):
        notes.append("with unfinished jobs a mean is only known to be at least what is shown")
    return f"{comparison.title}: all metrics, {over}; {'; '.join(notes)}."


def _words(entrant: Entrant, metric: Metric) -> str:
    value = entrant.mean(metric.of)
    if (
        value is None
        and metric.key == "avg_jct_s"
        and entrant.total(lambda score: score.unfinished)
    ):
        least = entrant.values(lambda score: score.lower_bound_s or score.mean_jct_s)
        if least:
            return f"\N{GREATER-THAN OR EQUAL TO} {metric.words(sum(least.values()) / len(least))}"
    return metric.words(value)
