"""Nodes that join are tested and measured: broken devices take no jobs, and types have their speeds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from tests.fake_cluster import ClusterEngine, FakeCluster, a_node
from tests.unit.daemon.test_cluster_nodes import Manager, led, manager
from trainmaster.daemon import self_tests
from trainmaster.engines.local import probes
from trainmaster.engines.protocol import Probed
from trainmaster.model.engine_reports import ClusterNode
from trainmaster.model.topology import CPU_TYPE, GpuType
from trainmaster.model.units import GIB, NOMINAL
from trainmaster.whatif.replay import replay

V100, CPU = GpuType("V100", 16 * GIB), GpuType(CPU_TYPE, 4 * GIB)
WRONG = b'{"is_tested": true, "is_right": false, "why": "a copy came out wrong"}'


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_tests, "LOOK_S", 0.02)


def performed(scene: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    @wraps(scene)
    def run(tmp_path: Path) -> None:
        asyncio.run(scene(tmp_path))

    return run


def good(mflop_s: int) -> bytes:
    said = {"is_tested": True, "is_right": True, "mflop_s": mflop_s, "copy_mib_s": 9_000.0}
    return json.dumps(said).encode()


def of_gpus(name: str, type_: GpuType | None = None) -> ClusterNode:
    node = a_node(name) if type_ is None else a_node(name, type_=type_)
    return replace(node, uuids=tuple(f"GPU-{name}-{n}" for n in range(node.gpus)))


def speeds(manager: Manager) -> dict[str, float]:
    types = manager.driver.controller.state.topology.speed_by_type
    return {name: speed / NOMINAL for name, speed in types.items()}


def asked(cluster: FakeCluster) -> list[tuple[str, str]]:
    return [(node, words[-1]) for node, *words in cluster.probed]


@performed
async def test_nodes_are_measured_when_they_come_and_types_are_as_fast_as_that(
    tmp_path: Path,
) -> None:
    says = {"n1": good(30_000_000), "n2": good(10_000_000), "n3": good(900_000)}
    cluster = FakeCluster({"n1": a_node("n1")}, says=says)
    async with manager(tmp_path, cluster) as first:
        await first.until(lambda: "n1" in first.driver.controller.state.rates)
        cluster.came(a_node("n2", type_=V100), replace(a_node("n3", 4, CPU), cpus=8_000))
        await first.until(lambda: speeds(first) == {"H100": 1.0, "V100": 0.33, "cpu": 0.03})
        assert sorted(asked(cluster)) == [("n1", "0x8"), ("n2", "0x8"), ("n3", "0x2")]
        run = await first.submit("1", 4)
        await first.until_runs(run)
        spec = cluster.runs[run].spec
        assert spec is not None
        assert spec.speeds == (("n1", NOMINAL), ("n2", 330_000))
        record = first.driver.controller.state.jobs["1"]
        await first.until(lambda: record.speed_ppm == 330_000)
        cluster.ended(run)
    async with manager(tmp_path, cluster) as again:
        assert speeds(again) == {"H100": 1.0, "V100": 0.33, "cpu": 0.03}
        cluster.fell("n2")
        cluster.came(a_node("n2", type_=V100))
        await asyncio.sleep(0.2)
        assert len(cluster.probed) == 3, "once for each node, also after a restart"
        steps = replay([line async for line in again.daemon.record_events()])
        assert all(step.is_same for step in steps)


@performed
async def test_a_stated_speed_wins_and_stays_and_the_nodes_say_where_speeds_come_from(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster({"n1": a_node("n1"), "n2": a_node("n2", type_=V100)})
    cluster.came(a_node("n3", 2, CPU))
    cluster.says = {"n1": good(30_000_000), "n2": good(10_000_000)}
    said: list[str] = []
    stated = (("T4", 100_000), ("V100", 400_000))

    def rows(manager: Manager) -> dict[str, tuple[float, str]]:
        return {row.type: (row.speed, row.speed_source) for row in manager.daemon.queries.nodes()}

    found = {"H100": (1.0, "measured"), "V100": (0.4, "stated"), "cpu": (1.0, "assumed")}
    async with manager(tmp_path, cluster, stated_speeds=stated, say=said.append) as first:
        await first.until(lambda: rows(first) == found)
        assert (
            len([line for line in said if "--speed names T4, and there is no device" in line]) == 1
        )
    async with manager(tmp_path, cluster) as again:
        assert rows(again) == found
    async with manager(tmp_path, cluster, stated_speeds=()) as last:
        await last.until(lambda: rows(last)["V100"] == (0.33, "measured"))


@performed
async def test_a_device_that_a_job_holds_is_not_measured(tmp_path: Path) -> None:
    cluster = FakeCluster({"n1": a_node("n1")})
    async with manager(tmp_path, cluster) as there:
        run = await there.submit("1", 2)
        await there.until_runs(run)
        tried = len(cluster.probed)
        cluster.says = {"n1": good(30_000_000)}
        await asyncio.sleep(0.2)
        assert tried == len(cluster.probed)
        cluster.ended(run)
        await there.until(lambda: "n1" in there.driver.controller.state.rates)


@performed
async def test_gpus_that_are_new_are_tested_and_a_broken_one_is_set_aside(tmp_path: Path) -> None:
    cluster = FakeCluster({"n1": of_gpus("n1"), "n2": a_node("n2", 2, CPU)})
    cluster.says = {"n1": good(30_000_000), "n2": good(900_000), "n3": WRONG}
    async with manager(tmp_path, cluster) as there:
        await there.until(lambda: speeds(there) == {"H100": 1.0, "cpu": 0.03})
        cluster.came(of_gpus("n3"))
        await there.until(lambda: len(there.driver.controller.state.gpus_aside) == 2)
        whys = {each.why for each in there.driver.controller.state.gpus_aside.values()}
        assert whys == {"Its self-test failed: a copy came out wrong."}
        devices = [("n1", "GPU-n1-0"), ("n1", "GPU-n1-1"), ("n2", "0x8")]
        assert sorted(asked(cluster)[:3]) == devices, "of CPU slots one is enough"
        cluster.says["n1"] = WRONG
        await there.control.test("n1")
        assert len(there.driver.controller.state.gpus_aside) == 2, "no good GPU would be left"


@performed
async def test_with_self_tests_on_all_devices_of_a_node_that_joins_are_tested(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster(says={"n1": good(900_000)})
    async with manager(tmp_path, cluster, tests_devices=True) as there:
        cluster.came(a_node("n1", 3, CPU))
        await there.until(lambda: "n1" in there.driver.controller.state.rates)
        assert [each for _, each in asked(cluster)] == ["0x8", "1x8", "2x8"]


@performed
async def test_a_node_that_cannot_be_measured_is_tried_a_few_times_each_time_it_comes(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster({"n1": a_node("n1")})
    async with manager(tmp_path, cluster) as there:
        await there.until(lambda: len(cluster.probed) == self_tests.MOST_TRIES)
        await asyncio.sleep(0.1)
        assert len(cluster.probed) == self_tests.MOST_TRIES
        cluster.fell("n1")
        await there.until_nodes(n1="away")
        await asyncio.sleep(0.1)
        cluster.came(a_node("n1"))
        await there.until(lambda: len(cluster.probed) == 2 * self_tests.MOST_TRIES)


@performed
async def test_the_real_program_measures_a_node_of_slots(tmp_path: Path) -> None:
    class RealEngine(ClusterEngine):
        async def probe(self, node: str, words: tuple[str, ...], limit_s: float) -> Probed:  # type: ignore[override]
            return await probes.probe(words, limit_s)

    node = replace(a_node("n1", 1, CPU), cpus=1_000)
    async with led(tmp_path, RealEngine(FakeCluster({"n1": node}))) as there:
        await there.until(lambda: "n1" in there.driver.controller.state.rates)
        assert there.driver.controller.state.rates["n1"].rate > 100
