"""Examples under the local engine's own supervisor: halted, launched again, reshaped, asked to save."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.live.stage import Stage, perform, placed, until
from tests.unit.sdk.warm import EXAMPLES, STEP
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.model.actions import Halt, Reshape
from trainmaster.model.engine_reports import Progressed, Reshaped, Saved, StopOrder
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec

pytestmark = pytest.mark.live

STEPS = 20


def recipe_of(stage: Stage, example: str, sleep: float, grace_ms: int = 30_000) -> LaunchSpec:
    command = (
        sys.executable,
        str(EXAMPLES / f"{example}.py"),
        "--steps",
        str(STEPS),
        "--sleep",
        str(sleep),
    )
    return stage.recipe(*command, grace_ms=grace_ms)


def curve(stage: Stage, run: Run) -> dict[int, str]:
    found = STEP.findall(stage.log(run).decode())
    assert len(found) == len({step for step, _ in found}), f"steps were done twice: {found}"
    return {int(step): loss for step, loss in found}


async def reached(stage: Stage, run: Run, step: int) -> None:
    await until(lambda: re.search(rb"^step %d loss" % step, stage.log(run), re.MULTILINE))


async def straight(stage: Stage, example: str) -> dict[int, str]:
    """The curve of a gang of two that nobody disturbs."""
    run = Run("1", 1)
    recipe = replace(
        recipe_of(stage, example, 0.0), checkpoint_dir=str(stage.checkpoints / "straight")
    )
    await stage.launch(run, recipe, ranks=2)
    over = await stage.ended(run)
    assert over.code == 0, stage.log(run).decode()
    return curve(stage, run)


@pytest.mark.parametrize("example", ["numpy_model", pytest.param("ddp", marks=pytest.mark.slow)])
def test_a_halted_gang_goes_on_exactly_and_a_reshaped_one_up_to_rounding(
    tmp_path: Path, example: str
) -> None:
    async def act(stage: Stage) -> None:
        first, second = Run("12", 1), Run("12", 2)
        slow = recipe_of(stage, example, 0.1)
        await stage.up(first, slow, ranks=2)
        await reached(stage, first, 3)
        await stage.order(Halt(first), slow)
        over = await stage.ended(first)
        said = stage.log(first).decode() + stage.log(first, 1).decode()
        assert (over.asked, over.code, over.was_killed) == (StopOrder.HALT, 0, False), said
        assert over.has_left
        at = max(curve(stage, first))
        assert [r.step for r in stage.of(first) if isinstance(r, Saved)] == [at]

        await stage.up(second, slow, ranks=2)
        await reached(stage, second, at + 3)
        before = curve(stage, second)
        await stage.order(Reshape(second, placed(1)), slow)
        await stage.heard(second, Reshaped)
        over = await stage.ended(second)
        assert (over.asked, over.code, over.has_left) == (StopOrder.NOTHING, 0, False), over
        assert [r for r in stage.of(second) if isinstance(r, Progressed)][-1].step == STEPS

        wanted = await straight(stage, example)
        got = curve(stage, first) | curve(stage, second)
        exact = set(curve(stage, first)) | set(before)
        assert {step: got[step] for step in exact} == {step: wanted[step] for step in exact}
        assert {step: float(loss) for step, loss in got.items()} == pytest.approx(
            {step: float(loss) for step, loss in wanted.items()}, rel=1e-4
        )

    perform(tmp_path, act)


def test_asked_to_save_it_saves_and_goes_on(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        run = Run("12", 1)
        recipe = recipe_of(stage, "numpy_model", 0.05)
        await stage.up(run, recipe, ranks=2)
        await reached(stage, run, 3)
        assert isinstance(stage.engine, LocalEngine)
        await stage.engine.save(run)
        saved = await stage.heard(run, Saved)
        assert saved.step is not None
        assert saved.step < STEPS
        assert (await stage.ended(run)).code == 0
        assert max(curve(stage, run)) == STEPS

    perform(tmp_path, act)
