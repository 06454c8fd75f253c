"""After a power cut, an upgrade, a logout: every run is reported, and every order answered."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.live.stage import (
    Stage,
    alive_called,
    is_last,
    kill_remains,
    local_engine,
    perform,
    placed,
    state_of,
    supervisors,
    until,
)
from tests.live.test_local_engine import DAEMON
from trainmaster.engines.local import fork_server_client as spawning
from trainmaster.engines.local import journal, processes, runfile
from trainmaster.engines.local import orphan_cleanup as leftovers
from trainmaster.engines.local import run_follower as watch
from trainmaster.engines.local import socket_paths as sockets
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.engines.local.orphan_cleanup import RunRemains
from trainmaster.engines.local.runfile import CgroupPlan
from trainmaster.engines.protocol import EngineError
from trainmaster.model.actions import Freeze, Halt, Kill, Launch, Order, Reshape, Thaw
from trainmaster.model.engine_reports import Lost, Report, Reshaped, StopOrder
from trainmaster.model.job import Run

pytestmark = pytest.mark.live
RUN = Run("12", 1)
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def cut_off(stage: Stage) -> int:
    """Everything of the run stops at once, as when the power goes; the last number that was told."""
    await stage.engine.close()
    kill_remains(supervisors(stage.engine.folder_of(RUN)))
    await until(lambda: not supervisors(stage.engine.folder_of(RUN)))
    kill_remains(stage.alive(RUN))
    await until(lambda: not stage.alive(RUN))
    return stage.reports[-1][1]


async def last_of(stage: Stage) -> tuple[Report, int]:
    return await until(lambda: next((each for each in stage.reports if is_last(each[0])), None))


# -- what a power cut takes away -------------------------------------------------------------------------


def _empty(folder: Path) -> None:
    (folder / journal.JOURNAL).write_bytes(b"")


def _zeros(folder: Path) -> None:
    path = folder / journal.JOURNAL
    path.write_bytes(bytes(path.stat().st_size - 1) + b"\n" + path.read_bytes())


def _no_file(folder: Path) -> None:
    (folder / "run.json").write_bytes(b"\0" * 100)
    _empty(folder)


@pytest.mark.parametrize("order", [None, Kill(RUN), Halt(RUN), Freeze(RUN), Thaw(RUN)])
@pytest.mark.parametrize("damage", [shutil.rmtree, _empty, _zeros, _no_file])
def test_a_run_that_was_seen_and_has_left_nothing_is_lost_whatever_is_asked_of_it(
    tmp_path: Path, damage: Any, order: Order | None
) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.shell("sleep 600")
        await stage.up(RUN, recipe)
        seen = await cut_off(stage) + 40
        damage(stage.engine.folder_of(RUN))
        async with stage.another() as again:
            await again.engine.observe({RUN: seen})
            if order is not None:
                await again.order(order, recipe)
            report, number = await last_of(again)
            assert isinstance(report, Lost)
            assert number > seen
            assert len(again.reports) == 1
        async with stage.another() as later:
            await later.engine.observe({RUN: seen})
            assert (await last_of(later))[1] == number

    perform(tmp_path, act)


def test_an_end_whose_number_was_used_before_the_power_cut_is_told_under_a_new_one(
    tmp_path: Path,
) -> None:
    async def act(stage: Stage) -> None:
        await stage.launch(RUN, stage.shell("exit 5"))
        over = await stage.ended(RUN)
        await stage.engine.close()
        async with stage.another() as again:
            await again.engine.observe({RUN: 70})
            report, number = await last_of(again)
            assert number == 71
            assert replace(report, at_ms=over.at_ms) == over

    perform(tmp_path, act)


def test_an_order_to_a_run_whose_files_are_gone_is_answered_by_who_follows_it(
    tmp_path: Path,
) -> None:
    async def act(stage: Stage) -> None:
        await stage.up(RUN, stage.shell("sleep 600"))
        seen = stage.reports[-1][1]
        (supervisor,) = supervisors(stage.engine.folder_of(RUN))
        os.kill(supervisor, signal.SIGSTOP)
        shutil.rmtree(stage.engine.folder_of(RUN))
        os.kill(supervisor, signal.SIGKILL)
        await stage.order(Kill(RUN), stage.shell("true"))
        report, number = await last_of(stage)
        assert isinstance(report, Lost)
        assert number > seen
        assert stage.alive(RUN) == []

    perform(tmp_path, act)


# -- what cannot be understood ----------------------------------------------------------------------------


def test_a_run_that_cannot_be_followed_is_ended_and_lost(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        await stage.up(RUN, stage.shell("sleep 600"))
        await stage.engine.close()
        with (stage.engine.folder_of(RUN) / journal.JOURNAL).open("a") as file:
            strange = {"n": 9, "at_ms": 1, "what": "started"}
            file.write(json.dumps(strange) + "\n")
        async with stage.another() as again:
            await again.engine.observe({RUN: 2})
            report, number = await last_of(again)
            assert isinstance(report, Lost)
            assert number > 9
            assert "manager.log" in report.why
            assert again.alive(RUN) == []
            assert supervisors(again.engine.folder_of(RUN)) == []

    perform(tmp_path, act)


@pytest.fixture
def word(tmp_path: Path) -> Iterator[str]:
    """A name for daemons, unlike all others; processes with it are killed at the end."""
    word = f"daemon-of-{tmp_path}-{os.getpid()}"
    yield word
    kill_remains(alive_called(word))


@pytest.mark.parametrize("text", ["{}", '{"socket": 7}', "", "\0\0"])
def test_what_is_left_of_a_run_is_found_without_its_file(
    tmp_path: Path, word: str, text: str
) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.recipe(sys.executable, "-S", "-c", DAEMON, "named", word, "stay")
        await stage.up(RUN, recipe)
        await until(lambda: stage.log(RUN))
        await until(lambda: [pid for pid in alive_called(word) if pid in stage.alive(RUN)])
        await stage.engine.close()
        folder = stage.engine.folder_of(RUN)
        (folder / "run.json").write_text(text)
        async with stage.another() as again:
            await again.engine.observe({RUN: 1})
            kill_remains(supervisors(folder))
            await again.heard(RUN, Lost)
            assert alive_called(word) == []

    perform(tmp_path, act)


def test_a_run_is_not_lost_before_the_last_of_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "runs" / "12" / "1"
    folder.mkdir(parents=True)
    trace = RunRemains(folder, sockets.path_in("/tmp/x", folder), CgroupPlan())
    marks = {"TRAINMASTER_RUN": "12.1", "TRAINMASTER_SOCKET": trace.socket}
    others = {"TRAINMASTER_RUN": "12.1", "TRAINMASTER_SOCKET": "/tmp/x/other.sock"}
    left = subprocess.Popen(["sleep", "600"], env=os.environ | marks)
    other = subprocess.Popen(["sleep", "600"], env=os.environ | others)
    try:
        monkeypatch.setattr(leftovers, "SWEEPING_S", 0.05)
        with monkeypatch.context() as stuck:
            stuck.setattr(leftovers, "send", lambda pid, number: False)
            assert not leftovers.close_lost_run(trace, 4)
            assert journal.last(str(folder)) is None
        until_then = time.monotonic() + 60
        while not leftovers.close_lost_run(trace, 4):
            assert time.monotonic() < until_then
        assert left.wait() == -signal.SIGKILL
        newest = journal.last(str(folder))
        assert newest is not None
        assert (newest["n"], newest["what"]) == (5, "lost")
        assert other.poll() is None
    finally:
        for each in (left, other):
            each.kill()
            each.wait()


# -- sessions ---------------------------------------------------------------------------------------------


def test_a_daemon_of_another_session_reaches_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def move_to(folder: Path) -> None:
        folder.mkdir()
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        monkeypatch.setattr(sockets, "SHARED", str(folder))

    async def act(stage: Stage) -> None:
        recipe = stage.shell("sleep 600")
        await stage.up(RUN, recipe)
        socket = runfile.read(str(stage.engine.folder_of(RUN))).socket
        assert socket.startswith(str(short / "one"))
        await stage.engine.close()
        move_to(short / "two")
        async with stage.another() as again:
            await again.engine.observe({RUN: 0})
            await again.order(Reshape(RUN, placed(2)), recipe)
            await again.heard(RUN, Reshaped)
            _, env = again.engine.environment(RUN)
            assert env["TRAINMASTER_SOCKET"] == socket
            await again.order(Kill(RUN), recipe)
            assert (await again.ended(RUN)).asked is StopOrder.KILL

    short = Path(tempfile.mkdtemp(prefix="tm-", dir="/tmp"))
    try:
        move_to(short / "one")
        perform(tmp_path, act)
    finally:
        shutil.rmtree(short)


def test_sockets_do_not_depend_on_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "SHARED", str(tmp_path))
    place = tmp_path / f"trainmaster-{os.getuid()}"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert sockets.folder_for(tmp_path / "data") == str(place)
    assert place.stat().st_mode & 0o777 == 0o700
    place.rmdir()
    place.symlink_to(tmp_path)
    own = sockets.folder_for(Path("/tmp") / f"tm-test-{os.getpid()}")
    try:
        assert own == f"/tmp/tm-test-{os.getpid()}/sockets"
    finally:
        shutil.rmtree(Path(own).parent)
    with pytest.raises(EngineError, match="remove it"):
        sockets.folder_for(tmp_path / ("x" * 90))


def test_an_engine_without_a_place_for_sockets_says_so_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"trainmaster-{os.getuid()}").touch()
    monkeypatch.setattr(sockets, "SHARED", str(tmp_path))
    deep = tmp_path / ("x" * 90)
    deep.mkdir()

    async def opening() -> None:
        with pytest.raises(EngineError, match=r"trainmaster-\d+ must be a folder of yours"):
            await Stage(deep).engine.open(lambda report, n: None)

    asyncio.run(opening())


# -- disks and processes that the machine refuses -----------------------------------------------------------


@pytest.mark.parametrize("order", [Kill(RUN), Halt(RUN)])
def test_an_order_that_the_disk_refuses_is_carried_out_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: Order
) -> None:
    refused = []
    append = journal.Journal.append

    def refuse_twice(
        book: journal.Journal, entry: journal.JournalEntry
    ) -> list[journal.JournalEntry]:
        if len(refused) < 2:
            refused.append(entry)
            raise FULL
        return append(book, entry)

    async def act(stage: Stage) -> None:
        monkeypatch.setattr(journal.Journal, "append", refuse_twice)
        monkeypatch.setattr(watch, "RETRY_S", 0.01)
        await stage.order(order, stage.shell("true"))
        assert (await stage.ended(RUN)).why
        assert len(refused) == 2

    perform(tmp_path, act)


def test_a_reshape_that_the_disk_refuses_is_carried_out_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = []
    write = runfile.write

    def refuse_twice(folder: str, file: runfile.RunFile) -> None:
        if len(refused) < 2:
            refused.append(file)
            raise FULL
        write(folder, file)

    async def act(stage: Stage) -> None:
        recipe = stage.shell("exec sleep 600")
        await stage.up(RUN, recipe)
        monkeypatch.setattr(runfile, "write", refuse_twice)
        monkeypatch.setattr(watch, "RETRY_S", 0.01)
        await stage.order(Reshape(RUN, placed(2)), recipe)
        await stage.order(Reshape(RUN, placed(3)), recipe)
        await until(lambda: len(stage.alive(RUN)) == 3)
        assert len(refused) == 2
        await stage.order(Kill(RUN), recipe)
        await stage.ended(RUN)

    perform(tmp_path, act)


def test_a_program_that_the_machine_cannot_start_just_now_is_to_be_tried_again(
    tmp_path: Path,
) -> None:
    async def act(stage: Stage) -> None:
        shutil.copy("/bin/true", stage.workdir / "train")
        with (stage.workdir / "train").open("r+b"):  # busy: somebody writes it
            await stage.launch(RUN, stage.recipe("./train"), ranks=2)
            lost = await stage.heard(RUN, Lost)
        assert "'./train'" in lost.why
        second = Run(RUN.job, 2)
        await stage.launch(second, stage.recipe("./train"), ranks=2)
        assert (await stage.ended(second)).code == 0

    perform(tmp_path, act)


def test_a_run_whose_supervisor_cannot_be_started_is_to_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(stage: Stage) -> None:
        monkeypatch.setattr(spawning, "ANSWER_S", 0.05)
        (stage.engine.folder_of(RUN) / "supervisor.log").mkdir(parents=True)
        await stage.launch(RUN, stage.shell("true"))
        assert "supervisor" in (await stage.heard(RUN, Lost)).why

    perform(tmp_path, act)


# -- launches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("observed", [{RUN: 0}, {}, None])
def test_a_launch_is_not_swallowed_by_who_waits_for_a_supervisor_that_then_leaves(
    tmp_path: Path, observed: dict[Run, int] | None
) -> None:
    async def act(stage: Stage) -> None:
        folder = stage.engine.folder_of(RUN)
        folder.mkdir(parents=True)
        (folder.parents[1] / ".live" / "12.1").touch()
        lock = journal.take_lock(str(folder))
        assert lock is not None
        if observed is not None:
            await stage.engine.observe(observed)
            await asyncio.sleep(0.05)
        await stage.order(Launch(RUN, placed(1), 0), stage.shell("exit 3"))
        if observed is None:
            await until((folder / "supervisor.log").exists)
            await asyncio.sleep(0.5)  # until the one that was asked for has gone again
        os.close(lock)
        assert (await stage.ended(RUN)).code == 3

    perform(tmp_path, act)


def test_who_is_launched_while_it_is_being_ended_for_nobody_is_lost(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        stubborn = stage.shell(
            "trap 'echo told' TERM; echo up; while :; do sleep 0.02; done", grace_ms=2000
        )
        await stage.up(RUN, stubborn)
        await until(lambda: stage.log(RUN))
        await stage.engine.close()
        async with stage.another() as again:
            await again.engine.observe({})
            await until(lambda: b"told" in again.log(RUN))
            await again.launch(RUN, stubborn)
            report, _ = await last_of(again)
            assert isinstance(report, Lost)
            assert again.alive(RUN) == []

    perform(tmp_path, act)


def test_nobody_is_taken_for_the_holder_of_another_lock(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    lock = journal.take_lock(str(tmp_path / "one"))
    assert lock is not None
    try:
        assert processes.lock_holders(str(tmp_path / "one" / "lock")) == [os.getpid()]
        (tmp_path / "two" / "lock").touch()
        assert processes.lock_holders(str(tmp_path / "two" / "lock")) == []
    finally:
        os.close(lock)


HIDES = (
    "import os, sys, time\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        os.execve('/bin/sleep', ['sleep', sys.argv[1]], {})\n"
    "    os._exit(0)\n"
    "time.sleep(600)\n"
)


def test_without_control_groups_nothing_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    """Not even a process without the run's name in its environment, in a session of its own."""

    def make(folder: Path) -> LocalEngine:
        engine = local_engine(folder)
        engine.host = replace(engine.host, cgroups=CgroupPlan())
        return engine

    async def act(stage: Stage) -> None:
        seconds = f"600.{os.getpid()}"
        await stage.up(RUN, stage.recipe(sys.executable, "-S", "-c", HIDES, seconds))
        hidden = await until(
            lambda: [p for p in alive_called(seconds) if p not in stage.alive(RUN)]
        )
        for pid in supervisors(stage.engine.folder_of(RUN)):
            os.kill(pid, signal.SIGKILL)
        report, _ = await last_of(stage)
        assert isinstance(report, Lost)
        await until(lambda: not any(map(state_of, hidden)))

    perform(tmp_path, act, make)
