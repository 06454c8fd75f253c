"""Checkpoints are whole or not there; a damaged one is passed over, and that is said."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trainmaster_sdk.checkpoints import MANIFEST, Checkpoints


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def state_file(folder: Path) -> Path:
    (file,) = folder.glob("state.*")
    return file


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path / "deep" / "er", keep=2)
    assert store.load() is None
    store.save({"weights": [1.5, 2.5]}, 10)
    found = store.load()
    assert found is not None
    assert (found.step, found.state, found.folder.name) == (10, {"weights": [1.5, 2.5]}, "step-10")
    assert (found.folder.parent / "latest").read_text() == "step-10\n"


def test_only_the_newest_few_stay(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep=2)
    for step in (8, 9, 10, 100):
        store.save(step, step)
    assert names(tmp_path) == ["latest", "step-10", "step-100"]


def test_keeping_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one"):
        Checkpoints(tmp_path, keep=0)


def test_the_same_step_again_replaces_it(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep=2)
    store.save("first", 5)
    store.save("second", 5)
    found = store.load()
    assert found is not None
    assert found.state == "second"
    assert names(tmp_path) == ["latest", "step-5"]


def cut(folder: Path) -> None:
    os.truncate(state_file(folder), 3)


def flip(folder: Path) -> None:
    content = bytearray(state_file(folder).read_bytes())
    content[len(content) // 2] ^= 1
    state_file(folder).write_bytes(content)


def lose_state(folder: Path) -> None:
    state_file(folder).unlink()


def lose_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def garble_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text('{"files": ')


@pytest.mark.parametrize("damage", [cut, flip, lose_state, lose_manifest, garble_manifest])
def test_a_damaged_one_is_passed_over_and_that_is_said(
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    store = Checkpoints(tmp_path, keep=3)
    store.save("good" * 100, 1)
    store.save("bad" * 100, 2)
    damage(tmp_path / "step-2")
    with caplog.at_level(logging.WARNING):
        found = store.load()
    assert found is not None
    assert (found.step, found.state) == (1, "good" * 100)
    assert "step-2 is damaged" in caplog.text
    assert "going on from step-1" in caplog.text
    # Training goes on from there, and what it saves counts, though its number is lower.
    store.save("new", 1)
    again = store.load()
    assert again is not None
    assert again.state == "new"


def test_all_damaged_is_none_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Checkpoints(tmp_path, keep=3)
    store.save("bad", 2)
    lose_state(tmp_path / "step-2")
    assert store.load() is None
    assert "no earlier one" in caplog.text


class Unreadable:
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return json.loads, ("no json",)


def test_a_whole_one_that_the_program_cannot_read_is_its_error(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep=3)
    store.save("old", 1)
    store.save(Unreadable(), 2)
    with pytest.raises(json.JSONDecodeError):
        store.load()


class Unwritable:
    def __reduce__(self) -> tuple[object, ...]:
        raise OSError(28, "No space left on device")


def test_a_save_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep=3)
    store.save("old", 1)
    with pytest.raises(OSError, match="No space"):
        store.save(["x" * 10_000, Unwritable()], 2)
    found = store.load()
    assert found is not None
    assert found.state == "old"
    assert names(tmp_path) == ["latest", "step-1"]


def test_what_a_killed_writer_left_is_cleared_away(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep=3)
    (store.begin(7) / "half").write_text("x")
    assert store.load() is None
    store.clear_away()
    assert names(tmp_path) == []


def test_killed_while_replacing_the_same_step(tmp_path: Path) -> None:
    """Between two renames the old one is found under its other name."""
    store = Checkpoints(tmp_path, keep=3)
    store.save("first", 5)
    (tmp_path / "step-5").rename(tmp_path / ".old-step-5")
    found = store.load()
    assert found is not None
    assert (found.step, found.state) == (5, "first")


def test_killed_before_latest_was_written(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep=3)
    store.save("first", 5)
    (tmp_path / "latest").unlink()
    assert store.newest() == tmp_path / "step-5"


def test_one_can_go_back_by_editing_latest(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep=3)
    for step in (1, 2, 3):
        store.save(step, step)
    (tmp_path / "latest").write_text("step-2")
    found = store.load()
    assert found is not None
    assert found.state == 2


def test_hugging_face_checkpoints_are_found_and_never_removed(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep=1)
    for step in (500, 1000):
        (tmp_path / f"checkpoint-{step}").mkdir()
    (tmp_path / "checkpoint-500" / "trainer_state.json").write_text("{}")
    assert store.newest() == tmp_path / "checkpoint-500"  # the newer one was not finished
    with pytest.raises(FileNotFoundError, match=r"tm\.latest"):
        store.load()
    store.save("ours", 2000)
    store.save("ours", 3000)
    assert names(tmp_path) == ["checkpoint-1000", "checkpoint-500", "latest", "step-3000"]


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    for name in ("step-x", "steps-3", "my-step-4"):
        (tmp_path / name).mkdir()
    (tmp_path / "step-9").write_text("a file")
    assert Checkpoints(tmp_path, keep=1).newest() is None
