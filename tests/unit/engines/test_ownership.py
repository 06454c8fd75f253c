"""Checkpoints and runs belong to a job by its UUID, not by its number."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.engines.local import journal, ownership


def a_job_folder(folder: Path, owner: str) -> Path:
    (folder / ownership.CHECKPOINTS).mkdir(parents=True)
    (folder / ownership.CHECKPOINTS / "model").write_text("weights")
    if owner:
        (folder / ownership.MARK).write_text(owner)
    return folder


@pytest.mark.parametrize("owner", ["alice", ""])
def test_checkpoints_of_another_job_are_set_aside_and_kept(tmp_path: Path, owner: str) -> None:
    folder = a_job_folder(tmp_path / "7", owner)
    ownership.claim_checkpoints(folder, "bob")
    assert not (folder / ownership.CHECKPOINTS).exists()
    (kept,) = folder.glob(f"checkpoints.of-{owner or 'unknown'}-*")
    assert (kept / "model").read_text() == "weights"
    assert (folder / ownership.MARK).read_text() == "bob"


@pytest.mark.parametrize("owner", ["alice", ""])
def test_a_job_finds_its_own_checkpoints_in_every_attempt(tmp_path: Path, owner: str) -> None:
    """Those of a job of an earlier version too, which has no UUID."""
    folder = a_job_folder(tmp_path / "7", owner)
    for _ in range(2):
        ownership.claim_checkpoints(folder, owner)
        assert (folder / ownership.CHECKPOINTS / "model").read_text() == "weights"


def test_a_journal_says_whose_run_it_is(tmp_path: Path) -> None:
    assert ownership.uuid_of(str(tmp_path)) is None
    book = journal.Journal(str(tmp_path))
    book.append(book.entry("opened", {"pid": 1, "uuid": "alice"}))
    book.append(book.entry("started", {"pids": [2]}))
    book.close()
    assert ownership.uuid_of(str(tmp_path)) == "alice"


def test_a_run_of_an_earlier_version_has_no_uuid(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"name": "7.1"}')
    assert ownership.uuid_of(str(tmp_path)) == ""
