"""Output of a pre-run is not taken for that of the run after it."""

from __future__ import annotations

import pytest

from trainmaster.cli.support.follow import _Attempts
from trainmaster.cli.support.notes import Notes
from trainmaster.daemon.job_rows import JobRow

PRERUN = {"result": "passed", "sentence": "", "attempt": 1, "run_s": 1.0}
MARKED = "The output of the pre-run of job 7, on one device:\n"
OVER = "The output of job 7, on all its devices:\n"


@pytest.mark.parametrize(
    ("prerun", "seen", "said"),
    [
        (PRERUN, (1, 1, 2, 2, 3), MARKED + OVER),
        (PRERUN, (2, 3), ""),
        (PRERUN | {"attempt": None, "result": "skipped"}, (1, 2), ""),
        (None, (1, 2), ""),
    ],
)
def test_lines_tell_where_it_begins_and_ends(
    prerun: dict[str, object] | None,
    seen: tuple[int, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    row, attempts = (
        JobRow.from_json({"id": "7", "prerun": prerun and {**prerun}}),
        _Attempts(Notes()),
    )
    for attempt in seen:
        attempts.see(row, attempt)
    assert capsys.readouterr().err == said
