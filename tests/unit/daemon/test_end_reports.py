"""What is recorded of the end of a run: an exit is no signal, and the first rank is the classified one."""

from __future__ import annotations

import pytest

from trainmaster.daemon.report_events import end_of
from trainmaster.model.engine_reports import Ended
from trainmaster.model.failure import Failure
from trainmaster.model.job import Run
from trainmaster.model.stop_reasons import EndCode

MISSING, UNKNOWN = Failure("command-not-found"), Failure("unknown")


@pytest.mark.parametrize(
    ("code", "signal", "why", "ran_ms", "failure", "end"),
    [
        (137, "", "", 5000, UNKNOWN, EndCode.EXIT_CODE),
        (137, "SIGKILL", "", 5000, UNKNOWN, EndCode.SIGNAL),
        (137, None, "", None, UNKNOWN, EndCode.SIGNAL),
        (127, "", "", 2500, UNKNOWN, EndCode.EXIT_CODE),
        (127, "", "", 90_000, MISSING, EndCode.EXIT_CODE),
        (127, "", "", 20, MISSING, EndCode.NOT_STARTED),
        (126, "", "It is not executable.", 0, UNKNOWN, EndCode.NOT_STARTED),
    ],
)
def test_the_code_of_an_end(
    code: int, signal: str | None, why: str, ran_ms: int | None, failure: Failure, end: EndCode
) -> None:
    said = Ended(Run("1", 1), 0, code, rank=0, why=why, signal=signal, ran_ms=ran_ms)
    assert end_of(said, failure).code == end


def test_the_rank_that_a_launcher_names_is_recorded() -> None:
    said = Ended(Run("1", 1), 0, 1, rank=0, signal="")
    assert end_of(said, Failure("unknown", rank=3)).rank == 3
    assert end_of(said, Failure("unknown")).rank == end_of(said).rank == 0
