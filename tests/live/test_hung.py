"""What stands still is noticed and replaced: supervisors, the fork server, the leader."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.live import daemons
from tests.live.daemons import LiveDaemon, live, sweep
from tests.live.stage import Stage, perform, state_of, supervisors, until
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.model.actions import Kill
from trainmaster.model.engine_reports import Lost, Started
from trainmaster.model.job import Run
from trainmaster.model.topology import parse_shorthand

pytestmark = pytest.mark.live

RUN, OTHER = Run("1", 1), Run("2", 1)


def impatient(folder: Path) -> LocalEngine:
    return LocalEngine(
        folder, parse_shorthand("2x4"), supervisor_silence_s=2.0, fork_server_silence_s=1.0
    )


def test_a_supervisor_that_stands_still_is_killed_and_its_run_is_lost(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.shell("sleep 600")
        for run in (RUN, OTHER):
            await stage.up(run, recipe)
        (stopped,) = supervisors(stage.engine.folder_of(RUN))
        os.kill(stopped, signal.SIGSTOP)
        await stage.order(Kill(RUN), recipe)
        lost = await stage.heard(RUN, Lost)
        assert lost.why == "Its supervisor did not answer for 2 s."
        assert not stage.alive(RUN)
        assert stage.alive(OTHER)
        assert not any(isinstance(report, Lost) for report in stage.of(OTHER))

    perform(tmp_path, act, impatient)


def test_a_supervisor_that_stood_still_before_the_manager_came_is_noticed_too(
    tmp_path: Path,
) -> None:
    async def act(stage: Stage) -> None:
        await stage.up(RUN, stage.shell("sleep 600"))
        seen = stage.reports[-1][1]
        await stage.engine.close()
        (stopped,) = supervisors(stage.engine.folder_of(RUN))
        os.kill(stopped, signal.SIGSTOP)
        async with stage.another() as later:
            await later.engine.observe({RUN: seen})
            await later.heard(RUN, Lost)
            assert not later.alive(RUN)

    perform(tmp_path, act, impatient)


def test_a_busy_program_and_a_frozen_one_are_not_taken_for_a_hung_supervisor(
    tmp_path: Path,
) -> None:
    async def act(stage: Stage) -> None:
        up = await stage.up(RUN, stage.shell("while :; do :; done"))
        os.kill(up.pids[0], signal.SIGSTOP)
        begun = time.monotonic()
        await until(lambda: time.monotonic() > begun + 5.0)
        assert [type(report) for report in stage.of(RUN)] == [Started]

    perform(tmp_path, act, impatient)


def test_a_fork_server_that_stands_still_is_replaced(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        assert isinstance(stage.engine, LocalEngine)
        stopped = stage.engine.fork_server.pid
        assert stopped is not None
        os.kill(stopped, signal.SIGSTOP)
        await stage.up(RUN, stage.shell("sleep 600"))
        assert stage.engine.fork_server.pid not in (None, stopped)
        assert state_of(stopped) in ("", "Z")
        assert len(supervisors(stage.engine.folder_of(RUN))) == 1

    perform(tmp_path, act, impatient)


def replace_a_leader(folder: Path, *database: str) -> None:
    """Stop the leader while a job runs; the standby leads, and the old one ends when it wakes."""
    arguments = ("--slots", "2", "--limit", "leader_silence=3s", *database)
    with live(folder, *arguments) as leader:
        job = leader.submit(command="sleep 600", workdir=str(folder))
        (pid,) = leader.until_state(job, "running")["pids"]
        standby = LiveDaemon(folder, *arguments)
        try:
            standby.start()
            assert leader.process is not None
            os.kill(leader.process.pid, signal.SIGSTOP)
            standby.until_active()
            found = standby.job(job)
            assert (found["state"], found["attempt"], found["pids"]) == ("running", 1, [pid])
            os.kill(leader.process.pid, signal.SIGCONT)
            assert leader.process.wait(daemons.PATIENCE_S) == 1
            assert "Another manager leads by now" in (folder / "out.txt").read_text()
            next_one = standby.submit(command="true", workdir=str(folder))
            standby.until_state(next_one, "succeeded")
            assert standby.job(job)["pids"] == [pid]
        finally:
            standby.kill()
            sweep(folder)


def test_a_leader_that_stands_still_is_replaced_by_the_standby(tmp_path: Path) -> None:
    replace_a_leader(tmp_path)


def test_so_is_one_on_postgresql(tmp_path: Path, postgres_url: str) -> None:
    replace_a_leader(tmp_path, "--database", postgres_url)
