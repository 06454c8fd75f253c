"""Whose the manager's state is, and as whom it runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster.cli.up import AS_ROOT, announcement, keep_private
from trainmaster.daemon.service_api import Health


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """As most people have it; as it was afterwards."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_folder_and_all_that_comes_into_it_is_the_users_alone(tmp_path: Path) -> None:
    folder = tmp_path / "share" / "state"
    keep_private(folder)
    (folder / "trainmaster.db").touch()
    (folder / "runs").mkdir()
    assert mode(folder) == 0o700
    assert mode(folder / "trainmaster.db") == 0o600
    assert mode(folder / "runs") == 0o700


def test_a_folder_that_was_there_stays_as_it_is_and_our_files_in_it_do_not(tmp_path: Path) -> None:
    ours = ("trainmaster.db", "trainmaster.db-wal", "address", "manager.log", "manager.log.1")
    for name in (*ours, "theirs.txt"):
        (tmp_path / name).touch()
    (tmp_path / "jobs").mkdir()
    tmp_path.chmod(0o755)
    keep_private(tmp_path)
    assert mode(tmp_path) == 0o755
    assert {mode(tmp_path / name) for name in ours} == {0o600}
    assert mode(tmp_path / "jobs") == 0o700
    assert mode(tmp_path / "theirs.txt") == 0o644
    (tmp_path / "trainmaster.db-shm").touch()
    assert mode(tmp_path / "trainmaster.db-shm") == 0o600


class Starting:
    """A manager that has just started."""

    def health(self) -> Health:
        return Health("active", "")

    def live_jobs(self) -> tuple[int, int]:
        return 0, 0


@pytest.mark.parametrize(("user", "is_warned"), [(0, True), (1000, False)])
def test_a_manager_of_root_says_what_others_can_do_with_it(
    user: int, is_warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    said = [*announcement(Starting(), "http://127.0.0.1:8470", tmp_path)]  # type: ignore[arg-type]
    assert said[0].startswith("Trainmaster at http://127.0.0.1:8470")
    assert (AS_ROOT in said) == is_warned
