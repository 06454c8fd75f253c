"""What an engine of several machines does when nodes come, go, and cannot be reached: on real processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from errno import ENOSPC
from functools import partial
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import pytest

from tests.live.loopback import LoopbackLink, LoopbackNode, node_of, ray_engine
from tests.live.stage import Stage, is_last, kill_remains, nothing_left, placed, supervisors, until
from trainmaster.engines.local import runfile
from trainmaster.engines.ray import gang_run
from trainmaster.engines.ray.engine import RayEngine
from trainmaster.engines.ray.gang_parts import NodeOrder, Reservation
from trainmaster.engines.ray.node_link import Unreachable
from trainmaster.engines.run_limits import DEFAULT_RUN_LIMITS, RunLimits
from trainmaster.failures.hang_rule import HangLimits
from trainmaster.model.actions import Freeze, Halt, Kill, Launch, Reshape, Thaw
from trainmaster.model.engine_reports import (
    Ended,
    Frozen,
    Lost,
    NodeCame,
    NodeFell,
    NodeReport,
    Reshaped,
    Started,
    StopOrder,
    Thawed,
)
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import GangPart
from trainmaster.model.placement import Placement, Slice
from trainmaster.model.topology_growth import grown

pytestmark = pytest.mark.live
RUN = Run("12", 1)
BOTH = placed(4, first=2)
"""Two devices on each of the two nodes."""


class Cluster(Stage):
    """A stage with two nodes of four slots, and what was told of them."""

    def __init__(self, folder: Path, limits: RunLimits = DEFAULT_RUN_LIMITS) -> None:
        super().__init__(folder, partial(ray_engine, limits=limits))
        self.nodes: list[NodeReport] = []

    def another(self) -> Cluster:
        return Cluster(self.folder)

    async def __aenter__(self) -> Cluster:
        await self.engine.open(
            lambda report, n: self.reports.append((report, n)), self.nodes.append
        )
        return self

    @property
    def link(self) -> LoopbackLink:
        return cast(LoopbackLink, cast(RayEngine, self.engine)._link)

    def has_remains(self, node: str) -> bool:
        """Whether there is anything of the run on that node."""
        return (self.folder / "nodes" / node / "runs" / RUN.job / str(RUN.attempt)).exists()

    def pids_on(self, node: str) -> list[int]:
        """Processes of the run whose log is on that node."""
        prefix = f"{node}:"
        return [
            pid
            for pid in self.alive(RUN)
            if _variable(pid, "TRAINMASTER_DEVICES").startswith(prefix)
        ]


Act = Callable[[Cluster], Awaitable[None]]


def _variable(pid: int, name: str) -> str:
    try:
        rows = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    except OSError:
        return ""
    return next((row.partition("=")[2] for row in rows if row.startswith(f"{name}=")), "")


def perform(folder: Path, act: Act, limits: RunLimits = DEFAULT_RUN_LIMITS) -> None:
    async def playing() -> None:
        async with Cluster(folder, limits) as stage:
            await act(stage)

    with nothing_left(folder):
        asyncio.run(playing())


def switch_off(folder: Path) -> None:
    """Kill all that runs below a node's folder, as losing its power does: ranks die with their supervisor."""
    for lock in folder.rglob("lock"):
        kill_remains(supervisors(lock.parent))


# -- gangs over several nodes --------------------------------------------------------------------------


def test_a_gang_of_two_nodes_meets_and_adds_up(tmp_path: Path) -> None:
    program = tmp_path / "meet.py"
    program.write_text(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "one = torch.ones(1) * (1 + dist.get_rank())\n"
        "dist.all_reduce(one)\n"
        "print(os.environ['GROUP_RANK'], int(one), flush=True)\n"
        "dist.barrier()\n"
        "dist.destroy_process_group()\n"
    )

    async def act(stage: Cluster) -> None:
        spec = stage.recipe(sys.executable, str(program))
        await stage.order(Launch(RUN, placed(2, first=3), 0), spec)
        assert (await stage.ended(RUN)).code == 0, stage.log(RUN) + stage.log(RUN, 1)
        assert stage.log(RUN, 0) == b"0 3\n"
        assert stage.log(RUN, 1) == b"1 3\n"

    perform(tmp_path, act)


def test_a_dry_run_shows_each_nodes_part_in_its_own_numbers(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        found = stage.engine.requests(Launch(RUN, placed(3, first=3), 0), stage.shell("true"))
        assert [each.to for each in found] == ["cluster", "n0", "n1"]
        assert found[0].said == Reservation({"n0": 1000, "n1": 2000}, {})
        second = cast(NodeOrder, found[2].said)
        assert isinstance(second.order, Launch)
        assert [piece.gpu for piece in second.order.placement.slices] == [0, 1]
        assert second.spec.part == GangPart(1, 3, 1, 2, "127.0.0.1", 0)
        await until(lambda: stage.link.held == {})

    perform(tmp_path, act)


def test_a_rank_that_fails_on_one_node_ends_those_on_the_other(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = stage.shell('[ "$RANK" = 3 ] && { echo broken; exit 7; }; sleep 600')
        await stage.order(Launch(RUN, BOTH, 0), spec)
        over = await stage.ended(RUN)
        assert (over.code, over.rank, over.tail, over.asked) == (
            7,
            3,
            "broken",
            StopOrder.NOTHING,
        )
        assert stage.alive(RUN) == []
        await until(lambda: stage.link.held == {})

    perform(tmp_path, act)


def test_logs_of_all_nodes_are_collected_to_their_last_byte(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = stage.shell('echo "I am $RANK"; yes $RANK | head -c 3000000; echo end')
        await stage.order(Launch(RUN, BOTH, 0), spec)
        await stage.ended(RUN)
        for rank in range(4):
            log = stage.log(RUN, rank)
            assert log.startswith(f"I am {rank}\n{rank}\n".encode())
            assert len(log) == len("I am 0\n") + 3_000_000 + len("end\n")

    perform(tmp_path, act)


def test_a_gang_is_frozen_and_goes_on_on_all_its_nodes(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = stage.shell("while :; do sleep 0.01; done")
        await stage.order(Launch(RUN, BOTH, 0), spec)
        await stage.heard(RUN, Started)
        assert stage.link.held == {RUN: {"n0": 2000, "n1": 2000}}
        await stage.order(Freeze(RUN), spec)
        await stage.heard(RUN, Frozen)
        await until(lambda: stage.link.held == {})
        stage.link.taken = {"n1": 3000}
        await stage.order(Thaw(RUN), spec)
        await asyncio.sleep(0.1)
        assert not [report for report in stage.of(RUN) if isinstance(report, Thawed)]
        stage.link.taken = {}
        await stage.heard(RUN, Thawed)
        assert stage.link.held == {RUN: {"n0": 2000, "n1": 2000}}
        await stage.order(Kill(RUN), spec)
        await stage.ended(RUN)

    perform(tmp_path, act)


def test_a_gang_grows_onto_another_node_and_shrinks_again(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = stage.shell(
            'echo "$RANK of $WORLD_SIZE on $GROUP_RANK"; trap "exit 0" TERM; while :; do sleep 0.02; done'
        )
        await stage.order(Launch(RUN, placed(1, first=3), 0), spec)
        await until(lambda: stage.log(RUN))
        for turn, ranks in enumerate((3, 1, 3)):
            await stage.order(Reshape(RUN, placed(ranks, first=3)), spec)
            again = await stage.heard(RUN, Reshaped, which=turn)
            assert len(again.pids) == ranks
            await until(lambda ranks=ranks, turn=turn: _says(stage, ranks, turn))
            assert len(stage.link.held[RUN]) == (2 if ranks == 3 else 1)
        await stage.order(Halt(RUN), spec)
        assert (await stage.ended(RUN)).asked is StopOrder.HALT

    perform(tmp_path, act)


def test_a_gang_that_stays_on_its_two_nodes_goes_on_as_one(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = stage.shell(
            'echo "$RANK of $WORLD_SIZE on $GROUP_RANK, $MASTER_PORT";'
            ' trap "exit 0" TERM; while :; do sleep 0.02; done'
        )
        await stage.order(Launch(RUN, BOTH, 0), spec)
        await until(lambda: all(stage.log(RUN, rank) for rank in range(4)))
        fewer = placed(2, first=3)
        asked = stage.engine.requests(Reshape(RUN, fewer), spec)
        assert [each.to for each in asked] == ["n0", "n1", "cluster", "n0", "n1"]
        await stage.order(Reshape(RUN, fewer), spec)
        again = await stage.heard(RUN, Reshaped)
        assert len(again.pids) == 2
        await until(lambda: b"0 of 2 on 0" in stage.log(RUN, 0) and b"1 of 2" in stage.log(RUN, 1))
        last = [stage.log(RUN, rank).splitlines()[-1] for rank in range(2)]
        assert last[1].startswith(b"1 of 2 on 1, ")
        assert len({line.rpartition(b" ")[2] for line in last}) == 1
        assert stage.link.held == {RUN: {"n0": 1000, "n1": 1000}}
        await stage.order(Halt(RUN), spec)
        await stage.ended(RUN)
        assert [type(report) for report in stage.of(RUN)] == [Started, Reshaped, Ended]

    perform(tmp_path, act)


def _says(stage: Stage, ranks: int, turn: int) -> bool:
    last = f"{ranks - 1} of {ranks} on {int(ranks == 3)}\n".encode()
    return stage.log(RUN).count(b" of ") == turn + 2 and stage.log(RUN, ranks - 1).endswith(last)


# -- nodes that go and come ----------------------------------------------------------------------------


def test_a_run_is_lost_with_its_node_once_nothing_of_it_is_left(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = stage.shell("sleep 600")
        await stage.order(Launch(RUN, BOTH, 0), spec)
        await stage.heard(RUN, Started)
        stage.link.nodes["n1"].is_cut_off = True
        await stage.engine.save(RUN)  # the next call that it does not answer
        session = cast(RayEngine, stage.engine)._sessions["n1"]
        since_ms = await until(lambda: session.silent_ms)
        await asyncio.sleep(0.01)
        await stage.link.die("n1", switch_off)
        last = await until(lambda: next((r for r in stage.of(RUN) if is_last(r)), None))
        assert isinstance(last, Lost)
        assert (last.why, last.alive_ms) == ("The node n1 is dead.", since_ms)
        assert stage.pids_on("n0") == []
        await until(lambda: stage.alive(RUN) == [])  # those of n1 die with their supervisor
        await until(lambda: stage.link.held == {})
        assert [type(report) for report in stage.nodes] == [NodeCame, NodeCame, NodeFell]
        stage.link.nodes["n1"].is_cut_off = False
        await stage.link.come_back("n1")
        second = Run(RUN.job, 2)
        await stage.order(Launch(second, BOTH, 0), stage.shell("true"))
        assert (await stage.ended(second)).code == 0

    perform(tmp_path, act)


def test_a_node_that_comes_back_within_its_fence_goes_on_with_its_runs(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = stage.shell("echo up; until [ -e go ]; do sleep 0.02; done; echo done")
        await stage.order(Launch(RUN, BOTH, 0), spec)
        await stage.heard(RUN, Started)
        await until(lambda: all(stage.log(RUN, rank) for rank in range(4)))
        before = set(stage.alive(RUN))
        await stage.link.restart_launcher("n1")
        (stage.workdir / "go").touch()
        assert (await stage.ended(RUN)).code == 0
        assert before
        assert [type(report) for report in stage.of(RUN)] == [Started, Ended]
        assert [stage.log(RUN, rank) for rank in range(4)] == [b"up\ndone\n"] * 4

    perform(tmp_path, act)


def test_a_node_that_cannot_be_reached_is_told_as_soon_as_it_can(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = stage.shell("sleep 600")
        await stage.order(Launch(RUN, BOTH, 0), spec)
        await stage.heard(RUN, Started)
        stage.link.nodes["n1"].is_cut_off = True
        await stage.order(Kill(RUN), spec)
        await until(lambda: not stage.pids_on("n0"))
        assert stage.pids_on("n1")
        assert not any(is_last(report) for report in stage.of(RUN))
        stage.link.nodes["n1"].is_cut_off = False
        assert (await stage.ended(RUN)).asked is StopOrder.KILL
        assert stage.alive(RUN) == []

    perform(tmp_path, act)


def test_what_outlived_its_nodes_death_is_ended_when_the_node_is_back(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = stage.shell("sleep 600")
        await stage.engine.observe({})
        await stage.order(Launch(RUN, BOTH, 0), spec)
        await stage.heard(RUN, Started)
        await stage.link.die("n1", lambda folder: None)
        last = await until(lambda: next((r for r in stage.of(RUN) if is_last(r)), None))
        assert isinstance(last, Lost)
        assert stage.pids_on("n1")
        await stage.link.come_back("n1")
        await until(lambda: not stage.alive(RUN))
        assert stage.of(RUN)[-1] == last

    perform(tmp_path, act)


def test_a_node_that_joins_takes_runs(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        third = node_of("n2", slots=2)
        await stage.link.join(third, stage.folder / "nodes")
        await until(lambda: NodeCame(third, stage.nodes[-1].at_ms) == stage.nodes[-1])
        stage.engine.number_nodes(grown(stage.engine.topology, [third]))
        where = Placement((Slice(2, 8), Slice(2, 9)), span=0)
        await stage.order(Launch(RUN, where, 0), stage.shell('echo "$TRAINMASTER_DEVICES"'))
        await stage.ended(RUN)
        assert stage.log(RUN) == b"n2:0,n2:1\n"

    perform(tmp_path, act)


def test_what_nodes_cannot_do_is_said_of_each(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        await stage.link.join(node_of("n2"), stage.folder / "nodes")
        await until(lambda: stage.nodes[-1].node.name == "n2")  # type: ignore[union-attr]
        able = stage.engine.abilities
        launcher = stage.link.nodes["n2"].launcher
        assert launcher is not None
        theirs = (await launcher.begin()).abilities
        assert able.node_remarks == tuple(
            (name, each) for name in ("n0", "n1", "n2") for each in theirs.remarks
        )
        assert (able.can_freeze, able.limits_memory) == (theirs.can_freeze, theirs.limits_memory)
        assert able.spans_machines

    perform(tmp_path, act)


def test_a_launch_for_which_the_cluster_has_nothing_left_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_run, "RESERVE_S", 0.0)

    async def act(stage: Cluster) -> None:
        stage.link.taken = {"n1": 3000}
        await stage.order(Launch(RUN, BOTH, 0), stage.shell("touch started"))
        last = await until(lambda: next((r for r in stage.of(RUN) if is_last(r)), None))
        assert isinstance(last, Lost)
        assert last.why == "Other users of the cluster hold GPUs of n1."
        assert not (stage.workdir / "started").exists()

    perform(tmp_path, act)


def test_a_node_that_dies_while_a_gang_comes_up_keeps_nothing_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_run, "RETRY_S", 0.02)

    async def act(stage: Cluster) -> None:
        await stage.link.nodes["n1"].stop()
        await stage.order(Launch(RUN, BOTH, 0), stage.shell("touch started"))
        await asyncio.sleep(0.1)
        await stage.link.die("n1", switch_off)
        last = await until(lambda: next((r for r in stage.of(RUN) if is_last(r)), None))
        assert isinstance(last, Lost)
        assert last.why == "The node n1 is gone."
        await stage.link.come_back("n1")
        second = Run(RUN.job, 2)
        await stage.order(Launch(second, BOTH, 0), stage.shell("true"))
        assert (await stage.ended(second)).code == 0
        await until(lambda: second not in stage.link.held)
        await until(lambda: stage.link.held == {})
        assert not (stage.workdir / "started").exists()

    perform(tmp_path, act)


def test_a_launch_that_waits_for_a_node_that_dies_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_run, "RETRY_S", 0.02)

    async def act(stage: Cluster) -> None:
        stage.link.taken = {"n1": 3000}
        await stage.order(Launch(RUN, BOTH, 0), stage.shell("touch started"))
        await asyncio.sleep(0.5)  # its nodes have said that they see its files
        await stage.link.die("n1", switch_off)
        last = await until(lambda: next((r for r in stage.of(RUN) if is_last(r)), None))
        assert isinstance(last, Lost)
        assert last.why == "The node n1 is gone."
        assert not (stage.workdir / "started").exists()

    perform(tmp_path, act)


# -- files of jobs -------------------------------------------------------------------------------------


def test_a_node_that_does_not_see_the_managers_folder_says_so_until_it_does(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        def remarks() -> list[str]:
            said = stage.engine.abilities.node_remarks
            return [why for name, why in said if name == "n2" and "does not see" in why]

        node = node_of("n2")
        stage.link.nodes["n2"] = there = LoopbackNode(node, stage.folder / "nodes" / "n2")
        there.hidden = (str(stage.folder),)
        await stage.link.come_back("n2")
        await until(lambda: NodeCame(node, stage.nodes[-1].at_ms) == stage.nodes[-1])
        assert remarks() == [
            f"It does not see {stage.folder}, the manager's data folder: jobs run there in copies of their"
            " code, and what they write is brought back."
        ]
        assert not stage.engine.abilities.shares_files
        there.hidden = ()
        await stage.link.restart_launcher("n2")
        await until(lambda: not remarks())
        assert stage.engine.abilities.shares_files

    perform(tmp_path, act)


def test_a_job_whose_data_a_node_does_not_see_is_not_run_there(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        data = stage.folder / "data"
        data.mkdir()
        stage.link.nodes["n1"].hidden = (str(data),)
        spec = replace(stage.shell("touch started"), data=(str(data),))
        await stage.order(Launch(RUN, BOTH, 0), spec)
        last = await until(lambda: next((r for r in stage.of(RUN) if is_last(r)), None))
        assert isinstance(last, Lost)
        assert last.unfit == ("n1",)
        assert last.why == (
            f"The node n1 does not see {data}: put that on storage that all nodes share."
        )
        assert not (stage.workdir / "started").exists()
        second = Run(RUN.job, 2)
        await stage.order(Launch(second, placed(2), 0), spec)
        assert (await stage.ended(second)).code == 0

    perform(tmp_path, act)


def test_a_job_whose_data_is_not_mounted_on_a_node_is_not_run_there(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        data = stage.folder / "data"
        data.mkdir()
        stage.link.nodes["n1"].bare = (str(data),)
        spec = replace(stage.shell("touch started"), data=(str(data),))
        await stage.order(Launch(RUN, BOTH, 0), spec)
        assert (await stage.ended(RUN)).code == 0, "there is nothing in it anywhere"
        (stage.workdir / "started").unlink()
        (data / "train.rec").touch()
        second, third = Run(RUN.job, 2), Run(RUN.job, 3)
        await stage.order(Launch(second, BOTH, 0), spec)
        last = await until(lambda: next((r for r in stage.of(second) if is_last(r)), None))
        assert isinstance(last, Lost)
        assert last.unfit == ("n1",)
        assert last.why == (
            f"On the node n1 there is nothing in {data}, and elsewhere there is: look whether it is"
            " mounted there."
        )
        assert not (stage.workdir / "started").exists()
        await stage.order(Launch(third, placed(2), 0), spec)
        assert (await stage.ended(third)).code == 0

    perform(tmp_path, act)


def test_a_folder_that_nobody_sees_is_the_jobs_own_fault(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        gone = stage.folder / "gone"
        await stage.order(Launch(RUN, BOTH, 0), replace(stage.shell("true"), workdir=str(gone)))
        over = await stage.ended(RUN)
        assert over.code == 126
        assert f"The working directory {gone} does not exist" in over.why

    perform(tmp_path, act)


def test_nothing_is_kept_of_a_run_that_is_forgotten(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        await stage.order(Launch(RUN, BOTH, 0), stage.shell("true"))
        await stage.ended(RUN)
        await stage.engine.forget(RUN)
        assert cast(RayEngine, stage.engine)._over == set()
        assert not stage.engine.folder_of(RUN).exists()

    perform(tmp_path, act)


# -- managers that go and come -------------------------------------------------------------------------


def test_a_manager_that_comes_back_has_the_same_gang(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = stage.shell('echo up; until [ -e go ]; do sleep 0.02; done; [ "$RANK" != 3 ]')
        await stage.order(Launch(RUN, BOTH, 0), spec)
        await stage.heard(RUN, Started)
        await until(lambda: all(stage.log(RUN, rank) for rank in range(4)))
        (seen,) = [n for _, n in stage.reports]
        await stage.engine.close()
        async with stage.another() as again:
            await again.engine.observe({RUN: seen})
            (stage.workdir / "go").touch()
            over = await again.ended(RUN)
            assert (over.code, over.rank) == (1, 3)
            assert [again.log(RUN, rank) for rank in range(4)] == [b"up\n"] * 4
            assert [type(report) for report in again.of(RUN)] == [Ended]

    perform(tmp_path, act)


def test_a_node_whose_disk_is_full_does_not_keep_a_manager_from_starting(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = stage.shell("echo up; until [ -e go ]; do sleep 0.02; done; echo done")
        await stage.order(Launch(RUN, BOTH, 0), spec)
        await stage.heard(RUN, Started)
        await until(lambda: all(stage.log(RUN, rank) for rank in range(4)))
        seen = stage.reports[-1][1]
        await stage.engine.close()
        async with stage.another() as again:
            await until(lambda: len(again.nodes) == 2)
            launcher = again.link.nodes["n1"].launcher
            assert launcher is not None
            launcher.observe = full = Mock(side_effect=OSError(ENOSPC, "No space left"))  # type: ignore[method-assign]
            await again.engine.observe({RUN: seen})
            full.assert_called()
            del launcher.observe  # type: ignore[method-assign]
            (stage.workdir / "go").touch()
            assert (await again.ended(RUN)).code == 0
            assert [again.log(RUN, rank) for rank in range(4)] == [b"up\ndone\n"] * 4

    perform(tmp_path, act)


def test_a_node_that_died_while_the_manager_was_away_loses_its_runs(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        await stage.order(Launch(RUN, BOTH, 0), stage.shell("sleep 600"))
        await stage.heard(RUN, Started)
        (seen,) = [n for _, n in stage.reports]
        await stage.engine.close()
        switch_off(stage.folder / "nodes" / "n1")
        async with stage.another() as again:
            await again.engine.observe({RUN: seen})
            last = await until(lambda: next((r for r in again.of(RUN) if is_last(r)), None))
            assert isinstance(last, Lost)
            assert again.alive(RUN) == []

    perform(tmp_path, act)


def test_the_managers_limits_hold_on_each_node(tmp_path: Path) -> None:
    """A supervisor that does not answer is killed after half a second, and not after a minute."""
    hang = HangLimits(idle_ms=7_000, busy_ms=8_000, start_ms=9_000)

    async def act(stage: Cluster) -> None:
        await stage.order(Launch(RUN, BOTH, 0), stage.shell("sleep 600"))
        await stage.heard(RUN, Started)
        for node in ("n0", "n1"):
            file = runfile.newest(str(stage.folder / "nodes" / node / "runs" / "12" / "1"))
            assert file is not None
            assert file.hang is not None
            assert (file.hang.limits, file.cgroups.pids) == (hang, 77)
        (supervisor,) = supervisors(stage.folder / "nodes" / "n1" / "runs" / "12" / "1")
        os.kill(supervisor, signal.SIGSTOP)
        last = await until(lambda: next((r for r in stage.of(RUN) if is_last(r)), None))
        assert isinstance(last, Lost)

    perform(tmp_path, act, RunLimits(hang, supervisor_silence_s=0.5, most_pids=77))


def test_a_manager_whose_nodes_another_has_taken_gives_no_more_orders(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = stage.shell("sleep 600")
        await stage.order(Launch(RUN, BOTH, 0), spec)
        await stage.heard(RUN, Started)
        launcher = stage.link.nodes["n1"].launcher
        assert launcher is not None
        await launcher.begin()
        await until(
            lambda: "Another manager gives orders to the node n1." in stage.engine.troubles()
        )
        await stage.order(Kill(RUN), spec)
        await until(lambda: not stage.pids_on("n0"))
        assert stage.pids_on("n1")

    perform(tmp_path, act)


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_resize_whose_launches_did_not_arrive_is_ended_by_the_next_manager(
    tmp_path: Path, is_forgotten: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manager ended when it had written down that it launches, and before all nodes had heard of it."""
    fewer = placed(2, first=3)

    async def act(stage: Cluster) -> None:
        spec = stage.shell(
            'echo "$RANK of $WORLD_SIZE"; trap "exit 0" TERM; while :; do sleep 0.02; done'
        )
        await stage.order(Launch(RUN, BOTH, 0), spec)
        await stage.heard(RUN, Started)
        await until(lambda: all(stage.log(RUN, rank) for rank in range(4)))
        seen, call = stage.reports[-1][1], stage.link.call

        async def call_until_lost(node: str, method: str, *words: object) -> object:
            is_launch = method == "execute" and isinstance(words[1], Launch)
            if node == "n1" and (is_launch or (method == "forget" and not is_forgotten)):
                raise Unreachable(node)
            return await call(node, method, *words)

        monkeypatch.setattr(stage.link, "call", call_until_lost)
        await stage.order(Reshape(RUN, fewer), spec)
        await until(lambda: b"0 of 2\n" in stage.log(RUN))
        await until(lambda: stage.has_remains("n1") is not is_forgotten)
        await stage.engine.close()
        async with stage.another() as again:
            await again.engine.observe({RUN: seen})
            await again.order(Reshape(RUN, fewer), spec)
            assert len((await again.heard(RUN, Reshaped)).pids) == 2
            await until(lambda: again.log(RUN, 1).endswith(b"1 of 2\n"))
            assert again.log(RUN).count(b"0 of 2\n") == 1
            await again.order(Halt(RUN), spec)
            assert (await again.ended(RUN)).asked is StopOrder.HALT
            assert [type(report) for report in again.of(RUN)] == [Reshaped, Ended]
            assert again.alive(RUN) == []

    perform(tmp_path, act)


def test_a_resize_that_a_manager_began_is_ended_by_the_next(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = stage.shell(
            "trap 'until [ -e go ]; do sleep 0.02; done; exit 0' TERM;"
            ' echo "$RANK of $WORLD_SIZE"; while :; do sleep 0.02; done'
        )
        await stage.order(Launch(RUN, placed(1), 0), spec)
        await stage.heard(RUN, Started)
        await until(lambda: stage.log(RUN))
        await stage.order(Reshape(RUN, BOTH), spec)
        await stage.engine.close()
        seen = stage.reports[-1][1]
        async with stage.another() as again:
            await again.engine.observe({RUN: seen})
            await again.order(Reshape(RUN, BOTH), spec)
            assert [type(report) for report in again.of(RUN)] == []
            (stage.workdir / "go").touch()
            await again.heard(RUN, Reshaped)
            await until(lambda: b"3 of 4" in again.log(RUN, 3))
            await again.order(Kill(RUN), spec)
            assert (await again.ended(RUN)).asked is StopOrder.KILL
            assert again.alive(RUN) == []

    perform(tmp_path, act)


def test_a_kill_in_the_middle_of_a_resize_ends_the_run(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = stage.shell(
            "trap 'until [ -e go ]; do sleep 0.02; done; exit 0' TERM;"
            " echo up; while :; do sleep 0.02; done"
        )
        await stage.order(Launch(RUN, BOTH, 0), spec)
        await stage.heard(RUN, Started)
        await until(lambda: all(stage.log(RUN, rank) for rank in range(4)))
        await stage.order(Reshape(RUN, placed(1)), spec)
        await stage.order(Kill(RUN), spec)
        (stage.workdir / "go").touch()
        await stage.ended(RUN)
        assert [type(report) for report in stage.of(RUN)] == [Started, Ended]
        assert stage.alive(RUN) == []

    perform(tmp_path, act)


def test_reservations_follow_runs_that_go_on_and_leave_those_that_do_not(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        await stage.order(Launch(RUN, BOTH, 0), stage.shell("sleep 600"))
        await stage.heard(RUN, Started)
        (seen,) = [n for _, n in stage.reports]
        held = dict(stage.link.held)
        await stage.engine.close()
        async with stage.another() as again:
            again.link.held = {Run("99", 1): {"n0": 1000}}
            answer = again.link.reserved

            async def away_once() -> Mapping[Run, Mapping[str, int]]:
                again.link.reserved = answer  # type: ignore[method-assign]
                raise Unreachable

            again.link.reserved = away_once  # type: ignore[method-assign]
            await again.engine.observe({RUN: seen})
            await until(lambda: again.link.held == held)
            await again.order(Kill(RUN), stage.shell("sleep 600"))
            await again.ended(RUN)
            await until(lambda: again.link.held == {})

    perform(tmp_path, act)


def test_a_run_whose_records_are_gone_is_lost_once_no_node_has_it(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        await stage.order(Launch(RUN, BOTH, 0), stage.shell("sleep 600"))
        await stage.heard(RUN, Started)
        await stage.engine.close()
        shutil.rmtree(stage.folder / "runs")
        async with stage.another() as again:
            await again.engine.observe({RUN: 7})
            while not again.of(RUN):
                await asyncio.sleep(0.01)
            assert again.alive(RUN) == []
            ((last, number),) = again.reports
            assert isinstance(last, Lost)
            assert number > 7

    perform(tmp_path, act)
