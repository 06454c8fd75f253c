"""A fatal fault of one client of MPS is not the fault of its neighbours."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from trainmaster.engines.local.mps_faults import (
    WINDOW_MS,
    ClientFailure,
    collateral,
    fault_line,
    has_failed,
)
from trainmaster.model.engine_reports import Ended, StopOrder
from trainmaster.model.job import Run

CUDA = "RuntimeError: CUDA error: an illegal memory access was encountered"
FIRST = ClientFailure("GPU-a", Ended(Run("1", 1), 1_000, 1, tail=CUDA))
SECOND = ClientFailure("GPU-a", Ended(Run("2", 3), 1_400, 1, tail=CUDA, steady_ms=7))


def ended(failure: ClientFailure, **said: object) -> ClientFailure:
    return replace(failure, end=replace(failure.end, **said))  # type: ignore[arg-type]


def test_the_second_is_lost_and_says_through_whom() -> None:
    lost = collateral(SECOND, [FIRST])
    assert lost is not None
    assert (lost.run, lost.at_ms, lost.steady_ms) == (Run("2", 3), 1_400, 7)
    assert "A fault of job 1 ended it as well" in lost.why


@pytest.mark.parametrize(
    ("failure", "earlier", "evidence", "is_lost"),
    [
        (SECOND, [], "", False),
        (SECOND, [FIRST], "", True),
        (ended(SECOND, at_ms=900), [FIRST], "", True),
        (replace(SECOND, gpu="GPU-b"), [FIRST], "", False),
        (ended(SECOND, at_ms=1_001 + WINDOW_MS), [FIRST], "", False),
        (ended(SECOND, run=Run("1", 2)), [FIRST], "", False),
        (ended(SECOND, tail="ValueError: no such file"), [FIRST], "", False),
        (ended(SECOND, tail="ValueError: no such file"), [FIRST], "[..] fatal fault", True),
        (ended(SECOND, tail="CUDA error: out of memory"), [FIRST], "", False),
        (ended(SECOND, tail="torch.OutOfMemoryError: CUDA out of memory"), [FIRST], "x", False),
    ],
    ids=[
        *("alone", "neighbour", "told later", "another GPU", "much later", "the same job"),
        *("its own bug", "the log knows", "out of memory", "out of memory, whatever the log"),
    ],
)
def test_who_is_to_blame(
    failure: ClientFailure, earlier: list[ClientFailure], evidence: str, is_lost: bool
) -> None:
    assert (collateral(failure, earlier, evidence) is not None) is is_lost


def test_one_that_was_told_to_stop_or_succeeded_has_not_failed() -> None:
    assert has_failed(FIRST.end)
    assert not has_failed(replace(FIRST.end, code=0))
    assert not has_failed(replace(FIRST.end, asked=StopOrder.HALT))


def test_the_log_of_the_daemon_is_evidence_only_near_the_failure() -> None:
    lines = [
        "[2026-11-16 18:00:01.123 Other 77] Client 4242 encountered a fatal exception",
        "[2026-11-16 18:00:02.123 Server 77] New client 4243 connected",
        "no stamp, but a fatal fault",
    ]
    at_ms = int(datetime.fromisoformat("2026-11-16 18:00:01").astimezone().timestamp()) * 1000
    assert fault_line(lines, at_ms + 3_000) == lines[0]
    assert fault_line(lines, at_ms + 60_000) == ""
