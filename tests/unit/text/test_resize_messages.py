"""What a story says of resizes and lost ranks."""

from __future__ import annotations

import pytest

from trainmaster.model.units import WHOLE
from trainmaster.text.messages import elastic_sentence, story_sentence


@pytest.mark.parametrize(
    ("what", "detail", "sentence"),
    [
        (
            "resized",
            {"attempt": 1, "pids": [3, 4], "in_place": True, "paused_s": 0.3},
            "Resized in place, paused for 0.3 s (processes 3 4)",
        ),
        (
            "resized",
            {"attempt": 1, "pids": [3], "why": "a new rank ended with 9 before it had joined"},
            "Resized, from its checkpoint (process 3): a new rank ended with 9 before it had joined",
        ),
        (
            "resize ordered",
            {
                "attempt": 1,
                "from": 4,
                "to": 2,
                "by": "max-min",
                "for": ["3 (train)"],
                "on": ["a:0", "a:1"],
            },
            "Resizing from 4 devices to 2 for job 3 (train), by the policy max-min, on a:0 a:1 (attempt 1)",
        ),
        (
            "resize ordered",
            {"from": 1, "to": 2, "by": "max-min", "on": ["a:0", "a:1"]},
            "Resizing from 1 device to 2, by the policy max-min, on a:0 a:1",
        ),
        ("resize ordered", {"on": ["a:0"]}, "Resizing to run on a:0"),
        (
            "resize timed",
            {
                "attempt": 1,
                "order_ms": 0.002,
                "warm_up_ms": 1.8,
                "regroup_ms": 0.3,
                "leave_ms": 9.0,
            },
            "First step at the new size after 2 s: new ranks warming up beside the others 2 s,"
            " regrouping 0.3 s",
        ),
        (
            "replica lost",
            {"attempt": 1, "rank": 1, "left": 3, "code": 9},
            "Rank 1 was lost, the other 3 go on (exit code 9)",
        ),
        (
            "size limited",
            {"attempt": 1, "most_gpus": 4},
            "Can use at most 4 devices: its global batch has no samples for more ranks",
        ),
    ],
)
def test_sentence(what: str, detail: dict[str, object], sentence: str) -> None:
    assert story_sentence(what, detail) == sentence


def test_an_elastic_job_says_what_it_has_and_may_have() -> None:
    said = "It may have 1 to 4 GPUs{}: the policy max-min decides how many."
    sizes = 1 * WHOLE, 4 * WHOLE
    assert elastic_sentence(*sizes, 0, "max-min", False) == said.format("")
    assert elastic_sentence(*sizes, 2 * WHOLE, "max-min", False) == said.format(" and has 2 now")
    assert elastic_sentence(*sizes, 2 * WHOLE, "max-min", True) == said.format(
        " and is being resized to 2"
    )
