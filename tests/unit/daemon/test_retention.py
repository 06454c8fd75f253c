"""What is thrown away when a job ended long ago, and what never is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.daemon.test_dependencies import a_live
from trainmaster.config.limits import Limits
from trainmaster.daemon.code_snapshot import keep_code
from trainmaster.daemon.daemon import RetentionSettings, tidy_pause_ms
from trainmaster.daemon.retention import drop_checkpoints, drop_code, outdated_runs
from trainmaster.model.job import Run
from trainmaster.model.units import HOUR, MINUTE
from trainmaster.store.open import open_store
from trainmaster.store.rows import Batch, StepRow, StoredJob
from trainmaster.store.store import Store


def a_row(id: str, finish_ms: int | None, array: str | None = None) -> StoredJob:
    state = "running" if finish_ms is None else "succeeded"
    return replace(a_live(id).row(0), finish_ms=finish_ms, state=state, array=array)


def test_what_is_kept_shortly_is_looked_for_as_often_but_not_more_than_each_minute() -> None:
    usual, settings = Limits(), RetentionSettings()
    assert tidy_pause_ms(settings, usual) == HOUR
    assert tidy_pause_ms(settings, replace(usual, keep_logs=10 * MINUTE)) == 10 * MINUTE
    assert tidy_pause_ms(settings, replace(usual, keep_checkpoints=5_000)) == MINUTE
    assert tidy_pause_ms(RetentionSettings(tidy_ms=100), usual) == 100


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = open_store(f"sqlite:///{tmp_path}/t.db")
    assert found.acquire_leadership()
    rows = (a_row("1", 50), a_row("2", 500), a_row("3", None), a_row("4_0", 50, "4"))
    found.append([Batch(StepRow(1, 600, "[]", "[]"), jobs=rows)])
    for id in ("1", "2", "3", "4_0", "9"):
        (tmp_path / "runs" / id / "1").mkdir(parents=True)
    for id in ("1", "2", "3", "4"):
        (tmp_path / "source").mkdir(exist_ok=True)
        (tmp_path / "source" / "train.py").write_text("print(1)")
        keep_code(tmp_path / "source", tmp_path / "jobs" / id / "code")
        (tmp_path / "jobs" / id / "checkpoints").mkdir()
    return found


def is_live(id: str) -> bool:
    return id == "3"


def test_logs_go_with_jobs_that_ended_long_ago_but_not_those_of_another_store(
    store: Store, tmp_path: Path
) -> None:
    found = outdated_runs(tmp_path, store, is_live, before_ms=100)
    assert sorted(found) == [Run("1", 1), Run("4_0", 1)]


def test_code_goes_with_them(store: Store, tmp_path: Path) -> None:
    assert drop_code(tmp_path, store, is_live, before_ms=100) == 2
    left = sorted(path.parent.name for path in tmp_path.glob("jobs/*/code"))
    assert left == ["2", "3"]


def test_what_a_job_wrote_beside_its_code_is_its_own(store: Store, tmp_path: Path) -> None:
    (tmp_path / "jobs" / "1" / "code" / "model.pt").write_text("weights")
    with (tmp_path / "jobs" / "4" / "code" / "train.py").open("a") as file:
        file.write("  # changed by the job")
    drop_code(tmp_path, store, is_live, before_ms=100)
    assert [path.name for path in tmp_path.glob("jobs/1/code/*")] == ["model.pt"]
    assert [path.name for path in tmp_path.glob("jobs/4/code/*")] == ["train.py"]


def test_code_of_a_submission_under_way_is_left_alone(store: Store, tmp_path: Path) -> None:
    keep_code(tmp_path / "source", tmp_path / "jobs" / "77" / "code")
    drop_code(tmp_path, store, is_live, before_ms=100)
    assert (tmp_path / "jobs" / "77" / "code" / "train.py").exists()


def test_checkpoints_stay(store: Store, tmp_path: Path) -> None:
    drop_code(tmp_path, store, is_live, before_ms=100)
    assert len(list(tmp_path.glob("jobs/*/checkpoints"))) == 4


def test_checkpoints_go_by_a_limit_of_their_own(store: Store, tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    (away / "kept").touch()
    (tmp_path / "jobs" / "1" / "checkpoints" / "link").symlink_to(away)
    assert drop_checkpoints(tmp_path, store, is_live, before_ms=100) == 1
    left = sorted(path.parent.name for path in tmp_path.glob("jobs/*/checkpoints"))
    assert left == ["2", "3", "4"]
    assert (away / "kept").exists()
    (tmp_path / "jobs" / "2" / "checkpoints").rmdir()
    (tmp_path / "jobs" / "2" / "checkpoints").symlink_to(away)
    assert drop_checkpoints(tmp_path, store, is_live, before_ms=1000) == 0
    assert (away / "kept").exists()


def test_a_link_that_a_job_left_in_the_place_of_its_code_is_not_followed(
    store: Store, tmp_path: Path
) -> None:
    away = tmp_path / "away"
    for id in ("1", "4"):
        (tmp_path / "jobs" / id / "code").rename(away if id == "1" else away / "inner")
    (away / "empty").mkdir()
    (tmp_path / "jobs" / "1" / "code").symlink_to(away)
    code = tmp_path / "jobs" / "4" / "code"
    code.mkdir()
    (code / "data").symlink_to(away)
    drop_code(tmp_path, store, is_live, before_ms=100)
    assert (away / "train.py").exists()
    assert (away / "inner" / "train.py").exists()
    assert (away / "empty").is_dir()
