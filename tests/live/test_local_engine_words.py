"""What programs and their supervisor say to each other, and what becomes of it in the engine's reports."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import pytest

from tests.live.stage import Stage, perform, placed, until
from trainmaster.model.actions import Freeze, Halt, Reshape, Thaw
from trainmaster.model.engine_reports import (
    Ended,
    Frozen,
    Progressed,
    Reshaped,
    Saved,
    Started,
    StopOrder,
    Thawed,
)
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec

pytestmark = pytest.mark.live
RUN = Run("12", 1)

TALKING = """
import json, os, signal, socket, sys, time
line = socket.socket(socket.AF_UNIX)
line.connect(os.environ["TRAINMASTER_SOCKET"])
def say(**said): line.sendall(json.dumps(said).encode() + b"\\n")
def asked():
    text = b""
    while not text.endswith(b"\\n"):
        piece = line.recv(1)
        if not piece: sys.exit(9)
        text += piece
    return json.loads(text)
say(say="hello", rank=int(os.environ["RANK"]), pid=os.getpid())
"""
LOOP = "while :; do sleep 0.05; done"
"""Not `sleep 60 & wait`: a child that is forked while its group is signalled may miss that, and linger."""


def talking(stage: Stage, code: str) -> LaunchSpec:
    return stage.recipe(sys.executable, "-S", "-c", TALKING + code)


def test_progress_and_saves_are_reported_thinned_and_in_order(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        code = (
            "for n in range(500): say(say='progress', step=n, loss=1 / (n + 1), total_steps=500)\n"
            "say(say='saved', step=499)\n"
            "say(say='progress', step=500, loss=float('nan'))\n"
            "say(say='progress', step='many'); say(say='nonsense'); line.sendall(b'no json\\n')\n"
            "say(say='done')"
        )
        await stage.launch(RUN, talking(stage, code))
        assert (await stage.ended(RUN)).code == 0
        kinds = [report for report in stage.of(RUN) if not isinstance(report, Started | Ended)]
        saved = next(place for place, report in enumerate(kinds) if isinstance(report, Saved))
        before = kinds[saved - 1]
        assert isinstance(before, Progressed)
        assert (before.step, before.loss, before.total_steps) == (499, 1 / 500, 500)
        last = kinds[-1]
        assert isinstance(last, Progressed)
        assert (last.step, last.loss) == (500, None)
        assert len(kinds) < 20

    perform(tmp_path, act)


def test_a_program_asked_to_stop_says_that_it_leaves(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        code = (
            "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\n"
            "said = asked(); print(json.dumps(said), flush=True)\n"
            "say(say='saved', step=7); say(say='leaving', step=7); sys.exit(3)"
        )
        recipe = talking(stage, code)
        await stage.up(RUN, recipe, ranks=2)
        await until(lambda: stage.log(RUN, 0) and stage.log(RUN, 1))
        await stage.order(Halt(RUN), recipe)
        over = await stage.ended(RUN)
        assert (over.asked, over.has_left, over.was_killed) == (StopOrder.HALT, True, False)
        heard = json.loads(stage.log(RUN, 1).splitlines()[1])
        assert (heard["ask"], heard["why"]) == ("stop", "suspend")
        assert 0 < heard["grace_s"] <= 20
        assert (await stage.heard(RUN, Saved)).step == 7

    perform(tmp_path, act)


def test_a_program_that_is_done_when_it_is_halted_has_succeeded(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        code = (
            "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\n"
            "asked(); say(say='done')"
        )
        recipe = talking(stage, code)
        await stage.up(RUN, recipe)
        await until(lambda: stage.log(RUN))
        await stage.order(Halt(RUN), recipe)
        over = await stage.ended(RUN)
        assert (over.code, over.asked, over.has_left) == (0, StopOrder.NOTHING, False)

    perform(tmp_path, act)


def test_a_program_that_is_done_when_it_is_reshaped_has_succeeded(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        code = (
            "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\n"
            "asked(); say(say='done')"
        )
        recipe = talking(stage, code)
        await stage.up(RUN, recipe)
        await until(lambda: stage.log(RUN))
        await stage.order(Reshape(RUN, placed(2)), recipe)
        assert (await stage.ended(RUN)).code == 0
        assert not [report for report in stage.of(RUN) if isinstance(report, Reshaped)]

    perform(tmp_path, act)


def test_who_says_hello_late_still_hears_that_it_is_to_stop(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        late = (
            "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "print('up', flush=True)\n"
            "import os\n"
            "while not os.path.exists('go'): time.sleep(0.02)\n"
        )
        recipe = stage.recipe(
            sys.executable, "-S", "-c", late + TALKING + "print(asked()['why']); say(say='leaving')"
        )
        await stage.up(RUN, recipe)
        await until(lambda: stage.log(RUN))
        await stage.order(Halt(RUN), recipe)
        (stage.workdir / "go").touch()
        assert (await stage.ended(RUN)).has_left
        assert stage.log(RUN) == b"up\nsuspend\n"

    perform(tmp_path, act)


@pytest.mark.parametrize("saves", [False, True])
def test_a_program_that_says_nothing_has_saved_up_to_its_last_file(
    tmp_path: Path, saves: bool
) -> None:
    last = 'echo 2 > "$TRAINMASTER_CHECKPOINT_DIR/two"; ' if saves else ""

    async def act(stage: Stage) -> None:
        recipe = stage.shell(
            f"trap '{last}exit 0' TERM; mkdir -p $TRAINMASTER_CHECKPOINT_DIR;"
            f" echo 1 > $TRAINMASTER_CHECKPOINT_DIR/one; sleep 1.2; echo up; {LOOP}"
        )
        await stage.up(RUN, recipe)
        await until(lambda: stage.log(RUN))
        await stage.order(Halt(RUN), recipe)
        over = await stage.ended(RUN)
        assert (over.code, over.has_left) == (0, True)
        assert over.unsaved_ms is not None
        assert (over.unsaved_ms == 0) is saves

    perform(tmp_path, act)


def test_time_in_memory_is_not_unsaved_work(tmp_path: Path) -> None:
    """It was stopped for two seconds after its last file: so much less is unsaved than has passed."""

    async def act(stage: Stage) -> None:
        recipe = stage.shell(
            "trap 'exit 0' TERM; mkdir -p $TRAINMASTER_CHECKPOINT_DIR;"
            f" echo 1 > $TRAINMASTER_CHECKPOINT_DIR/one; echo up; {LOOP}"
        )
        written_s = time.time()
        await stage.up(RUN, recipe)
        await until(lambda: stage.log(RUN))
        await stage.order(Freeze(RUN), recipe)
        await stage.heard(RUN, Frozen)
        await asyncio.sleep(2)
        await stage.order(Thaw(RUN), recipe)
        await stage.heard(RUN, Thawed)
        await asyncio.sleep(1.2)  # less than a second is not told from none
        await stage.order(Halt(RUN), recipe)
        over = await stage.ended(RUN)
        assert over.unsaved_ms is not None, over
        assert 1000 <= over.unsaved_ms <= (time.time() - written_s - 2) * 1000, over

    perform(tmp_path, act)


def test_saving_asks_those_who_talk_and_signals_only_those_who_listen(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        talks = talking(
            stage, "print('up', flush=True); print(asked()['ask'], flush=True); asked()"
        )
        catches = stage.recipe(
            *(sys.executable, "-S", "-c"),
            "import signal, time\n"
            "signal.signal(signal.SIGUSR1, lambda *_: print('told', flush=True))\n"
            "print('up', flush=True); time.sleep(600)",
        )
        knows_nothing = stage.shell("echo up; exec sleep 600")
        runs = {Run("1", 1): talks, Run("2", 1): catches, Run("3", 1): knows_nothing}
        for run, recipe in runs.items():
            await stage.up(run, recipe)
            await until(lambda run=run: stage.log(run))
            await stage.engine.save(run)
        await until(lambda: stage.log(Run("1", 1)) == b"up\nsave\n")
        await until(lambda: stage.log(Run("2", 1)) == b"up\ntold\n")
        for run, recipe in runs.items():
            await stage.order(Halt(run), recipe)
            assert (await stage.ended(run)).asked is StopOrder.HALT

    perform(tmp_path, act)


def test_a_failing_program_is_a_failure_though_it_is_halted_a_moment_later(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        script = (
            "trap 'echo told; until [ -e go ]; do sleep 0.01; done; exit 0' TERM; echo up\n"
            "[ $RANK = 1 ] || { until [ -e up ]; do sleep 0.01; done; exit 9; }\n"
            "while :; do sleep 0.01; done"
        )
        recipe = stage.shell(script)
        await stage.up(RUN, recipe, ranks=2)
        await until(lambda: stage.log(RUN, 1))
        (stage.workdir / "up").touch()
        await until(lambda: b"told" in stage.log(RUN, 1))
        await stage.order(Halt(RUN), recipe)
        (stage.workdir / "go").touch()
        over = await stage.ended(RUN)
        assert (over.code, over.rank, over.asked) == (9, 0, StopOrder.NOTHING)

    perform(tmp_path, act)
