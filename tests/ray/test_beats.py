"""The judge of other tests sees what it is there for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ray import beats


def live(folder: Path, name: str, *times: float) -> None:
    (folder / name).write_text("".join(f"{each} lives\n" for each in times))


def test_attempts_one_after_the_other_are_fine(tmp_path: Path) -> None:
    for name in ("1.1.0.10", "1.1.1.11", "2.1.0.12"):
        live(tmp_path, name, 1.0, 2.0)
    live(tmp_path, "1.2.0.13", 2.5, 3.0)
    beats.judge(tmp_path)
    assert beats.attempts(tmp_path, "1") == [1, 2]


def test_an_attempt_that_begins_before_the_last_is_over_is_seen(tmp_path: Path) -> None:
    live(tmp_path, "1.1.0.10", 1.0, 1.5)
    live(tmp_path, "1.1.1.11", 1.0, 2.0)
    live(tmp_path, "1.2.0.12", 1.9, 3.0)
    with pytest.raises(AssertionError, match="attempt 2 began before"):
        beats.judge(tmp_path)


def test_a_rank_that_is_started_twice_is_seen(tmp_path: Path) -> None:
    live(tmp_path, "1.1.0.10", 1.0, 1.5)
    live(tmp_path, "1.1.0.11", 2.0, 2.5)
    with pytest.raises(AssertionError, match="started twice"):
        beats.judge(tmp_path)
