"""The section on rankings: over everything, by track, and comparison by comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.evaluation.comparisons import (
    Comparison,
    ContenderScores,
    excess,
    lowest,
    ratio,
    typical,
)
from trainmaster.evaluation.number_format import load_words, ratio_words, with_interval
from trainmaster.evaluation.statistics import IntervalEstimate, geometric_mean, ranks
from trainmaster.evaluation.suite import RANKED_TRACKS, ContenderRole, track_words
from trainmaster.report.metrics import signed_duration
from trainmaster.report.rendering import Cell, Column, Row, Table

FEW = 14
"""Rows of a table that is shown open."""


@dataclass(frozen=True, slots=True)
class Win:
    """The lowest excess of a comparison, and how far the next one is."""

    comparison: Comparison
    winner: ContenderScores
    runner_up: ContenderScores
    lead: IntervalEstimate | None
    """The winner's excess over the next one's."""
    winners: str
    """Its label; where others are exactly as good, theirs too."""

    @property
    def is_clear(self) -> bool:
        return self.lead is not None and self.lead.is_below


@dataclass(frozen=True, slots=True)
class Record:
    """One contender over all comparisons that it took part in."""

    label: str
    is_ours: bool
    taken: int
    wins: int
    mean_rank: float
    overall: float | None
    """Geometric mean of its excess over the lowest of each comparison."""
    by_track: dict[str, float | None]


def wins(found: Sequence[Comparison]) -> tuple[Win, ...]:
    """One for each comparison in which at least two rivals finished every job."""
    made = (_win(each) for each in found)
    return tuple(win for win in made if win is not None)


def rivals(comparison: Comparison) -> tuple[ContenderScores, ...]:
    """Contenders that a user could choose: no bounds, no ablations."""
    return comparison.of_role(ContenderRole.OURS, ContenderRole.PUBLISHED)


def _win(comparison: Comparison) -> Win | None:
    contenders, measure = rivals(comparison), comparison.subject.measure
    values = typical(contenders, measure)
    ranked = [each for each in contenders if each.label in values]
    ranked.sort(key=lambda each: values[each.label])
    if len(ranked) < 2:
        return None
    winner, runner_up = ranked[:2]
    equals = [each.label for each in ranked if values[each.label] == values[winner.label]]
    lead = ratio(winner, runner_up, measure)
    return Win(comparison, winner, runner_up, lead, " = ".join(equals))


def records(found: Sequence[Comparison]) -> tuple[Record, ...]:
    """Best first, by the geometric mean; settings that one sweep or paper tries are left out."""
    judged = [each for each in found if each.experiment.track in RANKED_TRACKS] or found
    labels = {e.label: e.role is ContenderRole.OURS for c in judged for e in rivals(c)}
    made = (_record(label, is_ours, found) for label, is_ours in labels.items())
    kept = [record for record in made if record is not None]
    most = max((each.taken for each in kept), default=0)
    return tuple(sorted(kept, key=lambda each: _merit(each, most)))


def _merit(record: Record, most: int) -> tuple[bool, bool, float]:
    """Contenders that took part in less than half of what others did come after them."""
    return (2 * record.taken < most, record.overall is None, record.overall or 0.0)


def _record(label: str, is_ours: bool, found: Sequence[Comparison]) -> Record | None:
    tracks: dict[str, list[float]] = {}
    places: list[float] = []
    won = 0
    for comparison in found:
        measure = comparison.subject.measure
        values = typical(rivals(comparison), measure)
        contender, best = comparison.contender(label), lowest(rivals(comparison), measure)
        if label not in values or len(values) < 2 or contender is None or best is None:
            continue
        places.append(ranks(values)[label])
        won += values[label] == values[best.label]
        above = ratio(contender, best, measure)
        if above is not None:
            tracks.setdefault(comparison.experiment.track, []).append(above.value)
    if not places:
        return None
    everything = [value for values in tracks.values() for value in values]
    return Record(
        label=label,
        is_ours=is_ours,
        taken=len(places),
        wins=won,
        mean_rank=sum(places) / len(places),
        overall=geometric_mean(everything),
        by_track={track: geometric_mean(values) for track, values in tracks.items()},
    )


def records_table(all_records: Sequence[Record]) -> Table:
    """Every contender over all its comparisons, and by track."""
    tracks = list(dict.fromkeys(track for each in all_records for track in each.by_track))
    columns = ("contender", "wins", "of", "mean rank", "excess / lowest", *map(track_words, tracks))
    rows = [
        Row(
            (
                *(each.label, str(each.wins), str(each.taken), f"{each.mean_rank:.1f}"),
                ratio_words(each.overall),
                *(_track_cell(each, track, all_records) for track in tracks),
            ),
            each.is_ours,
        )
        for each in all_records
    ]
    return Table(columns, rows)


def _track_cell(record: Record, track: str, others: Sequence[Record]) -> Cell:
    value = record.by_track.get(track)
    values = [v for each in others if (v := each.by_track.get(track)) is not None]
    is_best = value is not None and value == min(values)
    return Cell(ratio_words(value), "best" if is_best else "")


def wins_table(won: Sequence[Win]) -> Table:
    columns = (
        *("experiment and workload", "load", Column("lowest excess", is_words=True), "excess"),
        *(Column("next", is_words=True), "lowest / next"),
    )
    rows = [
        (
            f"{win.comparison.experiment.title}: {win.comparison.title}",
            load_words(win.comparison.load, win.comparison.is_transient),
            Cell(win.winners, "best" if win.is_clear else ""),
            signed_duration(win.winner.mean(excess)),
            win.runner_up.label,
            with_interval(win.lead),
        )
        for win in won
    ]
    return Table(columns, rows, is_folded=len(rows) > FEW)
