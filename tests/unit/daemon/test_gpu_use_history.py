"""Curves of what jobs used of their GPUs: bounded, kept over a restart and after the end of the job."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.daemon.test_retention import a_row, is_live
from trainmaster.daemon.gpu_use_history import (
    FOLDER,
    MOST_POINTS,
    GpuUseHistory,
    UseCurve,
    UsePoint,
)
from trainmaster.daemon.retention import drop_gpu_use
from trainmaster.daemon.run_gpu_use import RunUse
from trainmaster.model.job import Run
from trainmaster.model.units import GIB, SECOND
from trainmaster.store.open import open_store
from trainmaster.store.rows import Batch, StepRow


def curve_of(seconds: int, begin: int = 0) -> UseCurve:
    curve = UseCurve()
    for at in range(begin, begin + seconds):
        curve.add(UsePoint(at * SECOND, 1_000_000 * (at % 2), at))
    return curve


@pytest.mark.parametrize(("seconds", "every_s"), [(10, 1), (360, 1), (361, 2), (3_600, 16)])
def test_a_longer_time_has_no_more_points(seconds: int, every_s: int) -> None:
    curve = curve_of(seconds)
    assert len(curve.points) <= MOST_POINTS
    assert curve.every_ms == every_s * SECOND
    assert sum(each.looks for each in curve.points) == seconds
    assert curve.points[0].at_ms == 0


def test_points_become_the_mean_utilisation_and_the_largest_memory() -> None:
    curve = curve_of(720)
    assert {each.util_ppm for each in curve.points} == {500_000}
    assert [each.memory for each in curve.points[:3]] == [1, 3, 5]


def test_what_the_driver_does_not_say_counts_for_nothing() -> None:
    curve = UseCurve(2 * SECOND)
    curve.add(UsePoint(0, None, 5))
    curve.add(UsePoint(SECOND, 600_000, 4))
    curve.add(UsePoint(2 * SECOND, None, 3))
    assert curve.points == [UsePoint(0, 600_000, 5, 2), UsePoint(2 * SECOND, None, 3)]


def readings(memory: int, job: str = "3") -> Any:
    use = RunUse(Run(job, 1), {"GPU-0": memory, "GPU-1": memory}, {"GPU-0": 0, "GPU-1": 500_000})
    return SimpleNamespace(runs=lambda: [use])


def test_a_curve_outlasts_its_manager_and_its_job(tmp_path: Path) -> None:
    async def scenario() -> None:
        times, live = iter(range(0, 100 * SECOND, SECOND)), {"3"}
        first = GpuUseHistory(tmp_path, lambda: next(times), live.__contains__)
        first.look(readings(GIB))
        await first.keep()
        second = GpuUseHistory(tmp_path, lambda: next(times), live.__contains__)
        second.look(readings(2 * GIB))
        both = [UsePoint(0, 250_000, 2 * GIB), UsePoint(SECOND, 250_000, 4 * GIB)]
        assert (await second.of("3")).points == both
        live.clear()
        await second.keep()
        assert second._curves == {}
        assert (await second.of("3")).points == both
        assert (tmp_path / FOLDER / "3.json").stat().st_mode & 0o077 == 0

    asyncio.run(scenario())


def test_a_curve_that_cannot_be_written_is_written_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        history = GpuUseHistory(tmp_path, lambda: 0, lambda _: False)
        history.look(readings(GIB))
        (tmp_path / FOLDER).write_text("in the way")
        await history.keep()
        assert len((await history.of("3")).points) == 1
        (tmp_path / FOLDER).unlink()
        await history.keep()
        assert (tmp_path / FOLDER / "3.json").exists()

    asyncio.run(scenario())


def test_a_damaged_file_is_an_empty_curve(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "3.json").write_text('{"every_ms": ')
    history = GpuUseHistory(tmp_path, lambda: 0, lambda _: False)
    assert asyncio.run(history.of("3")).points == []


def test_files_go_with_jobs_that_ended_long_ago(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/t.db")
    assert store.acquire_leadership()
    rows = (a_row("1", 50), a_row("2", 500), a_row("3", None))
    store.append([Batch(StepRow(1, 600, "[]", "[]"), jobs=rows)])
    (tmp_path / FOLDER).mkdir()
    for job in ("1", "2", "3", "9"):
        (tmp_path / FOLDER / f"{job}.json").write_text("{}")
    drop_gpu_use(tmp_path, store, is_live, before_ms=100)
    assert sorted(each.stem for each in (tmp_path / FOLDER).iterdir()) == ["2", "3", "9"]
