"""Rows of the API as the command line reads them, from managers of other versions too."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.daemon.job_rows import JobRow, ProgressRow


def test_what_a_newer_manager_adds_is_ignored_and_what_an_older_one_lacks_is_empty() -> None:
    row = JobRow.from_json(
        {
            "id": "1",
            "mood": "good",
            "progress": {"step": 1, "epoch": 3},
            "reason": {"code": "x", "sentence": "y", "since": 1},
        }
    )
    assert row.id == "1"
    assert (row.name, row.lost_s, row.restarts, list(row.nodes)) == ("", 0, 0, [])
    assert (row.exit_code, row.deadline) == (None, None)
    assert row.progress == ProgressRow(0, 1, None, None, None, None)
    assert row.reason is not None
    assert (row.reason.code, row.reason.sentence, row.reason.held_by) == ("x", "y", None)


@pytest.mark.parametrize(
    ("answer", "size"),
    [
        ({"gpus": 2}, "2"),
        ({"gpus": 1, "gpus_now": 4, "min_gpus": 1, "max_gpus": 4}, "4 (1-4)"),
        ({"gpus": 1, "gpus_now": None, "min_gpus": 1, "max_gpus": 4}, "1-4"),
    ],
)
def test_an_elastic_job_shows_what_it_has_and_may_have(answer: dict[str, Any], size: str) -> None:
    assert JobRow.from_json(answer).size == size
