"""What a follower is told of a job, once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.answers import job_row
from trainmaster.cli.support.notes import Notes, reason_key
from trainmaster.daemon.job_rows import JobRow


def waiting(sentence: str, code: str = "NotEnoughFree", **more: Any) -> JobRow:
    reason = {"code": code, "sentence": sentence, "held_by": ["3"], "need": 2, "free": 1, **more}
    return JobRow.from_json(job_row("5", "pending", reason=reason))


def test_a_reason_is_said_once_while_only_its_times_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    notes = Notes()
    rows = [waiting(f"Job 3 may be suspended in {left} s.") for left in (19, 18, 17)]
    rows += [waiting("2 are free.", free=2), waiting("Job 3 goes first.", "BehindOthers")]
    for row in rows:
        notes(row.why, reason_key(row))
    assert capsys.readouterr().err.splitlines() == [
        *("Job 3 may be suspended in 19 s.", "2 are free.", "Job 3 goes first.")
    ]
