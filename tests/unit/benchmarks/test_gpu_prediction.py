"""The simulator predicts the experiments on a GPU from what one job takes alone."""

from __future__ import annotations

import json

import pytest

from benchmarks.gpu.page import page
from benchmarks.gpu.prediction import EXPERIMENTS, RESULTS, at_once, by_turns, gpu_ms_per_step
from trainmaster.perf.default_parameters import DRIVER_LOAD, DRIVER_SAVE

SHARED = {"bookable_gib": 40, "share": 0.6, "quantum_s": 60, "states": ["succeeded"] * 3}


def test_three_jobs_by_turns_take_their_own_time_and_that_of_their_switches() -> None:
    steps = {"one-by-one": {"makespan_s": 300.0}, "shared": SHARED | {"makespan_s": 330.0}}
    found = by_turns({"steps": steps})
    switch_s = (24 << 30) * (1 / DRIVER_SAVE + 1 / DRIVER_LOAD)
    switches = (found["predicted_makespan_s"] - 300) / switch_s
    assert switches >= 1
    assert switches == pytest.approx(round(switches), abs=0.05)
    assert found["ratio"] == pytest.approx(found["predicted_makespan_s"] / 330, abs=0.001)


def test_small_jobs_gain_most_under_mps() -> None:
    rows = [(mode, count, float(count)) for mode in ("time", "mps") for count in (1, 8)]
    alone, turns, _, mps = at_once(rows, alone_ms=4 * gpu_ms_per_step())
    assert (alone["ratio"], alone["util"]) == (1, 0.25)
    assert turns["predicted_gain"] == pytest.approx(4, rel=0.01), "the GPU is full"
    assert 4 < mps["predicted_gain"] < 8


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_was_measured_on_an_h200_is_predicted(name: str) -> None:
    found = EXPERIMENTS[name](json.loads((RESULTS / f"{name}.json").read_text()))
    for row in found if isinstance(found, list) else [found]:
        assert row["ratio"] == pytest.approx(1, abs=0.15), row


def test_a_job_that_keeps_the_gpu_less_busy_gains_more() -> None:
    busy, idle = (at_once([("time", 8, 1.0)], alone_ms=ms)[0]["predicted_gain"] for ms in (2.5, 5))
    assert idle == pytest.approx(2 * busy, rel=0.01)


def test_the_page_shows_what_was_measured_beside_what_is_predicted() -> None:
    steps = {
        "time_slicing": {"measured_makespan_s": 330, "predicted_makespan_s": 318.2, "ratio": 0.964},
        "packing_live": [
            {
                "sharing": "mps",
                "jobs": 8,
                "measured_gain": 3.8,
                "predicted_gain": 3.9,
                "ratio": 1.026,
            }
        ],
    }
    text = page({"prediction": {"steps": steps}}, [])
    assert "| three jobs by turns: all done after, s | 330 | 318.2 | 0.964 |" in text
    assert "| 8 small jobs by mps, `packing_live`: gain | 3.8 | 3.9 | 1.026 |" in text
