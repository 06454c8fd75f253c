"""A backup of a manager that runs jobs as their users: whose files are, and links that lead elsewhere."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from trainmaster.daemon.backup_file import FOLDER, Unpacked, unpack, writing

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
    assert unpack(tmp_path / "backup.tar.gz", target) == Unpacked()
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
    assert unpack(tmp_path / "backup.tar.gz", target) == Unpacked(stayed=2)
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


# -- what a job may have put into a backup, and where that goes -----------------------------------------

IN_JOB = f"{FOLDER}jobs/1/checkpoints"
PLANTED = b"webhook_hosts: ['*']"


def an_archive(path: Path, *entries: tuple[str, str | bytes | None]) -> Path:
    """With a job's folder, and these entries of its user: a link to, a file of, or None for a folder."""
    with tarfile.open(path, "w:gz") as archive:
        above = [(f"{FOLDER}jobs", None), (f"{FOLDER}jobs/1", None), (IN_JOB, None)]
        for number, (name, content) in enumerate((*above, *entries)):
            info = tarfile.TarInfo(name)
            info.uid = info.gid = 0 if number < 2 else ADA
            info.mode = 0o755 if content is None else 0o644
            info.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
            if isinstance(content, bytes):
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return path


@pytest.mark.parametrize(
    ("entries", "left_out"),
    [
        ([("D", "../../.."), ("D/notifications.yaml", PLANTED)], 1),
        ([("D", "../../.."), ("D/runs", None), ("D/runs/x", PLANTED)], 2),
        ([("D", "../2"), ("D/uuid", PLANTED)], 1),
        ([("x.restoring", "../../../notifications.yaml"), ("x", PLANTED)], 0),
        ([("../../../notifications.yaml", PLANTED)], 1),
        ([("missing/notifications.yaml", PLANTED)], 1),
    ],
    ids=["link", "folder", "other job", "unfinished", "dots", "no folder"],
)
def test_nothing_is_put_behind_a_link(
    tmp_path: Path, entries: list[tuple[str, str | bytes | None]], left_out: int
) -> None:
    """A job exchanges a folder for a link while the backup is made, so that it has both."""
    target = tmp_path / "target"
    (target / "jobs" / "2").mkdir(parents=True)
    in_job = ((f"{IN_JOB}/{name}", content) for name, content in entries)
    found = unpack(an_archive(tmp_path / "b.tar.gz", *in_job), target)
    assert found == Unpacked(left_out=left_out)
    assert [path.name for path in target.iterdir()] == ["jobs"]
    assert not [*(target / "jobs" / "2").iterdir()]
    assert not [*target.rglob("missing")]


def test_a_link_that_leads_elsewhere_by_another_link_keeps_nothing_from_being_restored(
    tmp_path: Path,
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    links = ((f"{IN_JOB}/A", "../../.."), (f"{IN_JOB}/B", "A/../x"))
    archive = an_archive(tmp_path / "b.tar.gz", *links, (f"{IN_JOB}/model", b"weights"))
    assert unpack(archive, target) == Unpacked(left_out=1)
    assert (target / "jobs/1/checkpoints/model").read_text() == "weights"


@pytest.mark.parametrize("name", ["admin-token", "store.json", "jobs", "notifications.yaml/x"])
def test_only_settings_are_put_beside_the_folders_of_runs(tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    target.mkdir()
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz") as archive:
        for each in (f"{FOLDER}{name}", f"{FOLDER}slots"):
            info = tarfile.TarInfo(each)
            info.size = 1
            archive.addfile(info, io.BytesIO(b"4"))
    assert unpack(tmp_path / "b.tar.gz", target) == Unpacked(left_out=1)
    assert [path.name for path in target.iterdir()] == ["slots"]
