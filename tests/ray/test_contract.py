"""The contract of every engine, over a real cluster: one of these tests' own, or that of the user."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.test_engines import *  # noqa: F403
from tests.live.stage import HERE, Act, MakeEngine, Processes, perform
from tests.ray.cluster import RayCluster
from tests.ray.linked import Linked
from tests.ray.namespace import ADDRESS
from tests.ray.node_processes import NodeProcesses
from tests.ray.withdrawer import withdrawing
from trainmaster.engines.ray.engine import RayEngine
from trainmaster.engines.ray.gateway_client import Gateway
from trainmaster.engines.ray.launcher_actor import LAUNCHER
from trainmaster.model.engine_reports import ClusterNode

FENCE_S = 60.0
DEVICES = 4
"""Of each node, that are used."""


@pytest.fixture(scope="module")
def address(request: pytest.FixtureRequest) -> str:
    if users := os.environ.get(ADDRESS):
        return users
    cluster: RayCluster = request.getfixturevalue("wide_cluster")
    return cluster.address


@pytest.fixture(scope="module")
def processes(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    if ADDRESS not in os.environ:
        yield HERE
        return
    with NodeProcesses.of(address) as found:
        folder = tmp_path_factory.getbasetemp()
        if not found.all_see(folder):
            pytest.fail(f"Not all nodes see {folder}: set TMPDIR to a folder that they share.")
        yield found


@pytest.fixture(scope="module")
def nodes(address: str) -> tuple[ClusterNode, ...]:
    """Two, of which so many devices are used as the tests need."""
    with Linked.to(address, "contract", launcher=LAUNCHER) as link:
        found = sorted(link.gateway.nodes, key=lambda each: each.name)
        link.do(link.gateway.withdraw())
    large = [replace(each, gpus=DEVICES) for each in found if each.gpus >= DEVICES]
    if len(large) < 2:
        pytest.fail(f"The cluster at {address} has no two nodes with {DEVICES} GPUs each.")
    return tuple(large[:2])


@pytest.fixture(scope="module")
def withdraw(address: str) -> Iterator[Callable[[str], None]]:
    with withdrawing(address) as withdraw:
        yield withdraw


@pytest.fixture
def play(
    address: str,
    processes: Processes,
    nodes: tuple[ClusterNode, ...],
    withdraw: Callable[[str], None],
    tmp_path: Path,
) -> Iterator[Callable[[Act], None]]:
    """Perform an act with launchers of its own on the nodes."""
    store = hashlib.sha256(bytes(tmp_path)).hexdigest()[:12]

    def make(folder: Path) -> RayEngine:
        return RayEngine(folder, Gateway(address, store, FENCE_S), nodes)

    made: MakeEngine = make
    yield lambda act: perform(tmp_path, act, made, processes)
    withdraw(store)
