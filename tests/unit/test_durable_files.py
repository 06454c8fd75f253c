"""What is relied on after a power failure is on the disk before it is relied on."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from trainmaster.daemon.data_folder import HOME, STORE, StoreMark, home_of, store_mark, write_mark
from trainmaster.durable_files import write_whole
from trainmaster.engines.local import ownership, runfile
from trainmaster.engines.local.runfile import CgroupPlan, RankSpec, RunFile

RUN = RunFile(
    "7.1", 0, "/", {}, (RankSpec(("true",), {}),), "/s", 1000, 1 << 20, 2, "0", CgroupPlan()
)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The inodes of what the disk was told to write."""
    seen: list[int] = []

    def fsync(file: int) -> None:
        seen.append(os.fstat(file).st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    return seen


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("run.json", lambda folder: runfile.write(str(folder), RUN)),
        (STORE, lambda folder: write_mark(folder, StoreMark("a", "b", 1))),
        (HOME, home_of),
        (ownership.MARK, lambda folder: ownership.claim_checkpoints(folder, "alice")),
    ],
)
def test_a_mark_and_its_name_are_on_the_disk(
    tmp_path: Path, synced: list[int], name: str, write: Callable[[Path], object]
) -> None:
    write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).stat().st_ino in synced
    assert synced[-1] == tmp_path.stat().st_ino


def test_a_run_is_synced_once_with_its_folder(tmp_path: Path, synced: list[int]) -> None:
    runfile.write(str(tmp_path), RUN)
    assert len(synced) == 2
    assert stat.S_IMODE((tmp_path / "run.json").stat().st_mode) == 0o600


def test_the_former_file_stays_where_the_disk_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_whole(tmp_path / "mark", "before")

    def refuse(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        write_whole(tmp_path / "mark", "after")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


@pytest.mark.parametrize("content", [b"", b"\0" * 80, b"\xff\xfe", b"[]", b'{"store": 1'])
def test_a_mark_of_the_store_that_was_lost_is_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / STORE).write_bytes(content)
    assert store_mark(tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"\0" * 32])
def test_a_name_of_the_folder_that_was_lost_is_as_the_store_has_it(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / HOME).write_bytes(content)
    assert home_of(tmp_path, "known to the store") == "known to the store"
    assert home_of(tmp_path) == "known to the store"


@pytest.mark.parametrize("content", [b"", b"\0" * 32, b"\xff\n"])
def test_checkpoints_whose_owner_was_lost_are_set_aside(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ownership.CHECKPOINTS).mkdir()
    (tmp_path / ownership.MARK).write_bytes(content)
    ownership.claim_checkpoints(tmp_path, "bob")
    assert (tmp_path / "checkpoints.of-unknown-1").is_dir()
    assert (tmp_path / ownership.MARK).read_text() == "bob"
