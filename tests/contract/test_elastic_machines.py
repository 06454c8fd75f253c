"""Gangs over several nodes that are resized while they train: ranks that stay keep their process."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from tests.contract.test_engine_of_machines import RUN, Cluster, perform, switch_off
from tests.contract.test_nodes_that_share_nothing import Apart
from tests.contract.test_nodes_that_share_nothing import perform as perform_apart
from tests.live.stage import is_last, until
from tests.live.test_elastic_engine import (
    check_every_sample_once_in_each_epoch,
    die,
    hurry,
    in_full,
    losses,
    recipe_of,
    seen_by,
    stepped,
    undisturbed,
)
from trainmaster.engines.ray.engine import RayEngine
from trainmaster.engines.ray.gang import Gang
from trainmaster.model.actions import Freeze, Halt, Kill, Launch, Reshape, Thaw
from trainmaster.model.engine_reports import (
    Ended,
    Frozen,
    Lost,
    ReplicaLost,
    Reshaped,
    ResizeTimed,
    Saved,
    Started,
    StopOrder,
    Thawed,
)
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.placement import Placement, Slice

pytestmark = pytest.mark.live
WORDS = Path(__file__).parents[1] / "live" / "elastic_words.py"


def slots(*numbers: int) -> Placement:
    """Four on each node."""
    return Placement(tuple(Slice(slot // 4, slot) for slot in numbers), span=0)


def words(stage: Cluster, may_lose: int = 0) -> LaunchSpec:
    """Of a program without torch."""
    return stage.recipe(sys.executable, str(WORDS), str(stage.workdir), str(may_lose))


async def up(stage: Cluster, spec: LaunchSpec, where: Placement) -> tuple[int, ...]:
    """It is launched there, and can be resized."""
    await stage.order(Launch(RUN, where, 0), spec)
    pids = (await stage.heard(RUN, Started)).pids
    await ready(stage, len(pids))
    return pids


async def ready(stage: Cluster, world: int) -> None:
    """All parts have said that they can be resized."""

    def said() -> bool:
        gang = gang_of(stage)
        is_able = all(part.may_lose is not None for part in gang.member_parts)
        return gang.world == world and is_able

    await until(said)


async def resized(stage: Cluster, spec: LaunchSpec, where: Placement, which: int = 0) -> Reshaped:
    await stage.order(Reshape(RUN, where), spec)
    told = await stage.heard(RUN, Reshaped, which=which)
    assert told.in_place, told.why
    assert len(told.pids) == len(where.slices)
    return told


async def growing(stage: Cluster, where: Placement, spec: LaunchSpec) -> None:
    """It grows, and its new ranks are not ready yet."""
    (stage.workdir / "joiners-wait").touch()
    count = len(stage.alive(RUN))
    await stage.order(Reshape(RUN, where), spec)
    await until(lambda: len(stage.alive(RUN)) > count)


def let_join(stage: Cluster) -> None:
    (stage.workdir / "joiners-wait").unlink()


def finish(stage: Cluster) -> None:
    (stage.workdir / "done").touch()


def places(stage: Cluster) -> dict[int, list[str]]:
    """What each process was, one after the other."""
    files = stage.workdir.glob("seen-*")
    return {int(each.name.removeprefix("seen-")): each.read_text().splitlines() for each in files}


def kinds(stage: Cluster) -> list[type]:
    return [type(report) for report in stage.of(RUN) if not isinstance(report, Saved)]


async def over(stage: Cluster) -> Ended | Lost:
    last = await until(lambda: next((each for each in stage.of(RUN) if is_last(each)), None))
    assert isinstance(last, Ended | Lost)
    assert stage.alive(RUN) == []
    return last


# -- resizes -------------------------------------------------------------------------------------------


def test_ranks_that_stay_keep_their_processes_whichever_nodes_come_and_go(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = words(stage)
        (first,) = await up(stage, spec, slots(3))
        two = await resized(stage, spec, slots(3, 4), 0)
        assert two.pids[0] == first
        await until(lambda: stage.link.held == {RUN: {"n0": 1000, "n1": 1000}})
        four = await resized(stage, spec, slots(2, 3, 4, 5), 1)
        assert set(four.pids) > set(two.pids)
        await until(lambda: stage.link.held == {RUN: {"n0": 2000, "n1": 2000}})
        same = await resized(stage, spec, slots(4, 5), 2)
        assert same.pids == four.pids[2:]
        assert set(stage.alive(RUN)) == set(same.pids)
        await until(lambda: stage.link.held == {RUN: {"n1": 2000}})
        inside = await resized(stage, spec, slots(4, 5, 6), 3)
        assert inside.pids[:2] == same.pids
        back = await resized(stage, spec, slots(0, 4, 5, 6), 4)
        assert back.pids[1:] == inside.pids
        less = await resized(stage, spec, slots(0, 4), 5)
        assert less.pids == back.pids[:2]
        timed = [each for each in stage.of(RUN) if isinstance(each, ResizeTimed)]
        assert len(timed) == 6
        assert None not in (timed[0].warm_up_ms, timed[0].boundary_ms, timed[0].first_step_ms)
        assert places(stage)[first] == ["0 of 1", "0 of 2", "0 of 4"]
        assert places(stage)[less.pids[1]][-3:] == ["0 of 3", "1 of 4", "1 of 2"]
        assert stage.log(RUN, 0).startswith(b"0 of 1\n0 of 2\n0 of 4\n")
        assert len(stage.engine.logs(RUN)) == 4, "numbers that are free are given again"
        finish(stage)
        end = await over(stage)
        assert isinstance(end, Ended)
        assert (end.code, end.asked) == (0, StopOrder.NOTHING)
        await until(lambda: stage.link.held == {})
        assert len([kind for kind in kinds(stage) if kind is Started]) == 1

    perform(tmp_path, act)


@in_full
def test_a_dry_run_of_a_resize_in_place_shows_what_each_node_is_told(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = words(stage)
        await up(stage, spec, slots(3))
        asked = stage.engine.requests(Reshape(RUN, slots(3, 4)), spec)
        assert [(each.to, type(getattr(each.said, "order", None))) for each in asked[1:]] == [
            ("n0", Reshape),
            ("n1", Launch),
        ]
        await stage.order(Kill(RUN), spec)
        await over(stage)

    perform(tmp_path, act)


@in_full
def test_of_two_resizes_the_second_is_made_after_the_first_and_answers_both(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = words(stage)
        pids = await up(stage, spec, slots(3))
        await growing(stage, slots(3, 4), spec)
        await stage.order(Reshape(RUN, slots(3, 4, 5)), spec)
        let_join(stage)
        told = await stage.heard(RUN, Reshaped)
        assert (told.in_place, len(told.pids), told.pids[0]) == (True, 3, pids[0])
        assert stage.log(RUN) == b"0 of 1\n0 of 2\n0 of 3\n"
        await stage.order(Kill(RUN), spec)
        await over(stage)
        assert kinds(stage).count(Reshaped) == 1

    perform(tmp_path, act)


# -- what goes wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("joiners-die", "a new rank ended with 9 before it had joined"),
        pytest.param("meeting-fails", "They did not come.", marks=in_full),
    ],
)
def test_where_that_fails_it_is_restarted_from_what_it_saves_then(
    tmp_path: Path, what: str, why: str
) -> None:
    async def act(stage: Cluster) -> None:
        spec = words(stage)
        pids = await up(stage, spec, slots(3, 4))
        (stage.workdir / what).touch()
        await stage.order(Reshape(RUN, slots(2, 3, 4, 5)), spec)
        told = await stage.heard(RUN, Reshaped)
        assert (told.in_place, told.why, len(told.pids)) == (False, why, 4)
        assert not set(told.pids) & set(pids)
        (stage.workdir / what).unlink()
        await ready(stage, 4)
        await resized(stage, spec, slots(3, 4, 5), 1)
        finish(stage)
        end = await over(stage)
        assert isinstance(end, Ended)
        assert end.code == 0

    perform(tmp_path, act)


@in_full
def test_ranks_that_do_not_come_in_time_have_it_restarted(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = replace(words(stage), grace_ms=300)
        await up(stage, spec, slots(3, 4))
        (stage.workdir / "nobody-meets").touch()
        await stage.order(Reshape(RUN, slots(3, 4, 5)), spec)
        told = await stage.heard(RUN, Reshaped)
        assert (told.in_place, told.why) == (False, "ranks did not regroup within 0.3 s")
        await stage.order(Kill(RUN), spec)
        await over(stage)

    perform(tmp_path, act)


@in_full
def test_a_node_that_is_told_late_to_regroup_is_waited_for(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = replace(words(stage), grace_ms=100)
        pids = await up(stage, spec, slots(3, 4))
        await growing(stage, slots(3, 4, 5), spec)
        stage.link.nodes["n0"].is_cut_off = True
        let_join(stage)
        await asyncio.sleep(0.5)
        stage.link.nodes["n0"].is_cut_off = False
        told = await stage.heard(RUN, Reshaped)
        assert (told.in_place, told.pids[:2]) == (True, pids), told
        await stage.order(Kill(RUN), spec)
        await over(stage)

    perform(tmp_path, act)


@in_full
def test_a_program_that_is_not_elastic_is_started_again_and_not_twice_at_once(
    tmp_path: Path,
) -> None:
    async def act(stage: Cluster) -> None:
        spec = stage.shell('trap "exit 0" TERM; while :; do sleep 0.02; done')
        await stage.order(Launch(RUN, slots(3), 0), spec)
        await stage.heard(RUN, Started)
        await stage.order(Reshape(RUN, slots(3, 4)), spec)
        told = await stage.heard(RUN, Reshaped)
        assert (told.in_place, told.why, len(told.pids)) == (False, "", 2)
        await stage.order(Kill(RUN), spec)
        await over(stage)

    perform(tmp_path, act)


@pytest.mark.parametrize("is_reordered", [True, pytest.param(False, marks=in_full)])
def test_a_resize_that_a_manager_began_is_made_by_the_next(
    tmp_path: Path, is_reordered: bool
) -> None:
    """It is ordered again as long as it is not answered; what all have been told goes on without that."""

    async def act(stage: Cluster) -> None:
        spec = words(stage)
        pids = await up(stage, spec, slots(3))
        await growing(stage, slots(2, 3, 4), spec)
        seen = stage.reports[-1][1]
        await until(lambda: len(stage.alive(RUN)) == 3)
        await stage.engine.close()
        async with stage.another() as again:
            await again.engine.observe({RUN: seen})
            if is_reordered:
                await again.order(Reshape(RUN, slots(2, 3, 4)), spec)
            let_join(stage)
            told = await again.heard(RUN, Reshaped)
            assert (told.in_place, told.pids[:1]) == (True, pids), told
            await again.order(Kill(RUN), spec)
            await over(again)

    perform(tmp_path, act)


@in_full
def test_a_manager_that_ends_before_new_nodes_are_told_launches_them_in_its_next_life(
    tmp_path: Path,
) -> None:
    async def act(stage: Cluster) -> None:
        spec = words(stage)
        pids = await up(stage, spec, slots(3))
        seen = stage.reports[-1][1]
        stage.link.nodes["n1"].is_cut_off = True
        run = stage.engine._runs[RUN]  # type: ignore[attr-defined]
        run._cluster.session("n1")
        stage.link.nodes["n1"].is_cut_off = False
        call = stage.link.call

        async def lost(node: str, method: str, *words: object) -> object:
            if node == "n1" and method in ("execute", "forget"):
                stage.link.nodes["n1"].is_cut_off = True
            return await call(node, method, *words)

        stage.link.call = lost  # type: ignore[method-assign]
        await stage.order(Reshape(RUN, slots(3, 4)), spec)
        await until(lambda: stage.link.nodes["n1"].is_cut_off)
        await stage.engine.close()
        async with stage.another() as again:
            await again.engine.observe({RUN: seen})
            await again.order(Reshape(RUN, slots(3, 4)), spec)
            told = await again.heard(RUN, Reshaped)
            assert (told.in_place, told.pids[:1], len(told.pids)) == (True, pids, 2)
            await again.order(Kill(RUN), spec)
            await over(again)

    perform(tmp_path, act)


@in_full
def test_a_node_that_dies_before_its_ranks_have_joined_costs_no_work(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = words(stage)
        await up(stage, spec, slots(3))
        await growing(stage, slots(3, 4), spec)
        await stage.link.die("n1", switch_off)
        end = await over(stage)
        assert isinstance(end, Lost)
        assert Saved in [type(report) for report in stage.of(RUN)]
        assert end.why == "The node n1 is gone."

    perform(tmp_path, act)


@in_full
def test_a_rank_that_dies_while_the_gang_grows_fails_the_run(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = words(stage)
        pids = await up(stage, spec, slots(3, 4))
        await growing(stage, slots(2, 3, 4, 5), spec)
        die(stage, pids[1], "now")
        end = await over(stage)
        assert isinstance(end, Ended)
        assert (end.code, end.rank, end.asked) == (9, 1, StopOrder.NOTHING)

    perform(tmp_path, act)


@in_full
@pytest.mark.parametrize("order", [Halt(RUN), Kill(RUN)])
def test_it_is_ended_in_the_middle(tmp_path: Path, order: Halt | Kill) -> None:
    async def act(stage: Cluster) -> None:
        spec = words(stage)
        await up(stage, spec, slots(3, 4))
        await growing(stage, slots(2, 3, 4, 5), spec)
        await stage.order(order, spec)
        end = await over(stage)
        assert isinstance(end, Ended)
        asked = StopOrder.HALT if isinstance(order, Halt) else StopOrder.KILL
        assert (end.asked, end.has_left) == (asked, asked is StopOrder.HALT)
        assert kinds(stage) == [Started, Ended]
        await until(lambda: stage.link.held == {})

    perform(tmp_path, act)


@in_full
def test_it_is_frozen_once_it_is_resized(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = words(stage)
        await up(stage, spec, slots(3))
        await growing(stage, slots(3, 4), spec)
        await stage.order(Freeze(RUN), spec)
        let_join(stage)
        await stage.heard(RUN, Frozen)
        assert [kind for kind in kinds(stage) if kind is not ResizeTimed] == [
            Started,
            Reshaped,
            Frozen,
        ]
        await until(lambda: stage.link.held == {})
        await stage.order(Thaw(RUN), spec)
        await stage.heard(RUN, Thawed)
        await until(lambda: stage.link.held == {RUN: {"n0": 1000, "n1": 1000}})
        await stage.order(Kill(RUN), spec)
        await over(stage)

    perform(tmp_path, act)


async def disturb(stage: Cluster, spec: LaunchSpec, chance: random.Random) -> Cluster:
    """A node is cut off for a moment, a launcher or the manager is another one."""
    node = chance.choice(["n0", "n1"])
    if chance.random() < 0.4:
        stage.link.nodes[node].is_cut_off = True
    elif chance.random() < 0.3:
        await stage.link.restart_launcher(node)
    if chance.random() < 0.6:
        (stage.workdir / "joiners-wait").unlink(missing_ok=True)
    await asyncio.sleep(chance.random() * 0.5)
    stage.link.nodes[node].is_cut_off = False
    if chance.random() < 0.7:
        return stage
    seen = stage.reports[-1][1]
    await stage.engine.close()
    again = stage.another()
    again.reports = stage.reports
    await again.__aenter__()
    await again.engine.observe({RUN: seen})
    return again


@in_full
@pytest.mark.parametrize("seed", range(8))
def test_whatever_disturbs_it_it_gets_to_the_size_that_was_ordered_last(
    tmp_path: Path, seed: int
) -> None:
    async def act(stage: Cluster) -> None:
        chance, spec = random.Random(seed), words(stage)
        await up(stage, spec, slots(3))
        for _ in range(5):
            (stage.workdir / "joiners-wait").touch()
            for _ in range(chance.choice([1, 1, 2])):
                where = slots(*sorted(chance.sample(range(8), chance.randint(1, 5))))
                await stage.order(Reshape(RUN, where), spec)
            is_to_freeze = chance.random() < 0.3
            if is_to_freeze:
                await stage.order(Freeze(RUN), spec)
            before = stage
            stage = await disturb(stage, spec, chance)
            if stage is not before:  # what is not answered is ordered again
                await stage.order(Reshape(RUN, where), spec)
                if is_to_freeze:
                    await stage.order(Freeze(RUN), spec)
            (stage.workdir / "joiners-wait").unlink(missing_ok=True)
            if is_to_freeze:
                await until(lambda stage=stage: gang_of(stage).is_frozen)
                await stage.order(Thaw(RUN), spec)
            await until(lambda stage=stage, where=where: is_as_wanted(stage, where))
            await ready(stage, len(where.slices))
        await stage.order(Kill(RUN), spec)
        await over(stage)
        assert kinds(stage).count(Started) == 1
        await stage.engine.close()

    perform(tmp_path, act)


def gang_of(stage: Cluster) -> Gang:
    gang = cast(RayEngine, stage.engine)._runs[RUN].gang
    assert gang is not None
    return gang


def is_as_wanted(stage: Cluster, where: Placement) -> bool:
    """It has a rank on each of these slots, and nothing else."""
    gang, run = gang_of(stage), cast(RayEngine, stage.engine)._runs[RUN]
    ranks = Counter(f"n{piece.node}" for piece in where.slices)
    parts = {part.node: part.ranks for part in gang.member_parts if part.over is None}
    held = {node: 1000 * count for node, count in ranks.items()}
    launched = run._journal.launched
    return (
        parts == ranks
        and launched is not None
        and launched.placement == repr(where.slices)
        and gang.is_up
        and not (gang.resize or gang.is_resizing or gang.is_changing or gang.is_frozen)
        and len(stage.alive(RUN)) == sum(ranks.values())
        and stage.link.held == {RUN: held}
    )


# -- losses --------------------------------------------------------------------------------------------


@in_full
def test_where_a_rank_is_lost_the_others_go_on_on_all_nodes(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = words(stage, may_lose=2)
        pids = await up(stage, spec, slots(2, 3, 4, 5))
        die(stage, pids[1], "now")
        lost = await stage.heard(RUN, ReplicaLost)
        assert (lost.rank, lost.code, lost.pids) == (1, 9, (pids[0], *pids[2:]))
        await until(lambda: places(stage)[pids[3]][-1] == "2 of 3")
        five = await resized(stage, spec, slots(1, 2, 3, 4, 5))
        assert set(five.pids) > {pids[0], *pids[2:]}
        die(stage, pids[2], "now")
        die(stage, pids[3], "now")
        end = await over(stage)
        assert isinstance(end, Ended)
        assert (end.code, kinds(stage).count(Reshaped)) == (9, 1)

    perform(tmp_path, act)


def test_where_a_whole_node_is_lost_the_others_go_on(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = words(stage, may_lose=2)
        pids = await up(stage, spec, slots(0, 4, 5))
        await stage.link.die("n0", switch_off)
        lost = await stage.heard(RUN, ReplicaLost)
        assert (lost.rank, lost.pids, lost.tail) == (0, pids[1:], "The node n0 is dead.")
        await until(lambda: stage.link.held == {RUN: {"n1": 2000}})
        waits = [stage.workdir / f"waits-{pid}" for pid in pids[1:]]
        assert [each.read_text() for each in waits] == ["600"] * 2, (
            "until the node is known to be dead"
        )
        await stage.link.come_back("n0")
        back = await resized(stage, spec, slots(1, 4, 5))
        assert back.pids[1:] == pids[1:]
        finish(stage)
        end = await over(stage)
        assert isinstance(end, Ended)
        assert end.code == 0

    perform(tmp_path, act)


@in_full
def test_a_rank_that_is_lost_while_the_gang_grows_is_left_behind_and_the_others_grow(
    tmp_path: Path,
) -> None:
    async def act(stage: Cluster) -> None:
        spec = words(stage, may_lose=1)
        pids = await up(stage, spec, slots(2, 3))
        await growing(stage, slots(2, 3, 4), spec)
        die(stage, pids[1], "now")
        lost = await stage.heard(RUN, ReplicaLost)
        assert lost.pids == pids[:1]
        let_join(stage)
        three = await stage.heard(RUN, Reshaped)
        assert (three.in_place, len(three.pids), three.pids[0]) == (True, 3, pids[0]), three
        finish(stage)
        await over(stage)

    perform(tmp_path, act)


# -- a real program ------------------------------------------------------------------------------------


async def stepping(stage: Cluster, spec: LaunchSpec, where: Placement, which: int) -> Reshaped:
    told = await resized(stage, spec, where, which)
    await stepped(stage, len(where.slices))
    return told


def test_a_pytorch_gang_grows_onto_another_node_in_place(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = recipe_of(stage)
        await stage.order(Launch(RUN, slots(3), 0), spec)
        pids = (await stage.heard(RUN, Started)).pids
        await stepped(stage, 1)
        assert (await stepping(stage, spec, slots(3, 4), 0)).pids[:1] == pids
        hurry(stage)
        assert (await stage.ended(RUN)).code == 0
        check_every_sample_once_in_each_epoch(stage)

    perform(tmp_path, act)


@in_full
def test_a_pytorch_gang_goes_on_as_if_it_had_not_been_resized(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = recipe_of(stage)
        await stage.order(Launch(RUN, slots(3), 0), spec)
        (first,) = (await stage.heard(RUN, Started)).pids
        await stepped(stage, 1)
        two = await stepping(stage, spec, slots(3, 4), 0)
        assert two.pids[0] == first
        four = await stepping(stage, spec, slots(2, 3, 4, 5), 1)
        assert set(four.pids) > set(two.pids)
        same = await stepping(stage, spec, slots(4, 5), 2)
        assert same.pids == four.pids[2:]
        hurry(stage)
        end = await stage.ended(RUN)
        assert (end.code, end.asked) == (0, StopOrder.NOTHING), end
        check_every_sample_once_in_each_epoch(stage)
        assert losses(stage) == pytest.approx(await undisturbed(stage), rel=1e-3)

    perform(tmp_path, act)


@in_full
def test_a_pytorch_gang_waits_for_the_checkpoint_that_is_being_written(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = recipe_of(stage, "--slow-save", "4", "--save-every", "20")
        spec = replace(spec, grace_ms=2_000)
        await stage.order(Launch(RUN, slots(3, 4), 0), spec)
        pids = (await stage.heard(RUN, Started)).pids
        await until((stage.workdir / "saving").exists)
        told = await resized(stage, spec, slots(4))
        assert told.pids == pids[1:]
        assert [each.step for each in stage.of(RUN) if isinstance(each, Saved)] == [20]
        await stage.order(Kill(RUN), spec)
        await over(stage)

    perform(tmp_path, act)


@in_full
def test_a_pytorch_gang_goes_on_without_a_rank_on_another_node(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = recipe_of(stage, "--may-lose", "1")
        await stage.order(Launch(RUN, slots(3, 4, 5), 0), spec)
        pids = (await stage.heard(RUN, Started)).pids
        await stepped(stage, 3)
        die(stage, pids[0], "before")
        lost = await stage.heard(RUN, ReplicaLost)
        assert (lost.rank, lost.pids) == (0, pids[1:])
        await stepped(stage, 2)
        hurry(stage)
        assert (await stage.ended(RUN)).code == 0
        check_every_sample_once_in_each_epoch(stage)
        assert seen_by(stage).keys() == set(pids)

    perform(tmp_path, act)


def test_a_gang_whose_files_were_sent_is_restarted_so_that_they_are_brought_first(
    tmp_path: Path,
) -> None:
    async def act(stage: Apart) -> None:
        spec = stage.copied(sys.executable, str(WORDS), str(stage.workdir), "0")
        await up(stage, spec, slots(3))
        (stage.job_folder("n0") / "code" / "result").write_text("so far")
        await stage.order(Reshape(RUN, slots(3, 4)), spec)
        told = await stage.heard(RUN, Reshaped)
        assert not told.in_place
        assert (stage.code / "result").read_text() == "so far"
        assert (stage.job_folder("n1") / "code" / "result").read_text() == "so far"
        await stage.order(Kill(RUN), spec)
        await over(stage)

    perform_apart(tmp_path, act)


def test_a_suspension_by_a_manager_that_knows_of_no_resize_ends_in_a_checkpoint(
    tmp_path: Path,
) -> None:
    """The manager before it had ordered both, and was killed: only the last order is sent again."""

    async def act(stage: Cluster) -> None:
        spec = words(stage)
        await up(stage, spec, slots(3))
        await growing(stage, slots(3, 4), spec)
        await stage.engine.close()
        async with stage.another() as again:
            await again.engine.observe({RUN: stage.reports[-1][1]})
            await again.order(Freeze(RUN), spec)
            ended = await over(again)
            assert isinstance(ended, Ended)
            assert (ended.asked, ended.has_left) == (StopOrder.HALT, True)
            assert again.alive(RUN) == []

    perform(tmp_path, act)
