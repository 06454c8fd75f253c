"""What the grid and the timeline of the dashboard are drawn from."""

from __future__ import annotations

from typing import Any

from trainmaster.api.web.overview.gpu_grid import squares_of
from trainmaster.api.web.parts.gpu_timeline import bars_of
from trainmaster.api.web.parts.job_colours import hue
from trainmaster.api.web.parts.queue_bars import words


def test_a_square_has_all_jobs_of_its_device_and_what_was_measured() -> None:
    grid = {
        "nodes": [{"name": "n0", "devices": 2}, {"name": "n1", "devices": 1}],
        "jobs": [{"id": "7"}, {"id": "9"}],
        "held": [(0, 0, 0.5, 0), (0, 1, 0.5, 0), (2, None, 1.0, 0), (0, 1, 1.0, 1)],
        "set_aside": [(1, "It failed its self-test.")],
        "measured": [(2, 0.93, 10, 80, 61)],
    }
    assert squares_of(grid) == [
        ([("7", 0.5, 0), ("9", 0.5, 0), ("9", 1.0, 1)], ""),
        ([], "It failed its self-test."),
        ([(None, 1.0, 0)], "", 0.93, 10, 80, 61),
    ]


def span(job: str | None, begin: float, end: float, ended: str | None = None) -> dict[str, Any]:
    said = {"job": job, "name": "resnet", "user": "ada", "devices": ["n0:0"]}
    return {**said, "from_s": begin, "to_s": end, "ended": ended}


def drawn(*spans: dict[str, Any], now: tuple[str, ...] = ()) -> list[tuple[float, float, bool]]:
    timeline = {"spans": spans, "since_s": 0, "until_s": 100}
    bars = bars_of(timeline, ["n0:0", "n0:1"], {job: ["n0:0"] for job in now})
    return sorted((bar["from"], bar["to"], bar["held"]) for bar in bars)


def test_between_a_suspension_and_the_next_run_a_job_is_drawn_as_suspended() -> None:
    first, last = span("7", 10, 20, "suspended"), span("7", 30, 40)
    assert drawn(last, first) == [(10, 20, True), (20, 30, False), (30, 40, True)]
    assert drawn(span("7", 10, 20, "failed"), last) == [(10, 20, True), (30, 40, True)]


def test_one_that_is_suspended_in_memory_still_is_so_until_now() -> None:
    first = span("7", 10, 20, "suspended")
    assert drawn(first, now=("7",)) == [(10, 20, True), (20, 100, False)]
    assert drawn(first) == [(10, 20, True)]


def test_jobs_of_others_are_not_taken_for_one_job() -> None:
    assert len(drawn(span(None, 10, 20, "suspended"), span(None, 30, 40))) == 2


def test_jobs_submitted_one_after_the_other_have_unlike_colours() -> None:
    hues = [hue(str(number)) for number in range(1, 6)]
    apart = [abs(one - other) for at, one in enumerate(hues) for other in hues[:at]]
    assert min(min(each, 360 - each) for each in apart) > 30
    assert hue("7") == hue("7") != hue("not-a-number")


def test_a_queue_is_said_in_words() -> None:
    queue = {"gpus": 5.0, "guaranteed_gpus": 3.0, "borrowed_gpus": 2.0, "maximum_gpus": 6.0}
    said = words({**queue, "starved_gpus": 0, "waiting_gpus": 4.0})
    assert said == "5 used (2 borrowed) of 3 guaranteed, 6 at most, 4 wanted"
