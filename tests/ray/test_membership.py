"""Which nodes of a cluster have a launcher, with a cluster that is only told of."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError

from trainmaster.engines.ray import membership
from trainmaster.engines.ray.gateway_messages import Looked
from trainmaster.engines.ray.launcher_actor import Refusal
from trainmaster.engines.ray.membership import Membership
from trainmaster.engines.ray.node_facts import NodeFacts
from trainmaster.engines.ray.node_news import MARGIN_MS
from trainmaster.engines.ray.ray_state import NodeRow

LONGEST_S = 300.0


def members_of_s1() -> Membership:
    return Membership("s1", 60.0, LONGEST_S, False, "", lambda free, what: 0.0)


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


@dataclass
class Actor:
    """A launcher that answers `start` with these one after the other."""

    answers: list[bytes | Exception]

    @property
    def start(self) -> Actor:
        return self

    async def remote(self) -> bytes:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def look(*times: list[NodeRow], cluster: Cluster) -> Looked:
    async def act() -> Looked:
        members = members_of_s1()
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


def test_all_that_is_there_and_not_used_is_listed_at_once(cluster: Cluster) -> None:
    head = NodeRow(NodeFacts("head", "i8", "h1", 0, 4, 0), True, 0, is_head=True)
    manager = NodeRow(NodeFacts("manager", "i9", "h1", 0, 0, 0), True, 0)
    cpus = NodeRow(NodeFacts("c1", "i7", "h2", 0, 4, 0), True, 0)
    dead = NodeRow(NodeFacts("d1", "i6", "h2", 4, 4, 0), False, 0)
    same = replace(row("i3", 3), facts=NodeFacts("n1", "i3", "h3", 4, 4, 0))
    rows = [row("i1", 1), row("i2", 2), same, row("i4", 4, "h4"), cpus, head, manager, dead]
    assert sorted(look(rows, cluster=cluster).alive) == [
        ("c1", membership.NO_DEVICES),
        ("n0", ""),
        ("n0", membership.REPLACED.format("h1")),
        (
            "n0",
            "Two nodes of the Ray cluster are called n0, at h1 and at h4: the second one is not used; give it"
            " another --node-name.",
        ),
        ("n1", ""),
    ]
    refused = look([row("i1", 1)], [row("i1", 1)], cluster=cluster).alive
    assert refused == (("n0", "It is not started here."),)


def test_of_two_hosts_the_first_is_used_and_the_other_is_told(cluster: Cluster) -> None:
    cluster.actors = {"launcher:i1", "launcher:i2"}
    looked = look([row("i2", 2, "h2"), row("i1", 1)], cluster=cluster)
    assert [each.incarnation for each in looked.sights] == ["i1"]
    assert "called n0, at h1 and at h2" in looked.troubles[0]
    assert cluster.ended == []


def started(monkeypatch: pytest.MonkeyPatch, *answers: bytes | Exception) -> membership._Member:
    """A node whose launcher answers so when it is started."""
    actor = Actor([*answers])
    monkeypatch.setattr(membership.ray, "kill", lambda launcher: None)
    monkeypatch.setattr(Membership, "_actor", lambda self, start: actor)

    async def act() -> membership._Member:
        member = membership._Member(row("i1", 1).facts)
        await members_of_s1()._start(member)
        return member

    return asyncio.run(act())


GONE = ActorUnavailableError("its process is started again", None)


def test_a_launcher_whose_process_is_just_started_again_is_asked_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = Refusal("Its disk is full.")
    member = started(monkeypatch, GONE, GONE, pickle.dumps(refused))
    assert member.welcome == refused
    assert not member.is_fence_as_it_was  # the process before may have confirmed


def test_one_that_cannot_be_loaded_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ActorDiedError()
    error._actor_init_failed = True
    error.error_msg = "No module named 'trainmaster.engines'"
    said = started(monkeypatch, error).welcome
    assert isinstance(said, Refusal)
    assert said.why.startswith("Trainmaster is not installed in the Python of Ray on n0")


def test_where_starts_fail_again_and_again_the_longest_fence_passes_before_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each start that fails may let runs go on, so that they are never lost while there are more of them."""
    monkeypatch.setattr(membership, "START_S", 0.0)
    member = started(monkeypatch, GONE)
    assert members_of_s1()._pause_s(member) == membership.AGAIN_S
    member.failures += 1
    assert members_of_s1()._pause_s(member) > LONGEST_S + MARGIN_MS / 1000


def test_a_node_without_devices_takes_nobodys_place(cluster: Cluster) -> None:
    looked = look([row("i1", 1), row("i2", 2, gpus=0)], cluster=cluster)
    assert [each.incarnation for each in looked.sights] == ["i1"]
