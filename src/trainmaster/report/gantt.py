"""The bars of the Gantt charts: which job held which GPU in the busiest hour."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from trainmaster.model.result import Result, Stint
from trainmaster.report.policy_run import PolicyRun
from trainmaster.report.step_function import TimeWindow, busiest_hour

MOST_NAMED_GPUS = 24
"""Up to here every GPU has its own label; above, its node has one for all."""
MOST_GPUS = 192
"""The GPUs of as many nodes as fit are shown: more would be too thin to tell apart."""
MOST_BARS = 6_000
"""Over all policies of a page."""


@dataclass(frozen=True, slots=True)
class GanttRow:
    """A labelled band of the chart: one GPU, or the `gpus` neighbouring ones of a node."""

    label: str
    first_gpu: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Bar:
    """A stay of a job on neighbouring GPUs, in GPUs from the top and clipped to the window.

    A GPU that several jobs share at once is cut into equal parts, so `top` may be a fraction.
    """

    top: float
    depth: float
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Stay:
    """One stint inside the window with all its bars."""

    stint: Stint
    bars: tuple[Bar, ...]
    colour: int
    away_ms: int | None
    """How long the job then stayed off the GPUs before it came back; None if it did not."""


@dataclass(frozen=True, slots=True)
class Gantt:
    """One policy's chart of the hour."""

    run: PolicyRun
    rows: tuple[GanttRow, ...]
    hidden_nodes: int
    stays: tuple[Stay, ...]
    """In order of start, the longest ones only when there are too many."""
    hidden_stays: int

    @property
    def gpus(self) -> int:
        return sum(row.gpus for row in self.rows)


@dataclass(frozen=True, slots=True)
class GanttHour:
    """The same hour under every policy; a job has the same colour in all of them."""

    window: TimeWindow
    charts: tuple[Gantt, ...]


def gantt_hour(runs: Sequence[PolicyRun]) -> GanttHour | None:
    """The charts of the busiest hour, or None when no stint was kept."""
    window = busiest_hour([each.result for each in runs])
    if window is None or window.length_ms <= 0:
        return None
    inside = [_stints_inside(each.result, window) for each in runs]
    jobs = dict.fromkeys(stint.job_id for stints in inside for stint in stints)
    colours = {job_id: place for place, job_id in enumerate(jobs)}
    most = MOST_BARS // len(runs)
    charts = [
        _chart(each, stints, window, colours, most)
        for each, stints in zip(runs, inside, strict=True)
    ]
    return GanttHour(window, tuple(charts))


def nodes_of(result: Result) -> tuple[GanttRow, ...]:
    """The cluster's nodes, in the order of their GPUs."""
    firsts = accumulate((gpus for _, gpus in result.nodes), initial=0)
    return tuple(
        GanttRow(name, at, gpus) for (name, gpus), at in zip(result.nodes, firsts, strict=False)
    )


def _stints_inside(result: Result, window: TimeWindow) -> list[Stint]:
    start, end = window.start_ms, window.end_ms
    inside = [s for s in result.stints if s.start_ms < end and s.end_ms > start]
    return sorted(inside, key=lambda s: (s.start_ms, s.gpus, s.job_id))


def _chart(
    run: PolicyRun,
    stints: Sequence[Stint],
    window: TimeWindow,
    colours: dict[str, int],
    most_bars: int,
) -> Gantt:
    nodes = nodes_of(run.result)
    shown = tuple(node for node in nodes if node.first_gpu + node.gpus <= MOST_GPUS) or nodes[:1]
    gpus = sum(node.gpus for node in shown)
    first_gpus = {node.first_gpu for node in shown}
    lanes = _lanes(stints)
    away = _times_away(run.result, {stint.job_id for stint in stints})
    stays = [
        Stay(stint, bars, colours[stint.job_id], away.get(stint))
        for stint in stints
        if (bars := _bars(stint, window, lanes, gpus, first_gpus))
    ]
    kept = _longest(stays, most_bars)
    rows = shown
    if gpus <= MOST_NAMED_GPUS:
        rows = tuple(GanttRow(f"GPU {gpu}", gpu, 1) for gpu in range(gpus))
    return Gantt(run, rows, len(nodes) - len(shown), kept, len(stays) - len(kept))


Lanes = dict[tuple[int, Stint], tuple[int, int]]
"""The part of a GPU's height that each stint gets there: (place, of how many)."""


def _lanes(stints: Iterable[Stint]) -> Lanes:
    """Cut each GPU into as many lanes as it has jobs at once, the first free lane for each."""
    by_gpu: defaultdict[int, list[Stint]] = defaultdict(list)
    for stint in stints:
        for gpu in stint.gpus:
            by_gpu[gpu].append(stint)
    lanes: Lanes = {}
    for gpu, sharers in by_gpu.items():
        ends: list[int] = []
        places: dict[Stint, int] = {}
        for stint in sharers:
            place = next((i for i, end in enumerate(ends) if end <= stint.start_ms), len(ends))
            ends[place : place + 1] = [stint.end_ms]
            places[stint] = place
        lanes.update({(gpu, stint): (place, len(ends)) for stint, place in places.items()})
    return lanes


def _bars(
    stint: Stint,
    window: TimeWindow,
    lanes: Lanes,
    gpus: int,
    first_gpus: set[int],
) -> tuple[Bar, ...]:
    """Neighbouring GPUs of one node that the stint has to itself make one bar."""
    start, end = max(stint.start_ms, window.start_ms), min(stint.end_ms, window.end_ms)
    bars: list[Bar] = []
    joins_at = -1
    for gpu in sorted(set(stint.gpus)):
        if gpu >= gpus:
            break
        place, parts = lanes[gpu, stint]
        whole = parts == 1
        if whole and gpu == joins_at and gpu not in first_gpus:
            bars[-1] = Bar(bars[-1].top, bars[-1].depth + 1, start, end)
        else:
            bars.append(Bar(gpu + place / parts, 1 / parts, start, end))
        joins_at = gpu + 1 if whole else -1
    return tuple(bars)


def _times_away(result: Result, jobs: set[str]) -> dict[Stint, int]:
    """For each stint that another one of its job follows, the time between them."""
    by_job: defaultdict[str, list[Stint]] = defaultdict(list)
    for stint in result.stints:
        if stint.job_id in jobs:
            by_job[stint.job_id].append(stint)
    away: dict[Stint, int] = {}
    for stints in by_job.values():
        stints.sort(key=lambda stint: stint.start_ms)
        for stint, following in pairwise(stints):
            if following.start_ms >= stint.end_ms:
                away[stint] = following.start_ms - stint.end_ms
    return away


def _longest(stays: Sequence[Stay], most_bars: int) -> tuple[Stay, ...]:
    """The stays with the longest visible bars, as many as fit under the limit, in their order."""
    if sum(len(stay.bars) for stay in stays) <= most_bars:
        return tuple(stays)
    by_length = sorted(stays, key=lambda stay: stay.bars[0].start_ms - stay.bars[0].end_ms)
    bars = accumulate(len(stay.bars) for stay in by_length)
    kept = {id(stay) for stay, so_far in zip(by_length, bars, strict=True) if so_far <= most_bars}
    return tuple(stay for stay in stays if id(stay) in kept)
