"""A checkpoint folder shows when a program saved last."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainmaster.engines.local import checkpoint_folder
from trainmaster.engines.local.checkpoint_folder import LAG_NS, last_written_ns, worked_ns

AT_NS = 1_000_000_000_000


def written(path: Path, at_ns: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, ns=(at_ns, at_ns))


def test_the_newest_file_counts_if_it_is_later_and_not_hidden(tmp_path: Path) -> None:
    assert last_written_ns(str(tmp_path / "none"), AT_NS) is None
    assert last_written_ns("", AT_NS) is None
    written(tmp_path / "step-0" / "model", AT_NS - LAG_NS)
    written(tmp_path / ".stop-0", AT_NS + 9)
    written(tmp_path / ".partial" / "model", AT_NS + 9)
    assert last_written_ns(str(tmp_path), AT_NS) is None
    written(tmp_path / "step-1" / "model", AT_NS - 1)
    assert last_written_ns(str(tmp_path), AT_NS) == AT_NS - 1, "the clock of files is behind"
    written(tmp_path / "step-3" / "model", AT_NS + 3)
    written(tmp_path / "step-2" / "model", AT_NS + 2)
    assert last_written_ns(str(tmp_path), AT_NS) == AT_NS + 3


@pytest.mark.parametrize(
    "name",
    [
        "train.log",
        "slurm-7.out",
        "notes.txt",
        "loss.csv",
        "metrics.jsonl",
        "events.out.tfevents.1.a",
    ],
)
def test_files_that_programs_append_to_are_not_checkpoints(tmp_path: Path, name: str) -> None:
    written(tmp_path / "run" / name, AT_NS + 9)
    assert last_written_ns(str(tmp_path), AT_NS) is None


def test_what_was_found_in_time_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is time for one folder and one file of it, and for nothing below."""
    for name in ("one", "two", "folder/model", "folder/below/model"):
        written(tmp_path / name, AT_NS + 1)
    looks: list[float] = []
    seen: list[str] = []

    def clock() -> float:
        looks.append(0.0)
        return float(len(looks))

    def noted(path: str) -> os.stat_result:
        seen.append(path)
        return os.stat(path)

    monkeypatch.setattr(checkpoint_folder.time, "monotonic", clock)
    monkeypatch.setattr(checkpoint_folder.os, "lstat", noted)
    monkeypatch.setattr(checkpoint_folder, "LOOKING_S", 1.5)
    assert last_written_ns(str(tmp_path), AT_NS) == AT_NS + 1
    assert len(seen) == 1
    assert len(looks) == 3


def test_time_in_memory_is_no_work() -> None:
    assert worked_ns(20, 55, []) == 35
    assert worked_ns(20, 55, [(24, 54)]) == 5
    assert worked_ns(20, 55, [(5, 10), (18, 22), (30, 40)]) == 23
