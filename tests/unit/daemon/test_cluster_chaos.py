"""Nodes join, fall and return at random, and managers are killed: no job is lost, and none runs twice."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from tests.fake_cluster import FakeCluster, a_node
from tests.unit.daemon.test_cluster_nodes import Manager, manager, perform
from trainmaster.config.limits import Limits
from trainmaster.core.invariants import check
from trainmaster.daemon.request_errors import Conflict
from trainmaster.model.job import Run
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.store.rows import JobFilter

JOBS = 25
STEPS = 120
PATIENT = Limits(retry_delay=1, max_retry_delay=10, outage_delay=1, losses=1_000)
"""So that no job waits long, or fails because its node died once too often."""


@dataclass
class Chaos:
    """What the world does next; the same seed does the same, as far as the manager is as fast."""

    cluster: FakeCluster
    chance: Random
    unburied: list[str] = field(default_factory=list)
    submitted: int = 0
    joined: int = 4

    async def act(self, tm: Manager) -> None:
        kinds = (
            *[self.submit] * 5,
            *[self.end_a_run] * 4,
            *(self.fall, self.fall, self.bury, self.bury, self.come_back, self.come_back),
            *(self.join, self.drain, self.undrain, self.take, self.forget),
        )
        await self.chance.choice(kinds)(tm)

    async def submit(self, tm: Manager) -> None:
        if self.submitted < JOBS:
            self.submitted += 1
            low = self.chance.choice((1, 1, 2, 3))
            most = low + self.chance.choice((0, 0, 2))
            await tm.submit(str(self.submitted), low, most)

    async def end_a_run(self, tm: Manager) -> None:
        running = [run for run in self.live() if self.is_reached(run)]
        if running:
            run = self.chance.choice(running)
            self.cluster.ended(run, self.chance.choice((0, 0, 1)))

    def live(self) -> list[Run]:
        runs = self.cluster.runs.items()
        return [run for run, each in runs if not (each.is_over or each.is_frozen)]

    def is_reached(self, run: Run) -> bool:
        names = {node for node, _ in self.cluster.runs[run].devices}
        return names <= self.cluster.nodes.keys()

    async def fall(self, tm: Manager) -> None:
        if len(self.cluster.nodes) > 1:
            name = self.chance.choice(sorted(self.cluster.nodes))
            self.cluster.fell(name)
            self.unburied.append(name)

    async def bury(self, tm: Manager) -> None:
        if self.unburied:
            self.cluster.buried(self.unburied.pop(0))

    async def come_back(self, tm: Manager) -> None:
        """Before its fence: its runs went on; or after that, perhaps with other devices."""
        gone = [f"n{i}" for i in range(self.joined) if f"n{i}" not in self.cluster.nodes]
        if gone:
            name = self.chance.choice(gone)
            changes = name not in self.unburied and self.chance.random() < 0.2
            self.unburied = [each for each in self.unburied if each != name]
            self.cluster.came(a_node(name, 3 if changes else 2))

    async def join(self, tm: Manager) -> None:
        if self.joined < 8:
            self.cluster.came(a_node(f"n{self.joined}"))
            self.joined += 1

    async def drain(self, tm: Manager) -> None:
        await tm.control.drain(self.any_node(tm))

    async def undrain(self, tm: Manager) -> None:
        await tm.control.undrain(self.any_node(tm))

    async def take(self, tm: Manager) -> None:
        name = self.chance.choice(sorted(self.cluster.nodes))
        self.cluster.taken(name, self.chance.randint(0, 1))

    async def forget(self, tm: Manager) -> None:
        with suppress(Conflict):  # it is there, or held
            await tm.control.forget(self.any_node(tm))

    def any_node(self, tm: Manager) -> str:
        return self.chance.choice(sorted(tm.nodes()))

    async def heal(self, tm: Manager) -> None:
        for name in self.unburied:
            self.cluster.buried(name)
        self.unburied = []
        gone = [f"n{i}" for i in range(self.joined) if f"n{i}" not in self.cluster.nodes]
        self.cluster.came(*map(a_node, gone))
        for name in self.cluster.nodes:
            self.cluster.taken(name, 0)
        for name in tm.nodes():
            await tm.control.undrain(name)


def look(tm: Manager, cluster: FakeCluster) -> None:
    """What holds at every moment, whatever has happened."""
    assert not cluster.used_twice()
    on = [run.job for run, each in cluster.runs.items() if not each.is_over]
    assert len(on) == len(set(on)), "a job runs twice"
    check(tm.driver.controller.state)


@pytest.mark.parametrize("policy", ["tiresias-l", "gandiva", "max-min", "trainmaster"])
@pytest.mark.parametrize("can_freeze", [False, True])
def test_every_job_ends_and_none_runs_twice(tmp_path: Path, policy: str, can_freeze: bool) -> None:
    async def scene() -> None:
        chance = Random(f"{policy}/{can_freeze}")
        cluster = FakeCluster({f"n{i}": a_node(f"n{i}") for i in range(4)}, can_freeze=can_freeze)
        chaos, left = Chaos(cluster, chance), STEPS
        while left:
            length = min(left, chance.randint(10, 40))
            left -= length
            how = {"is_killed": chance.random() < 0.7, "limits": PATIENT}
            async with manager(tmp_path, cluster, policy=PolicySpec(policy), **how) as tm:
                for _ in range(length):
                    await chaos.act(tm)
                    await asyncio.sleep(chance.choice((0, 0, 0.01, 0.05)))
                    look(tm, cluster)
        async with manager(tmp_path, cluster, limits=PATIENT) as tm:
            while chaos.submitted < JOBS:
                await chaos.submit(tm)
            await chaos.heal(tm)
            async with asyncio.timeout(60):
                while tm.driver.jobs:
                    for run in chaos.live():
                        cluster.ended(run)
                    await asyncio.sleep(0.02)
                    look(tm, cluster)
            rows = tm.driver.store.jobs(JobFilter(limit=100))
            assert sorted(int(row.id) for row in rows) == list(range(1, JOBS + 1))
            assert {row.state for row in rows} <= {"succeeded", "failed"}
            assert not chaos.live()

    perform(scene)
