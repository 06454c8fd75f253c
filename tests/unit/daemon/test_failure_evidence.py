"""What is read of the logs of a failed run."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.daemon import failure_evidence
from trainmaster.daemon.failure_evidence import OWN_BYTES, FailureReader, is_failure, lines_at_end
from trainmaster.model.engine_reports import Ended, Lost, StopOrder
from trainmaster.model.failure import Blame, Failure
from trainmaster.model.job import Run

RUN = Run("7", 2)
FULL = "OSError: [Errno 28] No space left on device"
PEER_GONE = "RuntimeError: [pair.cc:534] Connection closed by peer [127.0.0.1]:10895"


def a_log(folder: Path, rank: int, *lines: str, age: str = "") -> Path:
    path = folder / "runs/7/2" / f"rank-{rank}.log{age}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_more_is_read_than_the_last_lines_of_the_report(tmp_path: Path) -> None:
    noise = [f"frame #{n}: somewhere in a library" for n in range(100)]
    a_log(tmp_path, 1, "Traceback (most recent call last):", FULL, *noise)
    found = FailureReader(tmp_path).failure(Ended(RUN, 0, 1, rank=1, tail="\n".join(noise[-20:])))
    assert (found.reason, found.rank) == ("disk-full", 1)


def test_other_ranks_are_looked_at_where_the_first_only_lost_its_peer(tmp_path: Path) -> None:
    a_log(tmp_path, 0, "Traceback (most recent call last):", PEER_GONE)
    a_log(tmp_path, 3, "Traceback (most recent call last):", FULL)
    found = FailureReader(tmp_path).failure(Ended(RUN, 0, 1, rank=0))
    assert (found.reason, found.blame, found.rank) == ("disk-full", Blame.PLATFORM, 3)


def test_without_logs_the_report_decides(tmp_path: Path) -> None:
    for reader in (FailureReader(), FailureReader(tmp_path)):
        assert reader.failure(Ended(RUN, 0, 1, rank=0, tail=FULL)).reason == "disk-full"
        assert reader.failure(Ended(RUN, 0, 139, rank=0)).signal == "SIGSEGV"
        assert reader.failure(Lost(RUN, 0, "Its machine was restarted.")).reason == "lost-heartbeat"


def test_the_newest_part_of_rotated_files_is_read(tmp_path: Path) -> None:
    old, new = a_log(tmp_path, 0, "a", "b", age=".1"), a_log(tmp_path, 0, "c")
    assert lines_at_end((old, new), OWN_BYTES) == ("a", "b", "c")
    assert lines_at_end((old, new), 4) == ("b", "c")
    assert lines_at_end((tmp_path / "none",), OWN_BYTES) == ()


def test_only_ends_that_nobody_asked_for_are_failures() -> None:
    assert is_failure(Ended(RUN, 0, 1))
    assert is_failure(Lost(RUN, 0))
    assert not is_failure(Ended(RUN, 0, 0))
    assert not is_failure(Ended(RUN, 0, 143, asked=StopOrder.HALT))


def test_a_fault_of_the_classification_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Failure:
        raise KeyError("row")

    monkeypatch.setattr(failure_evidence, "classify", fails)
    found = FailureReader().failure(Ended(RUN, 0, 3, rank=1))
    assert found == Failure("unknown", rank=1, exit_code=3)
