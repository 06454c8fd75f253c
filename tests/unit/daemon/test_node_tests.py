"""After a gang's failure its nodes try all-reduces two by two: real ones by gloo, each node an address."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fake_cluster import a_node
from tests.unit.core.stage import Strings
from trainmaster.daemon.failed_gangs import FailedGang, FailedGangs
from trainmaster.daemon.failure_table import built_in_table
from trainmaster.daemon.node_tests import NodeTests
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.engines.local import probes
from trainmaster.engines.protocol import Probed
from trainmaster.model import events as e
from trainmaster.model.device_aside import AsideCause
from trainmaster.model.failure import Failure
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import Account, LaunchSpec
from trainmaster.model.topology_growth import topology_of

RUN = Run("7", 1)
NAMES = ("a", "b", "c", "d")
HOSTS = {name: f"127.0.0.{number}" for number, name in enumerate(NAMES, 1)}
CLOSED = 1
"""A port at which nobody listens."""
BEGAN = "Job 7 failed (collective operation timed out)."


class Stage:
    """Four nodes of two devices; those that are cut off reach nobody."""

    name = "fake"

    def __init__(self, *cut_off: str) -> None:
        nodes = [a_node(name, host=HOSTS[name]) for name in NAMES]
        self.world = Strings(topology_of(nodes), can_freeze=False)
        self.cut_off, self.asked = {*cut_off}, list[tuple[str, str]]()
        self.facts: list[e.Event] = []
        self.python, self.no_port = "", False
        driver = SimpleNamespace(
            controller=self.world.controller,
            engine=self,
            clock=SimpleNamespace(now=lambda: 0),
            dispatcher=SimpleNamespace(given={}),
            inbox=SimpleNamespace(
                follow_up=lambda events: self.facts.extend(x.event for x in events)
            ),
            jobs={},
        )
        self.tests = NodeTests(driver, patience_s=3.0)  # type: ignore[arg-type]

    def host_of(self, node: str) -> str:
        return HOSTS[node]

    def environment(self, run: Run) -> tuple[Path, dict[str, str]]:
        raise FileNotFoundError(run)

    async def probe(self, node: str, words: Sequence[str], limit_s: float) -> Probed:
        program, *rest = words
        if rest[0] != "port":
            request = json.loads(rest[0])
            if node in self.cut_off:
                request["port"] = CLOSED
            rest = [json.dumps(request | ({"python": self.python} if self.python else {}))]
            self.asked.append((node, str(request["rank"])))
        if self.no_port:
            return Probed(1)
        return await probes.probe((program, *rest), limit_s)

    def run(self, *nodes: str) -> None:
        gang = FailedGang(RUN, nodes, "collective operation timed out")
        asyncio.run(self.tests.test(gang))


def test_the_node_that_reaches_nobody_is_set_aside() -> None:
    stage = Stage("a")
    stage.run("a", "b")
    assert {fact.node for fact in stage.facts if isinstance(fact, e.GpuSetAside)} == {0}
    first, second = stage.facts
    assert isinstance(first, e.GpuSetAside)
    assert isinstance(second, e.GpuSetAside)
    assert (first.gpu, second.gpu, first.cause) == (0, 1, AsideCause.SELF_TEST)
    said = f"{BEGAN} An all-reduce with c, which is good, failed: "
    assert first.why.startswith(said) or first.why.startswith(said.replace(" c,", " b,"))
    assert not stage.tests.notes()


def test_nodes_that_reach_one_another_are_not_tried_again_for_a_while() -> None:
    stage = Stage()
    stage.run("a", "b")
    assert sorted(stage.asked) == [("a", "0"), ("b", "1")]
    stage.run("a", "b")
    assert len(stage.asked) == 2
    assert not stage.facts


def test_where_no_good_node_is_there_it_is_said_and_none_is_set_aside() -> None:
    stage = Stage("a")
    stage.world.tell(e.NodeLeft(2), e.NodeLeft(3))
    stage.run("a", "b")
    assert not stage.facts
    (said,) = stage.tests.notes()
    assert said.startswith(
        f"{BEGAN} All-reduces of the nodes a and b fail, and no good node is there"
    )


def test_a_python_that_is_missing_accuses_nobody() -> None:
    stage = Stage("a")
    stage.python = "python-of-nobody"
    stage.run("a", "b")
    assert not stage.facts
    assert not stage.tests.notes()


def test_a_program_of_a_user_is_not_started_as_the_managers() -> None:
    """Whoever fails on purpose, with a `python` of their own in front, gets nothing by it."""
    stage = Stage()
    path = {"PATH": "/home/eve/bin"}
    stage.environment = lambda run: (Path("/"), path)  # type: ignore[method-assign,assignment,return-value]
    eves = LaunchSpec(
        ("python", "x.py"), "/", "", account=Account("eve", 61_000, 61_000, "/home/eve")
    )
    gang = FailedGang(RUN, ("a", "b"), "NCCL error", eves)
    assert stage.tests._python_of(gang) == {"python": "", "path": ""}
    own = replace(gang, recipe=replace(eves, account=None))
    assert stage.tests._python_of(own) == {"python": "python", "path": "/home/eve/bin"}


def test_a_node_that_gives_no_port_accuses_nobody_and_brings_nothing_down() -> None:
    stage = Stage()
    stage.no_port = True
    stage.run("a", "b")
    assert not stage.facts
    assert not stage.tests.notes()


@pytest.mark.parametrize(
    ("reason", "nodes", "found"),
    [
        ("nccl-timeout", (0, 1), [("a", "b")]),
        ("peer-connection-lost", (0, 1), [("a", "b")]),
        ("nccl-timeout", (0,), []),
        ("cuda-out-of-memory", (0, 1), []),
    ],
)
def test_gangs_whose_failure_a_node_may_have_caused(
    reason: str, nodes: tuple[int, ...], found: list[tuple[str, ...]]
) -> None:
    stage = Stage()
    gangs = FailedGangs(lambda: stage.world.state, {}, built_in_table)
    stage.world.running("7", *(gpu for node in nodes for gpu in (2 * node, 2 * node + 1)))
    gangs.note([LoggedEvent(e.RunFailed(stage.world.job("7").run, failure=Failure(reason)))])
    assert [gang.nodes for gang in gangs.take()] == found
    assert not gangs.take()
