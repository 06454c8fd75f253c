"""The actor of a node, without Ray: when it confirms the node to its fence."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from trainmaster import __version__
from trainmaster.engines.protocol import EngineError
from trainmaster.engines.ray import fence, launcher_actor
from trainmaster.engines.ray.confirmation import confirmed
from trainmaster.engines.ray.former_nodes import FormerNode, note, raylet_of
from trainmaster.engines.ray.launcher_actor import LauncherActor, Refusal, Start, Welcome
from trainmaster.engines.ray.node_facts import SLOTS_LABEL, NodeFacts
from trainmaster.engines.ray.node_folder import NODE_DATA
from trainmaster.gpu.devices import Machine

FACTS = NodeFacts("n0", "i1", "127.0.0.1", 0, 2, 1 << 30, {SLOTS_LABEL: "2"})
HOUR_S = 3600.0


class Refusing:
    def __init__(self, folder: Path, machine: Machine) -> None:
        self.folder = folder

    async def open(self) -> None:
        await asyncio.sleep(0.2)
        raise EngineError("Its disk is full.")


class Opening(Refusing):
    async def open(self) -> None:
        assert confirmed(self.folder) is None


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[type], Welcome | Refusal]:
    def alive(incarnation: str) -> Callable[[float], bool]:
        return lambda timeout_s: True

    def started(launcher: type) -> Welcome | Refusal:
        words = f"{__name__}:{launcher.__name__}"
        actor = LauncherActor(pickle.dumps(Start(FACTS, "s1", HOUR_S, __version__, False, words)))
        said: Welcome | Refusal = pickle.loads(asyncio.run(actor.start()))
        return said

    monkeypatch.setenv(NODE_DATA, str(tmp_path))
    monkeypatch.setattr(launcher_actor, "raylet_environ", dict)
    monkeypatch.setattr(launcher_actor, "alive_by_ray", alive)
    monkeypatch.setattr(fence, "start", lambda folder, environ: None)
    monkeypatch.setattr(
        LauncherActor, "_confirm", lambda self, is_alive: None
    )  # for ever, past the test
    assert os.environ[NODE_DATA] == str(tmp_path)
    return started


def test_a_launcher_that_is_refused_leaves_the_fence_as_it_was(
    start: Callable[[type], Welcome | Refusal], tmp_path: Path
) -> None:
    assert start(Refusing) == Refusal("Its disk is full.")
    assert confirmed(tmp_path / "s1" / "n0") is None


def test_it_says_what_its_machine_was_before(
    start: Callable[[type], Welcome | Refusal], tmp_path: Path
) -> None:
    earlier = subprocess.Popen(["sleep", "600"])
    folder = tmp_path / "s1" / "m0"
    folder.mkdir(parents=True)
    note(folder, raylet_of(replace(FACTS, name="m0", incarnation="i0"), earlier.pid, ()))
    earlier.kill()
    said = start(Opening)
    assert isinstance(said, Welcome)
    assert said.former == (FormerNode("m0", "i0"),)
    earlier.wait()


def test_a_launcher_that_takes_calls_has_confirmed_its_node(
    start: Callable[[type], Welcome | Refusal], tmp_path: Path
) -> None:
    assert isinstance(start(Opening), Welcome)
    said = confirmed(tmp_path / "s1" / "n0")
    assert said is not None
    assert (said.incarnation, said.fence_ms) == ("i1", 3_600_000)
