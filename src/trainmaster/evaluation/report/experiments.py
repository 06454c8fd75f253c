"""A section for each experiment: its question, what was run, a figure, and all measures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainmaster.evaluation.report.comparisons import Comparison, common_subject, ratios_to_baseline
from trainmaster.evaluation.report.document_model import (
    Block,
    Column,
    Figure,
    Heading,
    Paragraph,
    Row,
    Table,
    plain,
    slug,
)
from trainmaster.evaluation.report.dot_plot import DotPanel, DotPlot, DotRow, dot_plot
from trainmaster.evaluation.report.metrics_table import scoreboard
from trainmaster.evaluation.report.number_format import basis_words
from trainmaster.evaluation.report.ranking_tables import rivals
from trainmaster.evaluation.report.series_style import Cast, look
from trainmaster.evaluation.report.size_bins import bin_table
from trainmaster.evaluation.report.sweep_detection import setting_sweep, sweeps
from trainmaster.evaluation.report.sweep_figures import setting_figures, sweep_figure, sweep_table
from trainmaster.evaluation.report.tracks import track_title
from trainmaster.evaluation.statistics import Estimate, geometric_mean
from trainmaster.evaluation.suite import Contender, Experiment
from trainmaster.text import formatting as wording

SHOWN = 2
"""So many tables of an experiment are open."""
BINNED = "tiresias"
"""An experiment with this in its name shows times by bins of size and length, as that paper does."""
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


def _experiment(experiment: Experiment, found: Sequence[Comparison], cast: Cast) -> Iterator[Block]:
    yield Heading(experiment.title, f"experiment-{slug(experiment.name)}", 3)
    yield Paragraph(experiment.question, is_lead=True)
    yield _workloads(experiment, found)
    swept = sweeps(found) if experiment.track in SWEPT_TRACKS else ()
    for number, sweep in enumerate(swept):
        yield sweep_figure(experiment, sweep, cast, number)
        yield sweep_table(experiment, sweep)
    by_setting = [made for each in found if (made := setting_sweep(each)) is not None]
    if experiment.track not in SWEPT_TRACKS:
        by_setting = []
    if by_setting:
        yield from setting_figures(experiment, by_setting)
    is_drawn = bool(swept) or any(each.is_whole for each in by_setting)
    if not is_drawn and _has_ratios(found):
        yield _dots(experiment, found)
    if BINNED in experiment.name:
        yield from (bin_table(each) for each in found)
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


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _has_ratios(found: Sequence[Comparison]) -> bool:
    """Ablations alone have a section of their own."""
    measure = common_subject(found).measure
    return any(
        len(ratios_to_baseline(each, measure)) > 1 and len(rivals(each)) > 1 for each in found
    )


def _dots(experiment: Experiment, found: Sequence[Comparison]) -> Figure:
    subject = common_subject(found)
    by_title = [(each.title, ratios_to_baseline(each, subject.measure)) for each in found]
    panels = tuple(DotPanel(title, ratios, {}) for title, ratios in by_title)
    everything = [estimate for _, ratios in by_title for estimate in ratios.values()]
    plot = DotPlot(
        _rows(experiment, [ratios for _, ratios in by_title]),
        panels,
        f"{_capital(subject.name)} / that of {experiment.baseline} (log scale)",
    )
    caption = (
        f"{experiment.title}: {subject.name} over that of {experiment.baseline}, less is better."
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
