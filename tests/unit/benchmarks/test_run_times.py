"""The replay of a trace: what a forecast may know of it, and how it is judged."""

from __future__ import annotations

import pytest

from benchmarks.run_times import Judged, Replay, Run, factor_off
from trainmaster.model.program_key import ProgramKey
from trainmaster.model.units import HOUR, MINUTE


def runs(*lengths: int) -> list[Run]:
    """One after another, of one program."""
    return [
        Run(at * HOUR, length, ProgramKey("ada", "", ("./train",)), 1, "ada")
        for at, length in enumerate(lengths)
    ]


def judged(found: list[Run]) -> list[Judged]:
    return list(Replay().judged(found))


def test_a_forecast_knows_only_the_jobs_that_have_ended() -> None:
    found = judged(runs(*[10 * MINUTE] * 5, 30 * MINUTE))
    last = [each for each in found if each.forecast.ran_ms + each.left_ms == 30 * MINUTE]
    assert {
        each.forecast.ran_ms // MINUTE: each.forecast.predicted_ms // MINUTE for each in last
    } == {
        0: 10,
        1: 9,
        2: 8,
        4: 6,
        8: 2,
        16: 16,  # it has outlasted them all: as long again
    }
    later = judged(
        [
            *runs(*[10 * MINUTE] * 5, 30 * MINUTE),
            Run(0, 90 * HOUR, ProgramKey("", "", ("x",)), 1, ""),
        ]
    )
    assert [each for each in later if each.left_ms < 80 * HOUR] == found


def test_the_first_fifth_is_only_learned_from() -> None:
    found = judged(runs(*[10 * MINUTE] * 10))
    assert len({id(each) for each in found if each.forecast.ran_ms == 0}) == 8


def test_the_baseline_is_the_mean_of_the_newest_runs() -> None:
    found = judged(runs(*[10 * MINUTE] * 4, 20 * MINUTE, 40 * MINUTE))
    last = [each for each in found if each.forecast.ran_ms + each.left_ms == 40 * MINUTE]
    # 12 min on average; beyond them, as long again as it has run.
    assert [each.baseline_ms // MINUTE for each in last] == [12, 11, 10, 8, 4, 16, 32]


def test_a_factor_counts_alike_in_both_directions() -> None:
    assert factor_off([(10, 20), (20, 10), (10, 10)]) == pytest.approx(2)
