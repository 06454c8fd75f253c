"""The page on the speed of a resized job: which prediction belongs to which stay."""

from __future__ import annotations

from typing import Any

from benchmarks.elastic_speed import page_of, sizes
from trainmaster.model.units import NOMINAL


def stay(asked: int, ranks: int, speed: float) -> dict[str, Any]:
    return {"asked": asked, "ranks": ranks, "from_step": 1, "samples_per_s": speed}


def expected(ranks: int, speed: float) -> dict[str, Any]:
    return {"ranks": ranks, "speed_ppm": round(speed * NOMINAL)}


def page(stays: list[dict[str, Any]], predicted: list[dict[str, Any]]) -> list[str]:
    case = {
        "case": "mlp",
        "batch": 64,
        "stays": stays,
        "predicted": predicted,
        "steps": 100,
        "whole_epochs": {"whole": 9, "each_sample_once": 9},
        "losses_apart": {"largest": 1e-6, "last": 0.0, "steps": 100},
    }
    said = page_of({"cores": 2, "slots": 4, "load_before": 0.1, "cases": [case]})
    return [line for line in said.splitlines() if line.startswith("| mlp | 64 |")]


def test_sizes_are_those_that_the_slots_allow_each_once_in_turn() -> None:
    assert sizes(8) == [1, 2, 4, 8, 4, 2]
    assert sizes(4) == [1, 2, 4, 2]


def test_a_stay_is_judged_by_the_prediction_of_the_resize_that_led_to_it() -> None:
    """It grew from 2 to 4 by way of 3, whose prediction is nobody's."""
    stays = [stay(1, 1, 100.0), stay(2, 2, 160.0), stay(4, 4, 250.0), stay(2, 2, 160.0)]
    predicted = [expected(2, 2.0), expected(3, 2.2), expected(4, 2.75), expected(2, 1.6)]
    assert page(stays, predicted) == [
        "| mlp | 64 | 1 | 100 |  |  |  |",
        "| mlp | 64 | 2 | 160 | 200 | +25% | +25% |",
        "| mlp | 64 | 4 | 250 | 275 | +10% | +60% |",
        "| mlp | 64 | 2 | 160 | 160 | +0% | +25% |",
    ]


def test_a_size_that_the_policy_did_not_take_is_not_judged() -> None:
    stays = [stay(1, 1, 100.0), stay(2, 2, 150.0), stay(4, 2, 150.0)]
    found = page(stays, [expected(2, 1.5)])
    assert found[2] == "| mlp | 64 | 2 (of 4) | 150 |  |  |  |"
