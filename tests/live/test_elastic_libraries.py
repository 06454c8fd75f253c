"""Programs of libraries that own the loop are resized in the same processes, through a checkpoint."""

from __future__ import annotations

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.live.stage import Stage, perform, placed, until
from trainmaster.model.actions import Reshape
from trainmaster.model.engine_reports import Reshaped
from trainmaster.model.job import Run

pytestmark = [pytest.mark.live, pytest.mark.slow]
JOB = Path(__file__).with_name("elastic_library_job.py")
FSDP = Path(__file__).parents[2] / "examples" / "fsdp.py"
RUN = Run("12", 1)
ALL = "TRAINMASTER_TEST_ALL_RESIZES"
ALWAYS = "accelerate"
STEPS = 400
MODULES = {"lightning": "lightning", "accelerate": "accelerate", "huggingface": "transformers"}


def steps_seen(stage: Stage) -> dict[int, set[tuple[int, int, int]]]:
    """Step, rank and size of the gang, by process."""
    return {
        int(file.name.removeprefix("seen-")): {
            (int(step), int(rank), int(world))
            for step, rank, world in map(str.split, file.read_text().splitlines())
        }
        for file in stage.workdir.glob("seen-*")
    }


@pytest.mark.parametrize("library", MODULES)
def test_it_grows_and_shrinks_in_the_same_processes(tmp_path: Path, library: str) -> None:
    if library != ALWAYS and ALL not in os.environ:
        pytest.skip(f"`make resizes` sets {ALL}")
    if find_spec(MODULES[library]) is None:
        pytest.skip(f"{MODULES[library]} is not installed")

    async def act(stage: Stage) -> None:
        where = str(stage.workdir)
        recipe = stage.recipe(sys.executable, str(JOB), library, where, str(STEPS), "0.3")
        (first,) = (await stage.up(RUN, recipe)).pids

        def has_stepped(world: int) -> bool | None:
            seen = (rows for rows in steps_seen(stage).values())
            steps = {step for rows in seen for step, _, size in rows if size == world}
            return len(steps) > 1 or None  # it has asked whether to stop after the first

        async def stepped(world: int) -> None:
            await until(lambda: has_stepped(world))

        await stepped(1)
        await stage.order(Reshape(RUN, placed(2)), recipe)
        two = await stage.heard(RUN, Reshaped)
        assert two.in_place, (two, stage.log(RUN).decode())
        assert two.pids[0] == first
        await stepped(2)
        await stage.order(Reshape(RUN, placed(1)), recipe)
        one = await stage.heard(RUN, Reshaped, which=1)
        assert (one.in_place, one.pids) == (True, (first,)), (one, stage.log(RUN).decode())
        (stage.workdir / "hurry").touch()
        over = await stage.ended(RUN)
        assert over.code == 0, stage.log(RUN).decode()
        steps = sorted(step for step, rank, _ in steps_seen(stage)[first] if rank == 0)
        assert steps == list(range(1, STEPS + 1)), "steps were left out or made twice"

    perform(tmp_path, act)


PARAMETERS = re.compile(r"^at step (\d+) parameters (\S+)$", re.MULTILINE)
LOSS = re.compile(r"^step (\d+) loss (\S+)$", re.MULTILINE)


@pytest.mark.skipif(ALL not in os.environ, reason=f"`make resizes` sets {ALL}")
def test_shards_are_divided_again_among_the_ranks_of_the_same_processes(tmp_path: Path) -> None:
    """The whole parameters are the same before and after each resize, and each step is made once."""

    async def act(stage: Stage) -> None:
        command = (sys.executable, str(FSDP), "--steps", "60", "--sleep", "0.2")
        recipe = stage.recipe(*command)

        def said() -> str:
            return "".join(stage.log(RUN, rank).decode() for rank in stage.engine.logs(RUN))

        async def stepped(steps: int) -> None:
            before = len(LOSS.findall(said()))
            await until(lambda: len(LOSS.findall(said())) >= before + steps or None)

        (first,) = (await stage.up(RUN, recipe)).pids
        await stepped(2)
        for which, ranks in enumerate((2, 4, 2)):
            await stage.order(Reshape(RUN, placed(ranks)), recipe)
            told = await stage.heard(RUN, Reshaped, which=which)
            assert told.in_place, (told, said())
            assert told.pids[0] == first
            await stepped(2)
        assert (await stage.ended(RUN)).code == 0, said()
        steps = [int(step) for step, _ in LOSS.findall(said())]
        assert sorted(steps) == list(range(1, 61)), "steps were left out or made twice"
        prints: dict[str, list[str]] = {}
        for step, fingerprint in PARAMETERS.findall(said()):
            prints.setdefault(step, []).append(fingerprint)
        twice = {step: each for step, each in prints.items() if len(each) == 2}
        assert len(twice) == 3, prints
        assert all(before == after for before, after in twice.values()), twice

    perform(tmp_path, act)
