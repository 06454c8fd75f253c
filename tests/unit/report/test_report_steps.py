"""The computations behind the plots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from trainmaster.model.result import Curve, Result, Stint
from trainmaster.model.topology import parse_shorthand
from trainmaster.report import charts
from trainmaster.report import step_function as steps
from trainmaster.report.figures import described
from trainmaster.report.gantt import gantt_hour
from trainmaster.report.policy_run import name_runs
from trainmaster.report.step_function import Steps
from trainmaster.text import formatting as wording

HOUR_MS = 3_600_000


def noisy(points: int) -> Steps:
    rng = np.random.default_rng(3)
    return Steps(np.cumsum(rng.exponential(size=points)), rng.random(points))


def test_thinning_keeps_extremes_and_ends() -> None:
    curve = noisy(50_000)
    curve.ys[31_337], curve.ys[777] = 9.0, -4.0
    thin = steps.thinned(curve)
    assert len(thin.xs) <= steps.MOST_POINTS
    assert (thin.ys.max(), thin.ys.min()) == (9.0, -4.0)
    assert (thin.xs[0], thin.xs[-1]) == (curve.xs[0], curve.xs[-1])


def test_thinning_keeps_a_level_that_holds_for_long() -> None:
    times = [*np.linspace(0, 1, 5_000), 100.0]
    levels = [*([1.0, 0.0] * 2_500), 0.5]
    thin = steps.thinned(Steps(np.array(times), np.array(levels)))
    assert thin.ys[-2:].tolist() == [0.0, 0.5]


def test_distribution_counts_those_that_never_arrive() -> None:
    found = steps.distribution([3.0, 1.0, 3.0], population=4)
    assert found.xs.tolist() == [1.0, 3.0]
    assert found.ys.tolist() == [0.25, 0.75]


def test_means_are_weighted_by_time() -> None:
    curve = Steps(np.array([0.0, 9.0, 10.0]), np.array([1.0, 11.0, 0.0]))
    assert steps.mean(curve) == pytest.approx(2.0)
    assert steps.smoothed(curve, 2).ys.tolist() == pytest.approx([1.0, 3.0])


def queue(result: Result, times: tuple[float, ...], values: tuple[float, ...]) -> Result:
    return replace(result, queue_length=Curve(times, values))


def test_busiest_hour_is_the_one_with_most_changes(make_result: Callable[..., Result]) -> None:
    long = Stint("a", (0,), 0, 20_000_000)
    short = tuple(
        Stint(f"s{each}", (1,), 7_000_000 + each * 100_000, 7_050_000 + each * 100_000)
        for each in range(20)
    )
    first = replace(make_result("fifo", jobs=10), stints=(long,))
    second = replace(make_result("las", jobs=10), stints=(long, *short))
    window = steps.busiest_hour([first, second])
    assert window is not None
    assert (window.start_ms, window.length_ms) == (7_000_000, HOUR_MS)
    alone = steps.busiest_hour([first])
    assert alone is not None
    assert alone.start_ms == 0, "the earliest of equals"


def test_gantt_shows_gaps_sharing_and_the_same_colour(make_result: Callable[..., Result]) -> None:
    stints = (
        Stint("a", (0, 1), 0, 60_000),
        Stint("b", (0,), 60_000, 120_000),
        Stint("a", (0, 1), 120_000, 200_000),
        Stint("c", (2,), 0, 100_000),
        Stint("d", (2,), 50_000, 200_000),
    )
    first = replace(make_result("fifo", jobs=10), stints=stints, cluster="1x4", gpus=4)
    second = replace(first, policy="las", stints=stints[3:])
    hour = gantt_hour(name_runs([first, second]))
    assert hour is not None
    a, c, d, b, again = hour.charts[0].stays
    assert [(bar.top, bar.depth) for bar in a.bars] == [(0, 2)]
    assert (a.away_ms, again.away_ms) == (60_000, None)
    assert [(stay.bars[0].top, stay.bars[0].depth) for stay in (c, d)] == [(2, 0.5), (2.5, 0.5)]
    assert a.colour == again.colour != b.colour
    assert [stay.colour for stay in hour.charts[1].stays] == [c.colour, d.colour]
    assert described(a, 0.0) == (
        "a\n00:00:00 to 00:01:00 (60 s)\n2 GPUs\nthen off its GPUs for 60 s"
    )


@pytest.mark.parametrize(
    ("cluster", "gpus", "labels", "hidden"),
    [
        ("2x4", 8, ["GPU 0", "GPU 1"], 0),
        ("8x8", 64, ["n0", "n1"], 0),
        ("8x39x8", 2_496, ["n0", "n1"], 288),
        ("16x8", 128, ["n0", "n1"], 0),
    ],
)
def test_rows_are_gpus_or_nodes(
    make_result: Callable[..., Result], cluster: str, gpus: int, labels: list[str], hidden: int
) -> None:
    nodes = tuple((node.name, node.gpus) for node in parse_shorthand(cluster).nodes)
    result = replace(make_result("fifo", jobs=10), cluster=cluster, gpus=gpus, nodes=nodes)
    hour = gantt_hour(name_runs([result]))
    assert hour is not None
    chart = hour.charts[0]
    assert [row.label for row in chart.rows[:2]] == labels
    assert chart.hidden_nodes == hidden


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, wording.ABSENT),
        (0.0, "0 s"),
        (0.25, "250 ms"),
        (9.333, "9.33 s"),
        (90.0, "90 s"),
        (1_800.0, "30 min"),
        (9_000.0, "2.50 h"),
        (91_694.495, "25.5 h"),
        (864_000.0, "10 d"),
    ],
)
def test_durations_are_worded_for_people(seconds: float | None, words: str) -> None:
    assert wording.duration(seconds) == words


def test_clock_and_counts() -> None:
    assert wording.clock(273_125.0) == "3 d 03:52:05"
    assert wording.clock(59.6) == "00:01:00"
    assert wording.significant(1_234_567.0) == "1,234,567"
    assert wording.listing(["a", "b", "c"]) == "a, b and c"


def axis_after(scale: Callable[..., None], *values: object) -> Any:
    axis = charts.Chart("any", 6, 4).panels()[0].xaxis
    scale(axis, *values)
    return axis


def ticks(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def test_axes_have_round_ticks_in_a_human_unit() -> None:
    elapsed = axis_after(charts.set_duration, 3 * 86_400.0, "Time")
    assert elapsed.get_label_text() == "Time (days)"
    assert ticks(elapsed) == ["0", "1", "2", "3"]
    log = axis_after(charts.set_log_duration, 5.0, 200_000.0, "JCT")
    assert ticks(log) == ["10 s", "1 min", "10 min", "1 h", "6 h", "1 d"]
    narrow = axis_after(charts.set_log_duration, 9.0, 14.0, "JCT")
    assert ticks(narrow)[:2] == ["9 s", "10 s"]
    bars = axis_after(charts.set_duration, 45_000.0, "Mean")
    assert (bars.get_label_text(), ticks(bars)[-1]) == ("Mean (hours)", "15")


@pytest.mark.parametrize(("low", "high"), [(0.001, 0.001), (5.0, 5.0), (1e-9, 1e12), (9.0, 14.0)])
def test_log_axes_never_break(low: float, high: float) -> None:
    axis = axis_after(charts.set_log_duration, low, high, "JCT")
    left, right = axis.axes.get_xlim()
    assert left <= low <= high <= right
    assert ticks(axis)
