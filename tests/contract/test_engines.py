"""What every engine must do, on real processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import on
from tests.live.loopback import ray_engine
from tests.live.stage import (
    Act,
    MakeEngine,
    Stage,
    is_last,
    local_engine,
    perform,
    placed,
    until,
)
from trainmaster.engines.protocol import Known, KnownJob
from trainmaster.model.actions import Freeze, Halt, Kill, Launch, Rebind, Reshape, Thaw
from trainmaster.model.engine_reports import (
    Ended,
    Frozen,
    Lost,
    Reshaped,
    Started,
    StopOrder,
    Thawed,
)
from trainmaster.model.job import Run

pytestmark = pytest.mark.live
RUN = Run("12", 1)
Play = Callable[[Act], None]

ENGINES: dict[str, MakeEngine] = {"local": local_engine, "ray": ray_engine}
"""How each engine is made for a state folder; a new one is a line here."""


@pytest.fixture(params=sorted(ENGINES))
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    """Perform an act on a stage with each of the engines."""
    return lambda act: perform(tmp_path, act, ENGINES[request.param])


def test_a_program_that_ends_well_is_reported_from_start_to_end(play: Play) -> None:
    async def act(stage: Stage) -> None:
        await stage.launch(RUN, stage.shell("echo hello; pwd"))
        over = await stage.ended(RUN)
        kinds = [type(report) for report in stage.of(RUN)]
        assert kinds == [Started, Ended]
        numbers = [n for _, n in stage.reports]
        assert numbers == sorted(set(numbers))
        assert (over.code, over.asked, over.rank, over.was_killed) == (
            0,
            StopOrder.NOTHING,
            None,
            False,
        )
        assert stage.log(RUN).decode() == f"hello\n{stage.workdir}\n"

    play(act)


def test_a_gang_knows_who_is_who(play: Play) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.shell(
            'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $GROUP_RANK" '
            '"$TRAINMASTER_JOB $TRAINMASTER_ATTEMPT $TRAINMASTER_RUN $TRAINMASTER_RESTART_COUNT" '
            '"$TRAINMASTER_DEVICES [$CUDA_VISIBLE_DEVICES] $MASTER_ADDR"; echo $MASTER_PORT'
        )
        await stage.order(Launch(RUN, placed(3, first=2), 0), recipe)
        assert (await stage.ended(RUN)).code == 0
        said = [stage.log(RUN, rank).decode().splitlines() for rank in range(3)]
        n0, n1 = (node.name for node in stage.engine.topology.nodes)
        assert [lines[0].rsplit(" ", 2)[0] for lines in said] == [
            f"0/3 0/2 0 0 12 1 12.1 0 {n0}:2,{n0}:3",
            f"1/3 1/2 0 0 12 1 12.1 0 {n0}:2,{n0}:3",
            f"2/3 0/1 1 1 12 1 12.1 0 {n1}:0",
        ]
        assert {lines[0].split()[-2] != "[]" for lines in said} == {
            bool(stage.engine.topology.uuids)
        }
        (host,) = {lines[0].split()[-1] for lines in said}
        assert host == stage.engine.host_of(n0)
        assert len({lines[1] for lines in said}) == 1

    play(act)


def test_a_dry_run_shows_what_would_be_sent_and_sends_nothing(play: Play) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.shell("touch started; sleep 600")
        launch = Launch(RUN, placed(3, first=2), 0)
        assert "touch started" in repr(stage.engine.requests(launch, recipe))
        assert stage.engine.recorded(RUN) is None
        await stage.order(launch, recipe)
        await stage.heard(RUN, Started)
        for order in (Freeze(RUN), Halt(RUN), Kill(RUN), Reshape(RUN, placed(2))):
            assert stage.engine.requests(order, recipe)
        assert [type(report) for report in stage.of(RUN)] == [Started]
        assert len(stage.alive(RUN)) >= 3
        await stage.order(Kill(RUN), recipe)
        await stage.ended(RUN)

    play(act)


def test_one_failing_rank_of_three_ends_the_others_and_is_named(play: Play) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.shell('[ "$RANK" = 1 ] && { echo broken; exit 7; }; sleep 600')
        await stage.launch(RUN, recipe, ranks=3)
        over = await stage.ended(RUN)
        assert (over.code, over.rank, over.asked) == (7, 1, StopOrder.NOTHING)
        assert over.tail == "broken"
        assert stage.alive(RUN) == []

    play(act)


def test_a_halted_run_saves_leaves_and_is_to_go_on(play: Play) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.shell(
            'place="$TRAINMASTER_CHECKPOINT_DIR"; mkdir -p "$place"; '
            "trap 'echo 1 > \"$place/step\"; echo saved; exit 0' TERM; "
            "echo up; while :; do sleep 0.02; done"
        )
        await stage.up(RUN, recipe)
        await until(lambda: b"up" in stage.log(RUN))
        await stage.order(Halt(RUN), recipe)
        over = await stage.ended(RUN)
        assert (over.asked, over.has_left, over.was_killed) == (StopOrder.HALT, True, False)
        assert stage.log(RUN).endswith(b"saved\n")
        assert stage.alive(RUN) == []

    play(act)


def test_a_killed_run_is_gone_and_nobody_calls_it_a_failure(play: Play) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.shell("sleep 600")
        await stage.up(RUN, recipe, ranks=2)
        await stage.order(Kill(RUN), recipe)
        await stage.order(Kill(RUN), recipe)
        over = await stage.ended(RUN)
        assert (over.asked, over.rank, over.code) == (StopOrder.KILL, None, 143)
        assert stage.alive(RUN) == []

    play(act)


def test_orders_may_come_twice_and_late(play: Play) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.shell("echo once; sleep 600")
        for _ in range(3):
            await stage.launch(RUN, recipe)
        await until(lambda: stage.log(RUN))
        await stage.order(Halt(RUN), recipe)
        await stage.order(Halt(RUN), recipe)
        await stage.ended(RUN)
        for order in (Launch(RUN, placed(1), 0), Halt(RUN), Kill(RUN), Freeze(RUN)):
            await stage.order(order, recipe)
        other = Run("13", 1)
        await stage.launch(other, stage.shell("true"))
        await stage.ended(other)
        assert stage.log(RUN) == b"once\n"
        assert len({n for report, n in stage.reports if is_last(report) and report.run == RUN}) == 1
        assert stage.alive(RUN) == []

    play(act)


def test_a_launch_and_a_freeze_that_come_again_from_a_new_manager_change_nothing(
    play: Play,
) -> None:
    """Nothing was heard of the run, so the new one does not know whether they arrived."""

    async def act(stage: Stage) -> None:
        recipe = stage.shell("echo once; sleep 600")
        await stage.launch(RUN, recipe)
        await stage.order(Freeze(RUN), recipe)
        await stage.heard(RUN, Frozen)
        said = [*stage.reports]
        await stage.engine.close()
        async with stage.another() as again:
            await again.engine.observe({RUN: 0})
            await again.launch(RUN, recipe)
            await again.order(Freeze(RUN), recipe)
            await again.order(Thaw(RUN), recipe)
            await again.heard(RUN, Thawed)
            assert {*again.reports} == {*said, again.reports[-1]}
            await until(lambda: again.log(RUN))
            assert again.log(RUN) == b"once\n"

    play(act)


def test_a_frozen_run_goes_on_at_other_slots_and_so_does_a_running_one(play: Play) -> None:
    async def act(stage: Stage) -> None:
        if not stage.engine.abilities.can_freeze:
            pytest.skip("this engine cannot freeze")
        recipe = stage.shell("while :; do sleep 0.01; done")
        await stage.up(RUN, recipe, ranks=1)
        _, first = stage.engine.environment(RUN)
        members = stage.alive(RUN)
        await stage.order(Freeze(RUN), recipe)
        await stage.heard(RUN, Frozen)
        await stage.order(Thaw(RUN, on(stage.engine.topology, 2)), recipe)
        await stage.heard(RUN, Thawed)
        _, second = stage.engine.environment(RUN)
        await stage.order(Rebind(RUN, on(stage.engine.topology, 3)), recipe)
        _, third = stage.engine.environment(RUN)
        named = [env["TRAINMASTER_DEVICES"].rpartition(":")[2] for env in (first, second, third)]
        assert named == ["0", "2", "3"]
        assert first["MASTER_PORT"] == third["MASTER_PORT"]
        assert set(members) & set(stage.alive(RUN)), "it is the same process"
        await stage.order(Kill(RUN), recipe)
        await stage.ended(RUN)

    play(act)


def test_a_frozen_run_stands_still_until_it_is_thawed(play: Play) -> None:
    async def act(stage: Stage) -> None:
        if not stage.engine.abilities.can_freeze:
            pytest.skip("this engine cannot freeze")
        recipe = stage.shell("(while :; do sleep 0.01; done) & while :; do sleep 0.01; done")
        await stage.up(RUN, recipe, ranks=2)
        await stage.order(Freeze(RUN), recipe)
        await stage.heard(RUN, Frozen)
        members = stage.alive(RUN)
        assert len(members) >= 4
        assert stage.states(members) == {"T"}
        await stage.order(Thaw(RUN), recipe)
        await stage.heard(RUN, Thawed)
        assert "T" not in stage.states(stage.alive(RUN))
        await stage.order(Freeze(RUN), recipe)
        await stage.heard(RUN, Frozen, which=1)
        await stage.order(Kill(RUN), recipe)
        assert (await stage.ended(RUN)).asked is StopOrder.KILL
        assert stage.alive(RUN) == []

    play(act)


def test_a_reshaped_run_goes_on_with_other_ranks_under_the_same_name(play: Play) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.shell("echo $WORLD_SIZE $TRAINMASTER_RESTART_COUNT; sleep 600")
        first = await stage.up(RUN, recipe, ranks=1)
        await until(lambda: stage.log(RUN))
        await stage.order(Reshape(RUN, placed(3)), recipe)
        again = await stage.heard(RUN, Reshaped)
        assert len(first.pids) == 1
        assert len(again.pids) == 3
        await until(lambda: all(stage.log(RUN, rank) for rank in range(3)))
        assert stage.log(RUN) == b"1 0\n3 1\n"
        await stage.order(Reshape(RUN, placed(3)), recipe)
        await stage.order(Reshape(RUN, placed(2)), recipe)
        await stage.heard(RUN, Reshaped, which=1)
        await until(lambda: stage.log(RUN) == b"1 0\n3 1\n2 2\n")
        await stage.order(Kill(RUN), recipe)
        await stage.ended(RUN)
        assert stage.alive(RUN) == []

    play(act)


def test_who_comes_back_hears_only_what_is_new(play: Play) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.shell("until [ -e go ]; do sleep 0.01; done; exit 3")
        await stage.up(RUN, recipe)
        pids = stage.alive(RUN)
        (seen,) = [n for _, n in stage.reports]
        await stage.engine.close()
        assert set(pids) & set(stage.alive(RUN))
        async with stage.another() as again:
            await again.engine.observe({RUN: seen})
            (stage.workdir / "go").touch()
            assert (await again.ended(RUN)).code == 3
            assert [type(report) for report in again.of(RUN)] == [Ended]
        async with stage.another() as later:
            await later.engine.observe({RUN: 0})
            await later.ended(RUN)
            assert [type(report) for report in later.of(RUN)] == [Started, Ended]
            last = later.reports[-1][1]
        async with stage.another() as latest:
            other = Run("13", 1)
            await latest.engine.observe({RUN: last})
            await latest.launch(other, latest.shell("true"))
            await latest.ended(other)
            assert latest.of(RUN) == []

    play(act)


def test_a_run_that_nobody_owns_any_more_is_ended(play: Play) -> None:
    async def act(stage: Stage) -> None:
        await stage.up(RUN, stage.shell("sleep 600"))
        await stage.engine.close()
        async with stage.another() as again:
            await again.engine.observe({})
            await until(lambda: not again.alive(RUN))
            assert again.of(RUN) == []

    play(act)


def test_an_attempt_waits_until_nothing_is_left_of_the_one_before(play: Play) -> None:
    async def act(stage: Stage) -> None:
        stubborn = stage.shell("trap '' TERM; echo up; while :; do sleep 0.02; done", grace_ms=500)
        await stage.up(RUN, stubborn)
        await until(lambda: stage.log(RUN))
        second = Run(RUN.job, 2)
        await stage.launch(second, stage.shell("sleep 600"))
        while not any(isinstance(report, Started) for report in stage.of(second)):
            assert not (stage.alive(RUN) and stage.alive(second))
            await asyncio.sleep(0.01)
        assert stage.alive(RUN) == []
        assert (await stage.ended(RUN)).asked is StopOrder.KILL
        third = Run(RUN.job, 3)
        await stage.launch(third, stage.shell("touch started"))
        await stage.order(Halt(third), stubborn)
        assert (await stage.ended(third)).asked is StopOrder.HALT
        await stage.ended(second)
        assert not (stage.workdir / "started").exists()

    play(act)


def test_a_run_that_never_came_to_be_is_not_reported_and_may_still_be_launched(
    play: Play,
) -> None:
    async def act(stage: Stage) -> None:
        other = Run("13", 1)
        await stage.engine.observe({RUN: 0})
        await stage.launch(other, stage.shell("true"))
        await stage.ended(other)
        assert stage.of(RUN) == []
        await stage.launch(RUN, stage.shell("true"))
        assert (await stage.ended(RUN)).code == 0

    play(act)


@pytest.mark.parametrize(
    ("order", "asked"), [(Halt(RUN), StopOrder.HALT), (Kill(RUN), StopOrder.KILL)]
)
def test_a_run_told_to_end_before_it_was_launched_never_starts(
    play: Play, order: Halt | Kill, asked: StopOrder
) -> None:
    async def act(stage: Stage) -> None:
        recipe = stage.shell("touch started")
        await stage.order(order, recipe)
        over = await stage.ended(RUN)
        assert over.asked is asked
        assert over.why
        await stage.launch(RUN, recipe)
        other = Run("13", 1)
        await stage.launch(other, stage.shell("true"))
        await stage.ended(other)
        assert not (stage.workdir / "started").exists()

    play(act)


@pytest.mark.parametrize("order", [Freeze(RUN), Thaw(RUN), Reshape(RUN, placed(2)), Kill(RUN)])
def test_no_order_to_a_run_of_which_nothing_is_left_goes_without_an_answer(
    play: Play, order: Freeze | Thaw | Reshape | Kill
) -> None:
    async def act(stage: Stage) -> None:
        other = Run("13", 1)
        await stage.order(order, stage.shell("true"))
        await stage.engine.observe({other: 6})
        for run, seen in ((RUN, 0), (other, 6)):
            last = await until(
                lambda run=run: [(r, n) for r, n in stage.reports if r.run == run and is_last(r)]
            )
            assert last[0][1] > seen
        assert [type(report) for report in stage.of(other)] == [Lost]

    play(act)


def test_a_command_that_is_not_there_fails_with_a_sentence(play: Play) -> None:
    async def act(stage: Stage) -> None:
        await stage.launch(RUN, stage.recipe("no-such-command-at-all"), ranks=2)
        over = await stage.ended(RUN)
        assert over.code == 127
        assert "'no-such-command-at-all' was not found" in over.why

    play(act)


def test_what_is_forgotten_leaves_no_files(play: Play) -> None:
    async def act(stage: Stage) -> None:
        await stage.launch(RUN, stage.shell("echo hello"))
        await stage.ended(RUN)
        await stage.engine.forget(RUN)
        assert not os.path.exists(stage.engine.folder_of(RUN))
        assert not os.path.exists(stage.engine.folder_of(RUN).parent)

    play(act)


def test_what_is_forgotten_takes_nothing_else_with_it(play: Play) -> None:
    async def act(stage: Stage) -> None:
        second = Run(RUN.job, 2)
        for run in (RUN, second):
            await stage.launch(run, stage.shell("echo hello"))
            await stage.ended(run)
        await stage.engine.forget(RUN)
        assert stage.log(second) == b"hello\n"

    play(act)


# -- whose run it is ----------------------------------------------------------------------------------


def known_as(uuid: str, attempts: int = 1) -> Known:
    return lambda id: KnownJob(uuid, attempts) if id == RUN.job else None


def test_a_run_of_another_job_is_neither_adopted_nor_ended(play: Play) -> None:
    async def act(stage: Stage) -> None:
        theirs = replace(stage.shell("sleep 600"), uuid="theirs")
        await stage.up(RUN, theirs)
        pids = stage.alive(RUN)
        await stage.engine.close()
        async with stage.another() as again:
            (stray,) = await again.engine.observe({}, known_as("ours"))
            assert (stray.run, stray.is_ended) == (RUN, False)
            await again.engine.observe({RUN: 3}, known_as("ours"))
            assert [type(report) for report in again.of(RUN)] == [Lost]
            assert again.reports[-1][1] > 3
            for order in (Kill(RUN), Halt(RUN), Freeze(RUN)):
                await again.order(order, replace(theirs, uuid="ours"))
            await again.launch(RUN, replace(theirs, uuid="ours"))
            assert {type(report) for report in again.of(RUN)} == {Lost}
            second = Run(RUN.job, 2)
            await again.launch(second, replace(again.shell("touch ran"), uuid="ours"))
            await again.ended(second)
            assert (stage.workdir / "ran").exists()
            assert set(pids) <= set(again.alive(RUN))
            await again.engine.observe({}, known_as("theirs"))
            await until(lambda: not again.alive(RUN))

    play(act)


def test_the_end_of_another_job_is_not_taken_for_the_end_of_this_one(play: Play) -> None:
    async def act(stage: Stage) -> None:
        await stage.launch(RUN, replace(stage.shell("exit 7"), uuid="theirs"))
        await stage.ended(RUN)
        await stage.engine.close()
        async with stage.another() as again:
            await again.launch(RUN, replace(again.shell("touch ran"), uuid="ours"))
            assert (await again.ended(RUN)).code == 0
            assert (stage.workdir / "ran").exists()

    play(act)


def test_a_later_attempt_than_the_store_knows_is_left_to_go_on(play: Play) -> None:
    async def act(stage: Stage) -> None:
        second = Run(RUN.job, 2)
        await stage.up(second, stage.shell("sleep 600"))
        await stage.engine.close()
        async with stage.another() as again:
            (stray,) = await again.engine.observe({}, known_as("", attempts=1))
            assert not stray.is_ended
            (stray,) = await again.engine.observe({}, known_as("", attempts=2))
            assert stray.is_ended
            await until(lambda: not again.alive(second))

    play(act)
