"""A gang that gives back its GPU memory by itself, under a real supervisor: asked, stopped, and going on."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import trainmaster_sdk
from tests.live.stage import Stage, perform, state_of, until
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.model.actions import Freeze, Halt, Thaw
from trainmaster.model.engine_reports import Frozen, StopOrder, Thawed
from trainmaster.model.job import Run
from trainmaster.model.topology import parse_shorthand

pytestmark = pytest.mark.live

SOURCE = Path(trainmaster_sdk.__file__).parents[1]
PROGRAM = """
import os, time, trainmaster_sdk

class Memory:
    def prepare(self):
        pass
    def release(self):
        print("released", flush=True)
        return {"bytes": 100, "host_bytes": 300, "left": 7}
    def take_back(self):
        print("taken back", flush=True)
        return {}

with trainmaster_sdk.run() as tm:
    tm.can_release(Memory())
    worker = os.fork()
    if worker == 0:
        time.sleep(600)  # it loads data
    for step in range(1, 100_000):
        time.sleep(0.02)
        print("step", step, flush=True)
        tm.progress(step=step)
        if tm.should_stop():
            tm.save(step, step)
            os.kill(worker, 9)
            break
"""


def engine(folder: Path) -> LocalEngine:
    return LocalEngine(folder, parse_shorthand("2x4"), [f"GPU-{number}" for number in range(8)])


def test_a_gang_releases_its_memory_waits_and_goes_on(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        run = Run("12", 1)
        (stage.workdir / "program.py").write_text(PROGRAM)
        recipe = replace(
            stage.recipe(sys.executable, "program.py"), env=(("PYTHONPATH", str(SOURCE)),)
        )
        started = await stage.up(run, recipe, ranks=2)
        await until(lambda: b"step 3" in stage.log(run) and b"step 3" in stage.log(run, 1))

        await stage.order(Freeze(run), recipe)
        frozen = await stage.heard(run, Frozen)
        assert (frozen.how, frozen.host_bytes, frozen.gpu_bytes) == ("cooperative", 600, 14)
        assert frozen.why == "Its program gives back GPU memory by itself."
        assert frozen.took_ms is not None
        everything = stage.alive(run)
        assert len(everything) == 2 * len(started.pids)
        assert {state_of(pid) for pid in everything} == {"T"}
        (*_, at) = re.findall(rb"step (\d+)", stage.log(run))

        await stage.order(Thaw(run), recipe)
        assert (await stage.heard(run, Thawed)).took_ms is not None
        further = b"step %d" % (int(at) + 3)
        await until(lambda: further in stage.log(run))

        await stage.order(Freeze(run), recipe)
        await stage.heard(run, Frozen, 1)
        await stage.order(Halt(run), recipe)  # it must come back to save
        over = await stage.ended(run)
        assert (over.asked, over.code) == (StopOrder.HALT, 0)
        assert (over.has_left, over.was_killed) == (True, False)
        words = re.findall(rb"released|taken back", stage.log(run))
        assert words == [b"released", b"taken back"] * 2

    perform(tmp_path, act, engine)
