"""Orders that come while a run on one machine is resized: none overtakes that, and each has an answer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.live.stage import Stage, perform, placed, until
from trainmaster.model.actions import Freeze, Kill, Reshape, Thaw
from trainmaster.model.engine_reports import Frozen, Reshaped, Saved, Started, Thawed
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec

pytestmark = pytest.mark.live
WORDS = Path(__file__).with_name("elastic_words.py")
RUN = Run("12", 1)


def words(stage: Stage) -> LaunchSpec:
    return stage.recipe(sys.executable, str(WORDS), str(stage.workdir))


def kinds(stage: Stage) -> list[type]:
    turns = (Started, Reshaped, Frozen, Thawed)
    return [type(report) for report in stage.of(RUN) if isinstance(report, turns)]


async def able(stage: Stage) -> None:
    """It has said that it can be resized, and has been heard."""
    entries = stage.engine.folder_of(RUN) / "journal.jsonl"
    await until(lambda: "can resize" in entries.read_text())


def test_a_freeze_that_is_ordered_just_after_a_resize_comes_after_it(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        spec = words(stage)
        await stage.up(RUN, spec)
        await able(stage)
        await stage.order(Reshape(RUN, placed(2)), spec)
        await stage.order(Freeze(RUN), spec)
        await stage.heard(RUN, Frozen)
        assert kinds(stage) == [Started, Reshaped, Frozen]
        await stage.order(Thaw(RUN), spec)
        await stage.heard(RUN, Thawed)
        await stage.order(Kill(RUN), spec)
        await stage.ended(RUN)

    perform(tmp_path, act)


def test_a_freeze_waits_for_a_resize_that_has_to_start_the_run_again(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        spec = words(stage)
        await stage.up(RUN, spec)
        await able(stage)
        (stage.workdir / "joiners-wait").touch()
        await stage.order(Reshape(RUN, placed(2)), spec)
        await until(lambda: len(stage.alive(RUN)) > 1)
        await stage.order(Freeze(RUN), spec)
        (stage.workdir / "meeting-fails").touch()
        (stage.workdir / "joiners-wait").unlink()
        await stage.heard(RUN, Frozen)
        assert kinds(stage) == [Started, Reshaped, Frozen]
        assert not next(each for each in stage.of(RUN) if isinstance(each, Reshaped)).in_place
        await stage.order(Kill(RUN), spec)
        await stage.ended(RUN)

    perform(tmp_path, act)


def test_a_freeze_that_is_ordered_while_the_run_is_started_again_is_answered(
    tmp_path: Path,
) -> None:
    async def act(stage: Stage) -> None:
        spec = stage.shell(
            "trap 'touch leaving; until [ -e go ]; do sleep 0.02; done; exit 0' TERM;"
            " while :; do sleep 0.02; done"
        )
        await stage.up(RUN, spec)
        await stage.order(Reshape(RUN, placed(2)), spec)
        await until((stage.workdir / "leaving").exists)
        await stage.order(Freeze(RUN), spec)
        (stage.workdir / "go").touch()
        await stage.heard(RUN, Frozen)
        assert kinds(stage) == [Started, Reshaped, Frozen]
        await stage.order(Kill(RUN), spec)
        await stage.ended(RUN)
        assert not [each for each in stage.of(RUN) if isinstance(each, Saved)]

    perform(tmp_path, act)
