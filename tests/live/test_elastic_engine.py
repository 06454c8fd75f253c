"""A real DDP program under the local engine, resized while it trains: ranks that stay keep their process."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.live.elastic_job import BATCH, SAMPLES
from tests.live.stage import Stage, perform, placed, until
from trainmaster.model.actions import Freeze, Halt, Reshape, Thaw
from trainmaster.model.engine_reports import (
    Frozen,
    ReplicaLost,
    Reshaped,
    ResizeTimed,
    Saved,
    Started,
    StopOrder,
    Thawed,
)
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec

pytestmark = pytest.mark.live
in_full = pytest.mark.skipif(
    "TRAINMASTER_TEST_ALL_RESIZES" not in os.environ, reason="`make resizes` runs it"
)

JOB = Path(__file__).with_name("elastic_job.py")
LOSS = re.compile(r"^step (\d+) loss (\S+)$", re.MULTILINE)
RUN = Run("12", 1)
STEPS = 240
EPOCH_STEPS = SAMPLES // BATCH


@dataclass(frozen=True)
class Seen:
    """What one rank did in one step."""

    step: int
    rank: int
    world: int
    rate: float
    compiled: int
    reader: int
    """The process that read its samples."""
    samples: tuple[int, ...]


def recipe_of(stage: Stage, *flags: str, steps: int = STEPS, sleep: float = 0.5) -> LaunchSpec:
    where = str(stage.workdir)
    return stage.recipe(sys.executable, str(JOB), where, str(steps), str(sleep), *flags)


def seen_by(stage: Stage) -> dict[int, list[Seen]]:
    """By process."""
    found = {}
    for file in stage.workdir.glob("seen-*"):
        rows = []
        for line in file.read_text().splitlines():
            step, rank, world, rate, compiled, reader, samples = line.split(" ")
            numbers = tuple(map(int, samples.split(","))) if samples else ()
            counts = (int(step), int(rank), int(world))
            rows.append(Seen(*counts, float(rate), int(compiled), int(reader), numbers))
        found[int(file.name.removeprefix("seen-"))] = rows
    return found


def all_seen(stage: Stage) -> list[Seen]:
    return [row for rows in seen_by(stage).values() for row in rows]


def check_every_sample_once_in_each_epoch(stage: Stage, steps: int = STEPS) -> None:
    epochs: dict[int, Counter[int]] = {}
    for row in all_seen(stage):
        epochs.setdefault((row.step - 1) // EPOCH_STEPS, Counter()).update(row.samples)
    assert epochs.keys() == set(range(steps // EPOCH_STEPS))
    for epoch, seen in epochs.items():
        assert seen == Counter(range(SAMPLES)), f"epoch {epoch}: {seen}"


def losses(stage: Stage, run: Run = RUN) -> dict[int, float]:
    logs = [LOSS.findall(stage.log(run, rank).decode()) for rank in stage.engine.logs(run)]
    found = [pair for log in logs for pair in log]
    assert len(found) == len({step for step, _ in found}), f"steps were done twice: {found}"
    return {int(step): float(loss) for step, loss in found}


async def stepped(stage: Stage, world: int, steps: int = 3) -> None:
    """So many steps have been made by so many ranks."""
    await until(
        lambda: len({row.step for row in all_seen(stage) if row.world == world}) >= steps or None
    )


async def resized(stage: Stage, recipe: LaunchSpec, count: int, which: int) -> Reshaped:
    await stage.order(Reshape(RUN, placed(count)), recipe)
    told = await stage.heard(RUN, Reshaped, which=which)
    await stepped(stage, count)
    return told


def hurry(stage: Stage) -> None:
    """The rest of it is trained without pauses."""
    (stage.workdir / "hurry").touch()


def die(stage: Stage, pid: int, when: str) -> None:
    """This rank is to end, before the gradients of a step are summed up or after that."""
    (stage.workdir / f"die-{pid}").write_text(when)


async def undisturbed(stage: Stage) -> dict[int, float]:
    """The losses of one rank that nobody resizes."""
    run = Run("1", 1)
    aside = stage.workdir / "aside"
    aside.mkdir()
    command = (sys.executable, str(JOB), str(aside), str(STEPS), "0")
    recipe = LaunchSpec(
        command=command, workdir=str(aside), checkpoint_dir=str(stage.checkpoints / "aside")
    )
    await stage.launch(run, recipe)
    assert (await stage.ended(run)).code == 0, stage.log(run).decode()
    return losses(stage, run)


def test_a_gang_grows_and_shrinks_in_place(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        recipe = recipe_of(stage)
        (first,) = (await stage.up(RUN, recipe)).pids
        await stepped(stage, 1)
        two = await resized(stage, recipe, 2, which=0)
        assert two.in_place, two
        assert two.pids[0] == first
        one = await resized(stage, recipe, 1, which=1)
        assert (one.in_place, one.pids) == (True, (first,)), one
        hurry(stage)
        over = await stage.ended(RUN)
        assert (over.code, over.asked) == (0, StopOrder.NOTHING), over
        assert len([r for r in stage.of(RUN) if isinstance(r, Started)]) == 1
        timed = await stage.heard(RUN, ResizeTimed)
        assert None not in (timed.warm_up_ms, timed.boundary_ms, timed.regroup_ms)
        assert None not in (timed.broadcast_ms, timed.first_step_ms)
        check_every_sample_once_in_each_epoch(stage)
        assert losses(stage) == pytest.approx(await undisturbed(stage), rel=1e-3)

    perform(tmp_path, act)


def test_ranks_that_are_not_needed_leave_and_the_others_keep_their_processes(
    tmp_path: Path,
) -> None:
    async def act(stage: Stage) -> None:
        recipe = recipe_of(stage)
        pids = (await stage.up(RUN, recipe, ranks=3)).pids
        await stepped(stage, 3)
        two = await resized(stage, recipe, 2, which=0)
        assert (two.in_place, two.pids) == (True, pids[:2])
        assert not set(stage.alive(RUN)) - set(two.pids), "a rank that left still runs"
        three = await resized(stage, recipe, 3, which=1)
        assert three.pids[:2] == pids[:2]
        await stage.order(Halt(RUN), recipe)
        over = await stage.ended(RUN)
        assert (over.asked, over.code, over.has_left) == (StopOrder.HALT, 0, True), over

    perform(tmp_path, act)


@in_full
def test_loader_and_graph_are_kept_and_the_learning_rate_follows_the_batch(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        recipe = recipe_of(stage, "--rank-batch", str(BATCH), "--scale-lr", "--workers", "1")
        (first,) = (await stage.up(RUN, recipe)).pids
        await stepped(stage, 1)
        await resized(stage, recipe, 2, which=0)
        hurry(stage)
        assert (await stage.ended(RUN)).code == 0
        rows = [row for row in seen_by(stage)[first] if len(row.samples) == BATCH]
        assert {(row.world, row.rate) for row in rows} == {(1, 0.05), (2, 0.1)}
        assert rows[-1].compiled == rows[0].compiled, "it was compiled again"
        (worker,) = {row.reader for row in rows}
        assert worker != first, "a worker of the loader reads, the same one all the time"
        assert len(Counter(sample for row in all_seen(stage) for sample in row.samples)) == SAMPLES
        counts = Counter(sample for row in all_seen(stage) for sample in row.samples)
        assert set(counts.values()) == {STEPS // EPOCH_STEPS}

    perform(tmp_path, act)


def test_a_new_rank_that_dies_has_the_run_restarted_from_what_it_saves_then(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        recipe = recipe_of(stage)
        pids = (await stage.up(RUN, recipe, ranks=2)).pids
        await stepped(stage, 2)
        (stage.workdir / "joiners-die").touch()
        await stage.order(Reshape(RUN, placed(3)), recipe)
        told = await stage.heard(RUN, Reshaped)
        assert not told.in_place
        assert "a new rank ended with 9 before it had joined" in told.why
        assert not set(told.pids) & set(pids)
        await stepped(stage, 3)
        hurry(stage)
        over = await stage.ended(RUN)
        assert (over.code, over.asked) == (0, StopOrder.NOTHING), over
        check_every_sample_once_in_each_epoch(stage)
        assert losses(stage).keys() == set(range(1, STEPS + 1))

    perform(tmp_path, act)


@pytest.mark.parametrize(
    ("when", "flags"),
    [
        ("before", ("--zero-last",)),
        pytest.param("before", (), marks=in_full),
        pytest.param("after", (), marks=in_full),
    ],
)
def test_where_one_rank_is_lost_the_others_go_on(
    tmp_path: Path, when: str, flags: tuple[str, ...]
) -> None:
    async def act(stage: Stage) -> None:
        recipe = recipe_of(stage, "--may-lose", "1", *flags)
        pids = (await stage.up(RUN, recipe, ranks=3)).pids
        await stepped(stage, 3)
        die(stage, pids[1], when)
        lost = await stage.heard(RUN, ReplicaLost)
        assert (lost.rank, lost.code, lost.pids) == (1, 9, (pids[0], pids[2]))
        await stepped(stage, 2)
        three = await resized(stage, recipe, 4, which=0)  # all of its slots are used again
        assert three.in_place
        assert set(three.pids) > {pids[0], pids[2]}
        hurry(stage)
        over = await stage.ended(RUN)
        assert (over.code, over.asked) == (0, StopOrder.NOTHING), over
        check_every_sample_once_in_each_epoch(stage)
        got, wanted = losses(stage), await undisturbed(stage)
        assert {step: wanted[step] for step in got} == pytest.approx(got, rel=1e-3)
        assert len(wanted) - len(got) <= (when == "after"), "the lost rank's step is not printed"

    perform(tmp_path, act)


def test_a_rank_that_is_lost_while_the_gang_grows_is_left_behind_and_the_others_grow(
    tmp_path: Path,
) -> None:
    async def act(stage: Stage) -> None:
        recipe = recipe_of(stage, "--may-lose", "1")
        pids = (await stage.up(RUN, recipe, ranks=2)).pids
        await stepped(stage, 2)
        (stage.workdir / "joiners-wait").touch()
        await stage.order(Reshape(RUN, placed(3)), recipe)
        await until(lambda: len(stage.alive(RUN)) > 2 or None)
        die(stage, pids[1], "before")
        lost = await stage.heard(RUN, ReplicaLost)
        assert (lost.rank, lost.pids) == (1, (pids[0],))
        (stage.workdir / "joiners-wait").unlink()
        three = await stage.heard(RUN, Reshaped)
        assert (three.in_place, len(three.pids), three.pids[0]) == (True, 3, pids[0]), three
        await stepped(stage, 3)
        hurry(stage)
        over = await stage.ended(RUN)
        assert (over.code, over.asked) == (0, StopOrder.NOTHING), over
        check_every_sample_once_in_each_epoch(stage)

    perform(tmp_path, act)


def test_one_rank_too_many_that_is_lost_is_a_failure_of_the_run(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        recipe = recipe_of(stage, "--may-lose", "1")
        pids = (await stage.up(RUN, recipe, ranks=3)).pids
        await stepped(stage, 3)
        die(stage, pids[1], "before")
        await stage.heard(RUN, ReplicaLost)
        await stepped(stage, 2)
        die(stage, pids[2], "before")
        over = await stage.ended(RUN)
        assert (over.code, over.rank, over.asked) == (9, 2, StopOrder.NOTHING), over

    perform(tmp_path, act)


def test_while_it_grows_it_is_frozen_afterwards_and_halted_at_once(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        recipe = recipe_of(stage)
        (first,) = (await stage.up(RUN, recipe)).pids
        await stepped(stage, 1)
        await stage.order(Reshape(RUN, placed(2)), recipe)
        await until(lambda: len(stage.alive(RUN)) > 1 or None)
        await stage.order(Freeze(RUN), recipe)
        await stage.heard(RUN, Frozen)
        kinds = [type(each) for each in stage.of(RUN)]
        assert kinds.index(Reshaped) < kinds.index(Frozen)
        await stage.order(Thaw(RUN), recipe)
        await stage.heard(RUN, Thawed)
        await stepped(stage, 2)
        await stage.order(Reshape(RUN, placed(4)), recipe)
        await until(lambda: len(stage.alive(RUN)) > 2 or None)
        await stage.order(Halt(RUN), recipe)
        over = await stage.ended(RUN)
        assert (over.asked, over.code, over.has_left) == (StopOrder.HALT, 0, True), over
        assert not stage.alive(RUN)
        assert len([each for each in stage.of(RUN) if isinstance(each, Reshaped)]) == 1
        assert seen_by(stage)[first][-1].world == 2

    perform(tmp_path, act)


def test_a_resize_waits_for_the_checkpoint_that_is_being_written(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        recipe = recipe_of(stage, "--slow-save", "4", "--save-every", "20")
        recipe = replace(recipe, grace_ms=2_000)
        pids = (await stage.up(RUN, recipe, ranks=2)).pids
        await until(lambda: (stage.workdir / "saving").exists() or None)
        await stage.order(Reshape(RUN, placed(1)), recipe)
        told = await stage.heard(RUN, Reshaped)
        assert (told.in_place, told.pids) == (True, pids[:1]), told
        assert [report.step for report in stage.of(RUN) if isinstance(report, Saved)] == [20]
        assert not (stage.workdir / "saving").exists()

    perform(tmp_path, act)


def test_a_program_that_is_not_elastic_is_restarted(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.shell("trap 'exit 0' TERM; while :; do sleep 0.05; done")
        pids = (await stage.up(RUN, recipe, ranks=2)).pids
        await stage.order(Reshape(RUN, placed(3)), recipe)
        told = await stage.heard(RUN, Reshaped)
        assert (told.in_place, told.why) == (False, "")
        assert not set(told.pids) & set(pids)

    perform(tmp_path, act)
