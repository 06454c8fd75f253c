"""The manager with the engine of a cluster, over real processes: nodes join, die and return."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import a_job
from tests.contract.test_engine_of_machines import switch_off
from tests.live.loopback import LoopbackLink, node_of
from tests.live.stage import nothing_left
from tests.unit.daemon.test_cluster_nodes import Manager, Scene, led
from trainmaster.daemon.inbox import Request
from trainmaster.daemon.live_job import LiveJob, StoredSubmission
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.engines.ray.engine import RayEngine
from trainmaster.model import events as e
from trainmaster.model.engine_reports import ClusterNode
from trainmaster.model.job import Run, gpus
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.topology import CPU_TYPE, GpuType
from trainmaster.model.units import GIB

pytestmark = pytest.mark.live


class Machines:
    """Nodes whose launchers are in this process, and a folder for each."""

    def __init__(self, folder: Path, *nodes: ClusterNode) -> None:
        self.folder = folder
        self.link = LoopbackLink(folder / "nodes", nodes)

    async def join(self, node: ClusterNode) -> None:
        await self.link.join(node, self.folder / "nodes")

    async def die(self, name: str) -> None:
        await self.link.die(name, switch_off)

    def held(self) -> dict[Run, set[str]]:
        """What Ray would show as reserved."""
        return {run: set(held) for run, held in self.link.held.items()}


@asynccontextmanager
async def manager(machines: Machines) -> AsyncIterator[Manager]:
    nodes = [each.node for each in machines.link.nodes.values()]
    engine = RayEngine(machines.folder, machines.link, nodes)
    async with led(machines.folder, engine) as tm:
        yield tm


async def submit(tm: Manager, id: str, count: int, script: str, kind: str | None = None) -> None:
    job = a_job(id, replace(gpus(count), gpu_type=kind))
    folder = tm.daemon.folder
    recipe = LaunchSpec(
        ("sh", "-c", script), str(folder), str(folder / "checkpoints" / id), uuid=f"uuid of {id}"
    )
    live = LiveJob(job, id, StoredSubmission(recipe, job), {})
    fact = LoggedEvent(e.JobSubmitted(job))
    await tm.driver.ask(Request(events=[fact], new_jobs=[live]))


async def until_state(tm: Manager, id: str, state: str) -> None:
    async def is_so() -> bool:
        return (await tm.daemon.queries.job(id)).row.state == state

    async with asyncio.timeout(60):
        while not await is_so():
            await asyncio.sleep(0.05)


def perform(folder: Path, scene: Scene) -> None:
    with nothing_left(folder):
        asyncio.run(scene())


def test_a_gang_goes_on_elsewhere_when_a_node_of_it_dies(tmp_path: Path) -> None:
    async def scene() -> None:
        machines = Machines(tmp_path, node_of("n1", 2), node_of("n2", 2))
        async with manager(machines) as tm:
            done = tmp_path / "done"
            await submit(tm, "1", 4, f"while [ ! -e {done} ]; do sleep 0.1; done; echo $NODE_RANK")
            await until_state(tm, "1", "running")
            assert machines.held() == {Run("1", 1): {"n1", "n2"}}
            await machines.die("n2")
            await tm.until_nodes(n1="up", n2="away")
            await until_state(tm, "1", "pending")
            await machines.join(node_of("n3", 4))
            await until_state(tm, "1", "running")
            assert machines.held() == {Run("1", 2): {"n3"}}
            done.touch()
            await until_state(tm, "1", "succeeded")
            await tm.until(lambda: not machines.held())

    perform(tmp_path, scene)


def test_runs_go_on_without_the_manager_and_a_lost_node_is_known_afterwards(tmp_path: Path) -> None:
    async def scene() -> None:
        machines = Machines(tmp_path, node_of("n1", 2), node_of("n2", 2))
        done = tmp_path / "done"
        script = f"while [ ! -e {done} ]; do sleep 0.1; done"
        async with manager(machines) as tm:
            await submit(tm, "1", 2, script)
            await submit(tm, "2", 2, script)
            await until_state(tm, "1", "running")
            await until_state(tm, "2", "running")
            await tm.control.drain("n2")
        (lost,) = (run for run, nodes in machines.held().items() if nodes == {"n2"})
        (kept,) = (run for run, nodes in machines.held().items() if nodes == {"n1"})
        away = machines.link.nodes.pop("n2")
        switch_off(away.folder)
        async with manager(machines) as tm:
            await tm.until_nodes(n1="up", n2="away")
            await until_state(tm, kept.job, "running")
            await machines.join(node_of("n2", 2))
            await tm.until_nodes(n1="up", n2="draining")
            await until_state(tm, lost.job, "pending")
            assert list(machines.held()) == [kept]
            await tm.control.undrain("n2")
            await until_state(tm, lost.job, "running")
            assert machines.held()[Run(lost.job, 2)] == {"n2"}
            done.touch()
            await until_state(tm, "1", "succeeded")
            await until_state(tm, "2", "succeeded")

    perform(tmp_path, scene)


def test_cpu_slots_take_only_jobs_that_allow_it_and_gpus_come_first(tmp_path: Path) -> None:
    async def scene() -> None:
        slots = replace(node_of("n2", 2), type=GpuType(CPU_TYPE, GIB))
        machines = Machines(tmp_path, replace(node_of("n1", 1), type=GpuType("H100", GIB)), slots)
        done = tmp_path / "done"
        script = f"while [ ! -e {done} ]; do sleep 0.1; done"
        async with manager(machines) as tm:
            await submit(tm, "1", 1, script, "cpu|H100")
            await until_state(tm, "1", "running")
            await submit(tm, "2", 1, script)
            await submit(tm, "3", 1, script, "cpu|H100")
            await submit(tm, "4", 1, script, "cpu")
            await until_state(tm, "3", "running")
            await until_state(tm, "4", "running")
            on = {id: (await tm.daemon.queries.job(id)).nodes for id in "1234"}
            assert on == {"1": ("n1",), "2": (), "3": ("n2",), "4": ("n2",)}
            done.touch()
            for id in "1234":
                await until_state(tm, id, "succeeded")

    perform(tmp_path, scene)


def test_a_gang_is_on_one_type_where_one_has_enough(tmp_path: Path) -> None:
    async def scene() -> None:
        kinds = {"n1": "A100", "n2": "H100", "n3": "A100"}
        nodes = (replace(node_of(n, 2), type=GpuType(kind, GIB)) for n, kind in kinds.items())
        machines = Machines(tmp_path, *nodes)
        async with manager(machines) as tm:
            await submit(tm, "1", 4, "sleep 60")
            await until_state(tm, "1", "running")
            assert set((await tm.daemon.queries.job("1")).nodes) == {"n1", "n3"}

    perform(tmp_path, scene)
