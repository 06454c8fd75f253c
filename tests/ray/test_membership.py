"""Which nodes of a cluster have a launcher, with a cluster that is only told of."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from trainmaster.engines.ray import membership
from trainmaster.engines.ray.gateway_messages import Looked
from trainmaster.engines.ray.launcher_actor import Refusal
from trainmaster.engines.ray.membership import Membership
from trainmaster.engines.ray.node_facts import NodeFacts
from trainmaster.engines.ray.ray_state import NodeRow


@dataclass
class Cluster:
    rows: list[NodeRow] = field(default_factory=list)
    actors: set[str] = field(default_factory=set)
    ended: list[str] = field(default_factory=list)

    def get_actor(self, name: str) -> str:
        if name not in self.actors:
            raise ValueError(name)
        return name


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()

    async def welcome(self: Membership, member: Any) -> Refusal:
        return Refusal("It is not started here.")

    monkeypatch.setattr(membership.ray_state, "node_rows", lambda: cluster.rows)
    monkeypatch.setattr(membership.ray_state, "free_resources", dict)
    monkeypatch.setattr(membership.ray, "get_actor", cluster.get_actor)
    monkeypatch.setattr(membership.ray, "kill", cluster.ended.append)
    monkeypatch.setattr(Membership, "_welcome", welcome)
    return cluster


def row(incarnation: str, since_ms: int, host: str = "h1", gpus: float = 4) -> NodeRow:
    return NodeRow(NodeFacts("n0", incarnation, host, gpus, 8, 1 << 30), True, since_ms)


def look(*times: list[NodeRow], cluster: Cluster) -> Looked:
    async def act() -> Looked:
        members = Membership("s1", 60.0, False, "", lambda node, free: 0.0)
        for rows in times:
            cluster.rows = rows
            looked = await members.look()
        return looked

    return asyncio.run(act())


def test_the_launcher_of_a_raylet_whose_place_a_newer_one_took_is_ended_once(
    cluster: Cluster,
) -> None:
    cluster.actors = {"launcher:i1", "launcher:i2"}
    both = [row("i2", 2), row("i1", 1)]
    looked = look([row("i1", 1)], both, both, cluster=cluster)
    assert cluster.ended == ["launcher:i1"]
    assert [each.incarnation for each in looked.sights] == ["i2"]
    assert looked.troubles == ()  # Ray may not know yet that the first one is dead


def test_two_raylets_of_one_name_on_one_host_are_told_when_they_stay(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "NOTICED_S", 0.0)
    (trouble,) = look([row("i1", 1), row("i2", 2)], cluster=cluster).troubles
    assert trouble.startswith("Two raylets on h1 are called n0: the older one is not used")


def test_of_two_hosts_the_first_is_used_and_the_other_is_told(cluster: Cluster) -> None:
    cluster.actors = {"launcher:i1", "launcher:i2"}
    looked = look([row("i2", 2, "h2"), row("i1", 1)], cluster=cluster)
    assert [each.incarnation for each in looked.sights] == ["i1"]
    assert "called n0, at h1 and at h2" in looked.troubles[0]
    assert cluster.ended == []


def test_a_node_without_devices_takes_nobodys_place(cluster: Cluster) -> None:
    looked = look([row("i1", 1), row("i2", 2, gpus=0)], cluster=cluster)
    assert [each.incarnation for each in looked.sights] == ["i1"]
