"""The fence of a node: real runs end when nobody confirms for long that the node is alive."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live.daemons import until as seen
from tests.live.stage import Stage, alive_called, kill_remains, perform, until
from trainmaster.engines.local.journal import steady_ms
from trainmaster.engines.ray import fence
from trainmaster.engines.ray.confirmation import BOOT, Confirmation, confirm, confirmed
from trainmaster.model.engine_reports import Lost, Started
from trainmaster.model.job import Run

pytestmark = pytest.mark.live
RUN, OTHER = Run("12", 1), Run("13", 1)
HOUR_MS, SOON_MS = 3_600_000, 500


@contextmanager
def fenced(folder: Path, fence_ms: int) -> Iterator[None]:
    confirm(folder, Confirmation(steady_ms(), fence_ms))
    fence.start(folder, os.environ)
    try:
        yield
    finally:
        kill_remains(alive_called(str(folder)))


def test_runs_end_once_nobody_confirms_and_are_lost(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        with fenced(tmp_path, HOUR_MS):
            for run in (RUN, OTHER):
                await stage.up(run, stage.shell("setsid sleep 600 & sleep 600"), ranks=2)
            confirm(tmp_path, Confirmation(steady_ms(), SOON_MS))
            for run in (RUN, OTHER):
                lost = await stage.heard(run, Lost)
                assert "not confirmed" in lost.why or "killed" in lost.why
                assert await until(lambda run=run: not stage.alive(run))
            assert await until(lambda: not fence.is_watching(tmp_path))  # nothing is left to watch

    perform(tmp_path, act)


def test_a_journal_says_that_the_fence_ended_the_run(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        await stage.up(RUN, stage.shell("sleep 600"))
        await stage.engine.close()  # the launcher is gone
        with fenced(tmp_path, SOON_MS):
            await until(lambda: not fence.live_runs(tmp_path))
        async with stage.another() as later:
            await later.engine.observe({RUN: 1})
            assert "not confirmed" in (await later.heard(RUN, Lost)).why

    perform(tmp_path, act)


def test_runs_end_on_a_full_disk_too_and_are_lost_once_it_has_room(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        for run in (RUN, OTHER):
            await stage.up(run, stage.shell("sleep 600"))
        await stage.engine.close()
        with fenced(tmp_path, HOUR_MS):
            assert await until(lambda: fence.is_watching(tmp_path))
            (watcher,) = alive_called(str(tmp_path))
            _, most = resource.prlimit(watcher, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            confirm(tmp_path, Confirmation(steady_ms(), SOON_MS))
            for run in (RUN, OTHER):
                assert await until(lambda run=run: not stage.alive(run))
            await asyncio.sleep(2 * fence.LOOK_S)
            assert alive_called(str(tmp_path)) == [watcher]
            resource.prlimit(watcher, resource.RLIMIT_FSIZE, (most, most))
            assert await until(lambda: not fence.live_runs(tmp_path))
            assert await until(lambda: not fence.is_watching(tmp_path))

    perform(tmp_path, act)


def test_a_fence_ends_when_its_folder_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    folder.mkdir()
    with fenced(folder, HOUR_MS):
        assert alive_called(str(folder))
        shutil.rmtree(folder)
        seen(lambda: not alive_called(str(folder)), "the fence to end")


def test_a_run_goes_on_while_its_node_is_confirmed(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        with fenced(tmp_path, 10 * SOON_MS):
            await stage.up(RUN, stage.shell("sleep 600"))
            for _ in range(12):
                await asyncio.sleep(SOON_MS / 1000)
                confirm(tmp_path, Confirmation(steady_ms(), 10 * SOON_MS))
            assert stage.alive(RUN)
            assert not any(isinstance(each, Lost) for each in stage.of(RUN))
            assert len([each for each in stage.of(RUN) if isinstance(each, Started)]) == 1

    perform(tmp_path, act)


def test_there_is_one_fence_of_a_node(tmp_path: Path) -> None:
    with fenced(tmp_path, HOUR_MS):
        first = alive_called(str(tmp_path))
        fence.start(tmp_path, os.environ)
        assert alive_called(str(tmp_path)) == first
        assert len(first) == 1


def test_what_was_confirmed_before_the_machine_started_again_does_not_count(
    tmp_path: Path,
) -> None:
    now = steady_ms()
    assert not Confirmation(now, HOUR_MS, boot=BOOT).is_over(now)
    assert Confirmation(now, HOUR_MS, boot="another").is_over(now)
    assert Confirmation(now - HOUR_MS - 1, HOUR_MS).is_over(now)
    assert confirmed(tmp_path) is None
