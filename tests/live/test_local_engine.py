"""Bad days of the local engine: programs that misbehave, and parts of Trainmaster that are killed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.live.stage import (
    Stage,
    alive_called,
    kill_remains,
    perform,
    state_of,
    supervisors,
    until,
)
from trainmaster.engines.local import runfile
from trainmaster.engines.local.cgroups import cgroup_name
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.model.actions import Freeze, Halt, Kill, Thaw
from trainmaster.model.engine_reports import Frozen, Lost, Started, StopOrder
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec, LogLimits

pytestmark = pytest.mark.live
RUN = Run("12", 1)


def python(stage: Stage, code: str, grace_ms: int = 20_000) -> LaunchSpec:
    return stage.recipe(sys.executable, "-S", "-c", code, grace_ms=grace_ms)


# -- programs that will not go ---------------------------------------------------------------------------


@pytest.mark.parametrize("order", [Halt(RUN), Kill(RUN)])
def test_who_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path, order: Halt | Kill) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.shell("trap '' TERM; echo up; while :; do sleep 0.02; done", grace_ms=200)
        await stage.up(RUN, recipe, ranks=2)
        await until(lambda: stage.log(RUN, 0) and stage.log(RUN, 1))
        await stage.order(order, recipe)
        over = await stage.ended(RUN)
        assert over.was_killed
        assert not over.has_left
        assert over.code == 128 + signal.SIGKILL
        assert stage.alive(RUN) == []

    perform(tmp_path, act)


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        env = {} if sys.argv[1] == "nameless" else os.environ
        os.execve("/bin/sh", ["sh", "-c", "trap '' TERM HUP; while :; do sleep 0.05; done", sys.argv[2]], env)
    os._exit(0)
os.wait()
print("forked", flush=True)
if sys.argv[3] == "stay":
    time.sleep(600)
"""


def daemons_called(word: str) -> list[int]:
    """The shell, and a child of it that has not become `sleep` yet."""
    return [pid for pid in alive_called(word) if cmdline(pid)[-1:] == [word]]


@pytest.fixture
def word(tmp_path: Path) -> Iterator[str]:
    """A name for daemons, unlike all others; processes with it are killed at the end."""
    word = f"daemon-of-{tmp_path}-{os.getpid()}"
    yield word
    kill_remains(alive_called(word))


@pytest.mark.parametrize("kind", ["named", "nameless"])
def test_daemons_that_a_program_forked_end_with_it(tmp_path: Path, kind: str, word: str) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.recipe(sys.executable, "-S", "-c", DAEMON, kind, word, "go")
        await stage.launch(RUN, recipe)
        assert (await stage.ended(RUN)).code == 0
        assert stage.log(RUN) == b"forked\n"
        assert alive_called(word) == []

    perform(tmp_path, act)


def test_daemons_freeze_and_thaw_with_their_run(tmp_path: Path, word: str) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.recipe(sys.executable, "-S", "-c", DAEMON, "nameless", word, "stay")
        await stage.up(RUN, recipe)
        await until(lambda: stage.log(RUN))
        pid = min(await until(lambda: daemons_called(word)))
        await stage.order(Freeze(RUN), recipe)
        await stage.heard(RUN, Frozen)
        assert state_of(pid) == "T"
        await stage.order(Kill(RUN), recipe)
        await stage.ended(RUN)
        assert alive_called(word) == []

    perform(tmp_path, act)


def cmdline(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    except OSError:
        return []


def test_a_shell_that_dies_first_does_not_cut_its_child_short(tmp_path: Path) -> None:
    """The child saves for as long as its grace period lasts, though the rank itself is gone."""

    async def act(stage: Stage) -> None:
        child = (
            "import signal, time, sys\n"
            "def leave(*_): time.sleep(0.3); open('saved', 'w'); sys.exit()\n"
            "signal.signal(15, leave); print('up', flush=True); time.sleep(600)"
        )
        recipe = stage.recipe("sh", "-c", f'{sys.executable} -S -c "{child}"; true')
        await stage.up(RUN, recipe)
        await until(lambda: stage.log(RUN))
        await stage.order(Halt(RUN), recipe)
        over = await stage.ended(RUN)
        assert not over.was_killed
        assert (stage.workdir / "saved").exists()
        assert stage.alive(RUN) == []

    perform(tmp_path, act)


def test_a_run_that_exits_while_it_is_being_frozen_has_ended(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        for number in range(12):
            run = Run(str(number), 1)
            recipe = stage.shell(f"sleep 0.0{number}; exit 4")
            await stage.up(run, recipe)
            await stage.order(Freeze(run), recipe)
            frozen_or_over = await until(
                lambda run=run: next((r for r in stage.of(run) if not isinstance(r, Started)), None)
            )
            if isinstance(frozen_or_over, Frozen):
                await stage.order(Thaw(run), recipe)
            over = await stage.ended(run)
            assert (over.code, over.asked) == (4, StopOrder.NOTHING)

    perform(tmp_path, act)


def test_a_frozen_program_that_is_killed_from_outside_has_ended(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.shell("sleep 600")
        started = await stage.up(RUN, recipe, ranks=2)
        await stage.order(Freeze(RUN), recipe)
        await stage.heard(RUN, Frozen)
        os.kill(started.pids[1], signal.SIGKILL)
        over = await stage.ended(RUN)
        assert (over.rank, over.code) == (1, 128 + signal.SIGKILL)
        assert "SIGKILL" in over.why
        assert stage.alive(RUN) == []

    perform(tmp_path, act)


# -- output ----------------------------------------------------------------------------------------------


def test_output_beyond_the_limit_keeps_the_newest(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        limits = LogLimits(file_bytes=1 << 20, files=3)
        write = "import os\nfor n in range(64): os.write(1, b'%07d\\n' % n * (1 << 17))"
        await stage.launch(RUN, replace(python(stage, write), logs=limits))
        assert (await stage.ended(RUN)).code == 0
        paths = stage.engine.logs(RUN)[0]
        assert [path.name for path in paths] == ["rank-0.log.2", "rank-0.log.1", "rank-0.log"]
        assert all(path.stat().st_size <= 1 << 20 for path in paths)
        kept = stage.log(RUN)
        assert len(kept) > 2 << 20
        assert b"".join(b"%07d\n" % n * (1 << 17) for n in range(60, 64)).endswith(kept)

    perform(tmp_path, act)


def test_megabyte_lines_and_binary_are_kept_as_they_are(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        code = "import os; os.write(1, b'x' * (3 << 20)); os.write(2, bytes(range(256)) * 40)"
        await stage.launch(RUN, python(stage, code))
        over = await stage.ended(RUN)
        assert over.code == 0
        assert stage.log(RUN) == b"x" * (3 << 20) + bytes(range(256)) * 40
        assert len(over.tail) <= 4096
        json.dumps(over.tail)

    perform(tmp_path, act)


# -- programs that cannot be started -----------------------------------------------------------------------


def test_a_working_directory_that_is_gone_is_said(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        await stage.launch(RUN, replace(stage.shell("true"), workdir=str(tmp_path / "gone")))
        over = await stage.ended(RUN)
        assert over.code == 126
        assert f"{tmp_path / 'gone'} does not exist" in over.why

    perform(tmp_path, act)


@pytest.mark.parametrize(
    ("mode", "text", "words"),
    [(0o644, "#!/bin/sh\n", "is not executable"), (0o755, "no program", "is not a program")],
)
def test_a_file_that_cannot_be_executed_is_said(
    tmp_path: Path, mode: int, text: str, words: str
) -> None:
    async def act(stage: Stage) -> None:
        (stage.workdir / "train").write_text(text)
        (stage.workdir / "train").chmod(mode)
        await stage.launch(RUN, stage.recipe("./train"))
        over = await stage.ended(RUN)
        assert over.code == 126
        assert words in over.why

    perform(tmp_path, act)


# -- parts of Trainmaster that are killed --------------------------------------------------------------------


def test_a_run_whose_supervisor_is_killed_is_lost_and_leaves_nothing(
    tmp_path: Path, word: str
) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.recipe(sys.executable, "-S", "-c", DAEMON, "named", word, "stay")
        await stage.up(RUN, recipe, ranks=2)
        await until(lambda: stage.log(RUN, 0) and stage.log(RUN, 1))
        (supervisor,) = supervisors(stage.engine.folder_of(RUN))
        os.kill(supervisor, signal.SIGKILL)
        lost = await stage.heard(RUN, Lost)
        assert lost.why
        assert stage.alive(RUN) == []
        assert alive_called(word) == []
        async with stage.another() as again:
            await again.engine.observe({RUN: 0})
            assert await again.heard(RUN, Lost) == lost
            await again.launch(RUN, recipe)
            assert again.alive(RUN) == []

    perform(tmp_path, act)


def test_nameless_daemons_of_a_lost_run_are_found_by_their_control_group(
    tmp_path: Path, word: str
) -> None:
    async def act(stage: Stage) -> None:
        assert isinstance(stage.engine, LocalEngine)
        tracked = stage.engine.probed.plan.tracked_in
        if not tracked:
            pytest.skip("this machine lets us make no control groups")
        recipe = stage.recipe(sys.executable, "-S", "-c", DAEMON, "nameless", word, "stay")
        await stage.up(RUN, recipe)
        await until(lambda: stage.log(RUN))
        pid = min(await until(lambda: daemons_called(word)))
        group = cgroup_name(runfile.read(str(stage.engine.folder_of(RUN))).socket)
        await until(lambda: f"/{group}\n" in Path(f"/proc/{pid}/cgroup").read_text())
        (supervisor,) = supervisors(stage.engine.folder_of(RUN))
        os.kill(supervisor, signal.SIGKILL)
        await stage.heard(RUN, Lost)
        assert alive_called(word) == []

    perform(tmp_path, act)


def test_the_daemon_goes_and_comes_back_while_a_gang_runs_on(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.shell("until [ -e go ]; do sleep 0.02; done; echo $RANK")
        started = await stage.up(RUN, recipe, ranks=2)
        await stage.engine.close()
        for _ in range(3):
            async with stage.another() as again:
                await again.engine.observe({RUN: 0})
                assert await again.heard(RUN, Started) == started
                assert set(started.pids) <= set(again.alive(RUN))
                await again.order(Freeze(RUN), recipe)
                await again.heard(RUN, Frozen, which=_)
                await again.order(Thaw(RUN), recipe)
                await until(lambda: "T" not in {state_of(pid) for pid in again.alive(RUN)})
        (stage.workdir / "go").touch()
        async with stage.another() as last:
            await last.engine.observe({RUN: 0})
            assert (await last.ended(RUN)).code == 0
            assert (last.log(RUN, 0), last.log(RUN, 1)) == (b"0\n", b"1\n")

    perform(tmp_path, act)


def test_two_engines_that_launch_the_same_attempts_at_once_start_each_once(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        runs = [Run(str(number), 1) for number in range(15)]
        recipe = stage.shell("echo $$ >> pids-$TRAINMASTER_JOB; sleep 600")
        async with stage.another() as other:
            await asyncio.gather(
                *(each.launch(run, recipe) for run in runs for each in (stage, other, stage))
            )
            for run in runs:
                mine, theirs = await stage.heard(run, Started), await other.heard(run, Started)
                assert mine == theirs
                wrote = await until(lambda run=run: _written(stage.workdir / f"pids-{run.job}"))
                assert wrote == [mine.pids[0]]
                assert {*stage.alive(run)} & {*wrote}
                assert len(supervisors(stage.engine.folder_of(run))) == 1
            for run in runs:
                await other.order(Kill(run), recipe)
            for run in runs:
                assert await stage.ended(run) == await other.ended(run)
                assert stage.alive(run) == []

    perform(tmp_path, act)


def _written(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_spawner_that_is_killed_is_started_again_and_runs_do_not_notice(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        assert isinstance(stage.engine, LocalEngine)
        recipe = stage.shell("sleep 600")
        await stage.up(RUN, recipe)
        others = [Run(str(number), 1) for number in range(100, 110)]
        for number, run in enumerate(others):
            if number % 3 == 0:
                pid = stage.engine.fork_server.pid
                kill_remains([] if pid is None else [pid])
            await stage.launch(run, stage.shell("echo once"))
        for run in others:
            assert (await stage.ended(run)).code == 0
            assert stage.log(run) == b"once\n"
        assert stage.alive(RUN)
        await stage.order(Kill(RUN), recipe)
        await stage.ended(RUN)

    perform(tmp_path, act)


def test_a_folder_that_disappears_does_not_end_the_training(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.shell("echo up; until [ -e go ]; do sleep 0.02; done; exit 5")
        started = await stage.up(RUN, recipe)
        await until(lambda: stage.log(RUN))
        shutil.rmtree(stage.engine.folder_of(RUN))
        (stage.workdir / "go").touch()
        assert (await stage.ended(RUN)).code == 5
        async with stage.another() as again:
            await again.engine.observe({RUN: 0})
            await again.ended(RUN)
            assert again.of(RUN)[0] == started

    perform(tmp_path, act)
