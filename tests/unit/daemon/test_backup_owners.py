"""A backup of a manager that runs jobs as their users: whose files are, and links that lead elsewhere."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from trainmaster.daemon.backup_file import FOLDER, unpack, writing

ADA, BOB = 61_001, 61_002
"""Numbers that are no users here."""


@pytest.fixture(autouse=True)
def as_root() -> None:
    if os.geteuid() != 0:
        pytest.fail("This test gives files to other users: run it as root.")


def backed_up(folder: Path, target: Path) -> list[str]:
    """Back up `jobs`; what was said."""
    jobs = folder / "jobs"
    with writing(target) as writer:
        paths = [jobs, *sorted(jobs.rglob("*"))]
        return [
            said
            for path in paths
            if (said := writer.add_path(path, f"{FOLDER}{path.relative_to(folder)}"))
        ]


def saved_by(owner: int, folder: Path, job: str, name: str = "model") -> Path:
    checkpoints = folder / "jobs" / job / "checkpoints"
    checkpoints.mkdir(parents=True)
    (folder / "jobs").chmod(0o711)
    checkpoints.parent.chmod(0o711)
    checkpoints.chmod(0o700)
    (checkpoints / name).write_text(f"of {owner}")
    for path in (checkpoints / name, checkpoints):
        os.chown(path, owner, owner)
    return checkpoints


def test_what_is_put_back_belongs_to_whom_it_did(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    target.mkdir()
    saved_by(ADA, source, "1")
    saved_by(BOB, source, "2")
    assert not backed_up(source, tmp_path / "backup.tar.gz")
    assert unpack(tmp_path / "backup.tar.gz", target) == 0
    for job, owner in (("1", ADA), ("2", BOB)):
        checkpoints = target / "jobs" / job / "checkpoints"
        assert checkpoints.stat().st_uid == (checkpoints / "model").stat().st_uid == owner
        assert stat.S_IMODE(checkpoints.stat().st_mode) == 0o700
        assert checkpoints.parent.stat().st_uid == 0
        assert stat.S_IMODE(checkpoints.parent.stat().st_mode) == 0o711


def test_nothing_is_put_into_a_folder_that_is_a_users(tmp_path: Path) -> None:
    """The user may have put a link to somewhere else into it."""
    source, target = tmp_path / "source", tmp_path / "target"
    checkpoints = saved_by(ADA, source, "1")
    (checkpoints / "step").mkdir()
    (checkpoints / "step" / "weights").write_text("old")
    backed_up(source, tmp_path / "backup.tar.gz")
    newer = saved_by(ADA, target, "1", "newer")
    assert unpack(tmp_path / "backup.tar.gz", target) == 2
    assert [path.name for path in newer.iterdir()] == ["newer"]


def test_a_file_behind_a_link_is_left_out(tmp_path: Path) -> None:
    """A job exchanges a folder for a link after the folder was listed."""
    source, secrets = tmp_path / "source", tmp_path / "secrets"
    checkpoints = saved_by(ADA, source, "1")
    secrets.mkdir()
    (secrets / "key").write_text("of root")
    (checkpoints / "step").symlink_to(secrets)
    behind = checkpoints / "step" / "key"
    with writing(tmp_path / "backup.tar.gz") as writer:
        said = writer.add_path(behind, f"{FOLDER}jobs/1/checkpoints/step/key")
    assert said == f"{behind} leads elsewhere, and was left out"
