"""A manager of a cluster whose nodes join, fall, return, are drained, forgotten, and shared with others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from tests.builders import a_job
from tests.fake_cluster import ClusterEngine, FakeCluster, a_node
from trainmaster.api.serializers import job_row
from trainmaster.core.invariants import check
from trainmaster.daemon.cluster_control import ClusterControl
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.inbox import Request
from trainmaster.daemon.live_job import Hold, LiveJob, StoredSubmission
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.daemon.request_errors import BadStart, Conflict, NotFound
from trainmaster.daemon.service_api import RELEASED_FIRST, Forecast
from trainmaster.engines.protocol import Engine
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.engine_reports import HeedsStops, NodeFell
from trainmaster.model.job import Run, gpus
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.topology import CPU_TYPE, GpuType
from trainmaster.model.units import GIB
from trainmaster.store.open import open_store
from trainmaster.text.formatting import utc_time
from trainmaster.text.messages import story_sentence
from trainmaster.whatif.replay import replay

PATIENCE_S = 20.0


class Manager:
    """A manager that leads, and what its users see."""

    def __init__(self, daemon: Daemon, cluster: FakeCluster) -> None:
        self.daemon, self.cluster = daemon, cluster

    @property
    def driver(self) -> Driver:
        return self.daemon.driver

    @property
    def control(self) -> ClusterControl:
        return self.daemon.cluster_control

    def nodes(self) -> dict[str, str]:
        return {row.name: row.state for row in self.daemon.queries.nodes()}

    def free(self) -> int:
        return self.driver.controller.state.occupancy.total_free()

    async def submit(self, id: str, count: int = 1, most: int | None = None) -> Run:
        job = a_job(id, gpus(count, maximum=most), retries=99)
        recipe = LaunchSpec(("true",), "/", "", uuid=f"uuid of {id}")
        live = LiveJob(job, id, StoredSubmission(recipe, job), {})
        fact = LoggedEvent(e.JobSubmitted(job))
        await self.driver.ask(Request(events=[fact], new_jobs=[live]))
        return Run(id, 1)

    async def until(self, holds: Callable[[], object], what: str = "") -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await asyncio.sleep(0.01)
        check(self.driver.controller.state)

    async def until_nodes(self, **states: str) -> None:
        await self.until(lambda: self.nodes() == states)

    async def until_runs(self, *runs: Run) -> None:
        def are_up() -> bool:
            live = {run for run, each in self.cluster.runs.items() if not each.is_over}
            return live == set(runs)

        await self.until(are_up)


def manager(folder: Path, cluster: FakeCluster, **how: Any) -> AbstractAsyncContextManager[Manager]:
    return led(folder, ClusterEngine(cluster), cluster, **how)


@asynccontextmanager
async def led(
    folder: Path,
    engine: Engine,
    cluster: FakeCluster | None = None,
    *,
    is_killed: bool = False,
    **how: Any,
) -> AsyncIterator[Manager]:
    """Leads until the end of the block; runs stay. One that is killed keeps no last snapshot."""
    store = open_store(f"sqlite:///{folder}/trainmaster.db")
    daemon = Daemon(store, engine, folder, **how)
    task = asyncio.create_task(daemon.run())
    active = asyncio.create_task(daemon.is_active.wait())
    await asyncio.wait([task, active], return_when=asyncio.FIRST_COMPLETED)
    try:
        if task.done():
            await task
        yield Manager(daemon, cluster or FakeCluster())
    finally:
        if is_killed:
            daemon._keep_snapshot = AsyncMock()  # type: ignore[method-assign]
        active.cancel()
        task.cancel()
        await asyncio.gather(task, active, return_exceptions=True)
        store.close()


Scene = Callable[[], Coroutine[Any, Any, None]]


def perform(scene: Scene) -> None:
    asyncio.run(scene())


def cluster_of(*names: str) -> FakeCluster:
    return FakeCluster({name: a_node(name) for name in names})


def test_a_node_that_joins_takes_the_jobs_that_wait(tmp_path: Path) -> None:
    async def scene() -> None:
        cluster = cluster_of("n1")
        async with manager(tmp_path, cluster) as tm:
            first, second = await tm.submit("1", 2), await tm.submit("2", 2)
            await tm.until_runs(first)
            cluster.came(a_node("n2", 4))
            await tm.until_runs(first, second)
            assert (cluster.on("n1"), cluster.on("n2")) == ([first], [second])
            assert tm.nodes() == {"n1": "up", "n2": "up"}
            assert tm.free() == 2

    perform(scene)


def test_a_cluster_may_have_no_node_at_first(tmp_path: Path) -> None:
    async def scene() -> None:
        cluster = FakeCluster()
        async with manager(tmp_path, cluster) as tm:
            assert tm.nodes() == {}
            run = await tm.submit("1")
            cluster.came(a_node("n1"))
            await tm.until_runs(run)

    perform(scene)


def test_what_a_dead_node_had_starts_again_elsewhere_once_nothing_of_it_is_left(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        cluster = cluster_of("n1", "n2")
        async with manager(tmp_path, cluster) as tm:
            first, second = await tm.submit("1", 2), await tm.submit("2", 2)
            await tm.until_runs(first, second)
            cluster.fell("n1", "Its raylet ended.")
            await tm.until_nodes(n1="away", n2="up")
            assert tm.daemon.queries.nodes()[0].remarks[0] == "Its raylet ended."
            (note,) = tm.daemon.health().notes
            assert note == (
                "Node n1 is away. Its raylet ended. `trainmaster node forget n1` removes it if it does"
                " not come back."
            )
            cluster.ended(second)
            await tm.until(lambda: tm.free() == 2)
            await tm.until_runs(first)
            (lost,) = cluster.on("n1")
            cluster.buried("n1")
            again = Run(lost.job, 2)
            await tm.until_runs(again)
            assert cluster.on("n2") == [again]
            assert tm.driver.jobs[lost.job].record is not None
            assert tm.driver.jobs[lost.job].record.failures == 0

    perform(scene)


def test_a_gang_over_a_dead_node_is_ended_and_placed_again(tmp_path: Path) -> None:
    async def scene() -> None:
        cluster = cluster_of("n1", "n2", "n3")
        async with manager(tmp_path, cluster) as tm:
            run = await tm.submit("1", 4)
            await tm.until_runs(run)
            fallen = cluster.runs[run].devices[0][0]
            cluster.fell(fallen)
            cluster.buried(fallen)
            await tm.until_runs(Run("1", 2))
            assert not cluster.on(fallen)

    perform(scene)


def test_a_node_that_returns_is_used_again_and_stays_drained(tmp_path: Path) -> None:
    async def scene() -> None:
        cluster = cluster_of("n1", "n2")
        async with manager(tmp_path, cluster) as tm:
            await tm.control.drain("n1")
            cluster.fell("n1")
            cluster.fell("n2")
            await tm.until_nodes(n1="away", n2="away")
            cluster.came(a_node("n1"), a_node("n2"))
            await tm.until_nodes(n1="draining", n2="up")
            run = await tm.submit("1", 2)
            await tm.until_runs(run)
            assert cluster.on("n2") == [run]
            await tm.control.undrain("n1")
            assert tm.free() == 2

    perform(scene)


def test_what_is_moved_off_a_drained_node_is_there_until_it_has_left(tmp_path: Path) -> None:
    async def scene() -> None:
        cluster = cluster_of("n1", "n2")
        async with manager(tmp_path, cluster) as tm:
            run = await tm.submit("1", 2)
            await tm.until_runs(run)
            (at,) = {node for node, _ in cluster.runs[run].devices}
            cluster.report(run, HeedsStops(run, 0))
            await tm.until(lambda: not tm.driver.controller.state.jobs["1"].cannot_save)
            halts: list[a.Order] = []
            carry_out, cluster.carry_out = cluster.carry_out, lambda order, _: halts.append(order)  # type: ignore[method-assign]
            await tm.control.drain(at)
            await tm.until(lambda: halts)
            row = next(row for row in tm.daemon.queries.nodes() if row.name == at)
            assert (row.leaving, [each.jobs for each in row.devices]) == (["1"], [["1"], ["1"]])
            rows = await tm.daemon.queries.story("1")
            said = [story_sentence(row.what, json.loads(row.detail_json)) for row in rows]
            assert said[-1].startswith("Stopping to move to n")
            assert said[-1].endswith(
                f", because it ran on {at}, which takes nothing more (drained)"
            )
            carry_out(halts[0], cluster.runs[run])
            await tm.until_runs(Run("1", 2))
            row = next(row for row in tm.daemon.queries.nodes() if row.name == at)
            assert (row.leaving, [each.jobs for each in row.devices]) == ([], [[], []])

    perform(scene)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_manager_comes_back_while_nodes_are_away(tmp_path: Path, is_killed: bool) -> None:
    async def scene() -> None:
        cluster = cluster_of("n1", "n2")
        async with manager(tmp_path, cluster, is_killed=is_killed) as tm:
            cluster.came(a_node("n3"))
            first, second = await tm.submit("1", 2), await tm.submit("2", 2)
            await tm.until_runs(first, second)
            await tm.control.drain("n3")
        cluster.fell("n1")
        cluster.came(a_node("n0", 4))
        async with manager(tmp_path, cluster) as tm:
            await tm.until_nodes(n1="away", n2="up", n3="draining", n0="up")
            topology = tm.driver.controller.state.topology
            assert [node.name for node in topology.nodes] == ["n1", "n2", "n3", "n0"]
            rows = tm.daemon.queries.nodes()
            assert [row.name for row in rows] == ["n0", "n1", "n2", "n3"]
            assert rows[1].remarks[0].startswith("It has not been there")
            cluster.came(a_node("n1"))
            await tm.until_nodes(n1="up", n2="up", n3="draining", n0="up")
            assert {record.id for record in tm.driver.controller.state.jobs.values()} == {"1", "2"}
            cluster.ended(first)
            cluster.ended(second)
            await tm.until(lambda: tm.free() == 8)

    perform(scene)


def test_a_job_whose_node_died_while_the_manager_was_away_starts_again(tmp_path: Path) -> None:
    async def scene() -> None:
        cluster = cluster_of("n1")
        async with manager(tmp_path, cluster) as tm:
            run = await tm.submit("1", 2)
            await tm.until_runs(run)
        cluster.fell("n1")
        cluster.buried("n1")
        cluster.came(a_node("n2"))
        async with manager(tmp_path, cluster) as tm:
            await tm.until_runs(Run("1", 2))
            assert cluster.on("n2") == [Run("1", 2)]

    perform(scene)


def test_a_node_under_another_name_is_a_new_one_and_the_old_can_be_forgotten(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        cluster = cluster_of("n1")
        async with manager(tmp_path, cluster) as tm:
            run = await tm.submit("1", 2)
            await tm.until_runs(run)
            with pytest.raises(Conflict, match="node n1 is there"):
                await tm.control.forget("n1")
            cluster.fell("n1")
            cluster.came(a_node("n9"))
            await tm.until_nodes(n1="away", n9="up")
            with pytest.raises(Conflict, match="may still have runs of job 1"):
                await tm.control.forget("n1")
            cluster.buried("n1")
            await tm.until_runs(Run("1", 2))
            await tm.control.forget("n1")
            assert tm.nodes() == {"n9": "up"}
            with pytest.raises(NotFound, match="there is no node n1"):
                await tm.control.forget("n1")
        async with manager(tmp_path, cluster) as tm:
            await tm.until_nodes(n9="up")
            cluster.came(a_node("n1"))
            await tm.until_nodes(n9="up", n1="up")
            assert tm.free() == 2

    perform(scene)


def test_a_node_with_other_devices_waits_for_those_who_had_the_old_ones(tmp_path: Path) -> None:
    async def scene() -> None:
        cluster = cluster_of("n1")
        async with manager(tmp_path, cluster) as tm:
            run = await tm.submit("1", 2)
            await tm.until_runs(run)
            await tm.control.drain("n1")
            cluster.fell("n1")
            cluster.came(a_node("n1", 8))
            await tm.until_nodes(n1="away")
            remark = tm.daemon.queries.nodes()[0].remarks[0]
            assert remark.startswith("It is back with other devices: they are used when job 1 has")
            cluster.buried("n1")
            await tm.until_nodes(n1="draining")
            assert len(tm.daemon.queries.nodes()[0].devices) == 8
            await tm.control.undrain("n1")
            await tm.until_runs(Run("1", 2))
            assert tm.free() == 6

    perform(scene)


@pytest.mark.parametrize("others", [1, 2])
def test_devices_that_others_hold_are_not_planned_on(tmp_path: Path, others: int) -> None:
    async def scene() -> None:
        cluster = FakeCluster({"n1": a_node("n1", 4)})
        async with manager(tmp_path, cluster) as tm:
            ours = await tm.submit("1", 2)
            await tm.until_runs(ours)
            cluster.taken("n1", others)
            await tm.until(lambda: tm.free() == 2 - others)
            cluster.ended(ours)
            await tm.until(lambda: tm.free() == 4 - others)
            cluster.taken("n1", 0)
            await tm.until(lambda: tm.free() == 4)
            cluster.taken("n1", others)
            await tm.until(lambda: tm.free() == 4 - others)
        async with manager(tmp_path, cluster) as tm:  # others have left meanwhile
            await tm.until(lambda: tm.free() == 4)

    perform(scene)


def test_a_device_that_others_hold_cannot_be_unblocked(tmp_path: Path) -> None:
    async def scene() -> None:
        cluster = FakeCluster({"n1": a_node("n1", 2)})
        async with manager(tmp_path, cluster) as tm:
            cluster.taken("n1", 1)
            await tm.until(lambda: tm.free() == 1)
            with pytest.raises(Conflict, match="other users of the cluster hold n1:1: it is used"):
                await tm.control.unblock("n1:1")
            assert not tm.daemon.health().notes
            await tm.control.block("n1")
            await tm.control.unblock("n1")
            assert tm.free() == 1
            (row,) = tm.daemon.queries.nodes()
            assert [device.set_aside is None for device in row.devices] == [True, False]

    perform(scene)


def test_a_job_that_waits_says_which_nodes_are_away(tmp_path: Path) -> None:
    async def scene() -> None:
        cluster = cluster_of("n1", "n2")
        async with manager(tmp_path, cluster) as tm:
            cluster.fell("n2")
            await tm.until_nodes(n1="up", n2="away")
            cluster.taken("n1", 1)
            await tm.submit("1", 4)
            remarks = (await tm.daemon.queries.job("1")).remarks
            assert "n2 is away, so nothing is started there." in remarks
            assert "Other users of the cluster hold n1:1." in remarks

    perform(scene)


def test_what_one_node_cannot_do_is_said_of_that_node(tmp_path: Path) -> None:
    async def scene() -> None:
        cluster = cluster_of("n1", "n2")
        cluster.remarks = (("n2", "Memory is not limited."),)
        async with manager(tmp_path, cluster) as tm:
            remarks = {row.name: row.remarks for row in tm.daemon.queries.nodes()}
            assert remarks == {"n1": [], "n2": ["Memory is not limited."]}

    perform(scene)


def test_gpus_of_other_machines_are_not_read(tmp_path: Path) -> None:
    async def scene() -> None:
        cluster = FakeCluster({"n1": replace(a_node("n1"), uuids=("GPU-a", "GPU-b"))})
        async with manager(tmp_path, cluster) as tm:
            run = await tm.submit("1")
            await tm.until_runs(run)
            (row,) = tm.daemon.queries.nodes()
            (first, _) = (device.gpu for device in row.devices)
            assert first is not None
            assert first.trouble == "the manager does not read the GPUs of other machines"
            assert not tm.daemon.health().notes
            cluster.came(a_node("n2", 2, GpuType(CPU_TYPE, GIB)))
            await tm.until_nodes(n1="up", n2="up")
            assert (await tm.daemon.queries.job("1")).gpu_use == ()

    perform(scene)


class OtherEngine(ClusterEngine):
    name = "other"


def test_a_start_with_another_engine_is_refused_while_runs_are_on_the_first(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        cluster, other = cluster_of("n1"), cluster_of("m1", "m2")
        async with manager(tmp_path, cluster) as tm:
            run = await tm.submit("1", 2)
            await tm.until_runs(run)
        with pytest.raises(BadStart, match="are on the fake engine, which this start does not"):
            async with led(tmp_path, OtherEngine(other), other):
                pass
        async with manager(tmp_path, cluster) as tm:
            cluster.ended(run)
            await tm.until(lambda: not tm.driver.jobs)
        async with led(tmp_path, OtherEngine(other), other) as tm:
            await tm.until_nodes(m1="up", m2="up")
            again = await tm.submit("2", 4)
            await tm.until_runs(again)

    perform(scene)


def test_a_node_that_falls_and_comes_at_once_is_there(tmp_path: Path) -> None:
    async def scene() -> None:
        cluster = cluster_of("n1")
        async with manager(tmp_path, cluster) as tm:
            cluster.fell("n1")
            cluster.came(a_node("n1"))
            cluster.came(a_node("n2"))
            cluster.fell("n2")
            cluster.fell("n3")
            run = await tm.submit("1", 2)
            await tm.until_runs(run)
            assert tm.nodes() == {"n1": "up"}

    perform(scene)


def test_a_restart_knows_the_orders_by_numbers_that_have_not_changed(tmp_path: Path) -> None:
    """Nodes join in another order than their names, and the manager is stopped in between."""

    async def scene() -> None:
        cluster, runs = FakeCluster(), list[Run]()
        for name in ("n3", "n1", "n2"):
            cluster.came(a_node(name))
            async with manager(tmp_path, cluster) as tm:
                runs.append(await tm.submit(name, 2))
                await tm.until_runs(*runs)
                assert not cluster.used_twice()
        async with manager(tmp_path, cluster) as tm:
            names = [node.name for node in tm.driver.controller.state.topology.nodes]
            assert names == ["n3", "n1", "n2"]
            assert [cluster.on(name) for name in names] == [[run] for run in runs]

    perform(scene)


def test_the_log_of_a_cluster_that_grew_gives_the_same_orders_again(tmp_path: Path) -> None:
    async def scene() -> None:
        cluster = cluster_of("n1")
        async with manager(tmp_path, cluster) as tm:
            cluster.came(a_node("n2"))
            run = await tm.submit("1", 4)
            await tm.until_runs(run)
            cluster.fell("n2")
            cluster.buried("n2")
            cluster.came(a_node("n3", 4))
            await tm.until_runs(Run("1", 2))
            await tm.control.forget("n2")
            lines = [line async for line in tm.daemon.record_events()]
            steps = list(replay(lines))
            assert any("NodesAdded" in line for line in lines)
            assert all(step.is_same for step in steps)

    perform(scene)


def test_a_run_on_a_node_that_is_away_says_since_and_until_when(tmp_path: Path) -> None:
    async def scene() -> None:
        cluster = cluster_of("n1", "n2")
        async with manager(tmp_path, cluster) as tm:
            run = await tm.submit("1", 4)
            await tm.until_runs(run)
            assert cluster.engine is not None
            since, gone = 1_795_122_065_000, 1_795_122_130_000
            cluster.engine.tell_node(NodeFell("n2", since, "It does not answer.", gone))
            await tm.until_nodes(n1="up", n2="away")
            said = (
                f"Node n2 is away since {utc_time(since)}: what runs there counts as lost at"
                f" {utc_time(gone)}, unless it is back before."
            )
            assert said in (await tm.daemon.queries.job("1")).remarks
            cluster.came(a_node("n2"))
            await tm.until_nodes(n1="up", n2="up")
            assert said not in (await tm.daemon.queries.job("1")).remarks
            await tm.control.drain("n2")
            remarks = (await tm.daemon.queries.job("1")).remarks
            assert any(each.startswith("n2 is drained: it is moved where") for each in remarks)

    perform(scene)


def test_an_elastic_job_says_its_size_its_range_and_who_decides(tmp_path: Path) -> None:
    async def scene() -> None:
        async with manager(tmp_path, FakeCluster({"n1": a_node("n1", 4)})) as tm:
            run = await tm.submit("1", 1, most=4)
            await tm.until_runs(run)
            status = await tm.daemon.queries.job("1")
            has = len(tm.cluster.runs[run].devices)
            row = job_row(status, tm.daemon.queries.now_ms())
            assert row.size == f"{has} (1-4)"
            said = f"It may have 1 to 4 GPUs and has {has} now: the policy trainmaster decides how many."
            assert said in status.remarks

    perform(scene)


def test_a_job_that_waits_for_others_need_not_be_released(tmp_path: Path) -> None:
    async def scene() -> None:
        async with manager(tmp_path, cluster_of("n1")) as tm:
            await tm.submit("1")
            queries, live = tm.daemon.queries, tm.driver.jobs["1"]
            queries._forecaster = lambda *_: Forecast(None, RELEASED_FIRST)
            for holds, basis in (
                ({Hold.PRERUN}, "it starts when the pre-run of the same program is over."),
                ({Hold.PRERUN, Hold.OWNER}, RELEASED_FIRST),
            ):
                live.holds = holds
                assert (await queries.forecast("1")).basis == basis
            live.holds = set()

    perform(scene)
