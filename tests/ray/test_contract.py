"""The contract of every engine, over a real cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.test_engines import *  # noqa: F403
from tests.live.stage import Act, MakeEngine, perform
from tests.ray.cluster import RayCluster, two_racks
from tests.ray.conftest import OWN_CLUSTER
from tests.ray.linked import Linked
from tests.ray.withdrawer import withdrawing
from trainmaster.engines.ray.engine import RayEngine
from trainmaster.engines.ray.gateway_client import Gateway
from trainmaster.model.engine_reports import ClusterNode

pytestmark = OWN_CLUSTER
FENCE_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with RayCluster.running(*two_racks(2)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def nodes(cluster: RayCluster) -> tuple[ClusterNode, ...]:
    with Linked.to(cluster.address, "contract") as link:
        found = sorted(link.gateway.nodes, key=lambda each: each.name)
        link.do(link.gateway.withdraw())
    return tuple(found)


@pytest.fixture(scope="module")
def withdraw(cluster: RayCluster) -> Iterator[Callable[[str], None]]:
    with withdrawing(cluster.address) as withdraw:
        yield withdraw


@pytest.fixture
def play(
    cluster: RayCluster,
    nodes: tuple[ClusterNode, ...],
    withdraw: Callable[[str], None],
    tmp_path: Path,
) -> Iterator[Callable[[Act], None]]:
    """Perform an act with launchers of its own on the nodes."""
    store = hashlib.sha256(bytes(tmp_path)).hexdigest()[:12]

    def make(folder: Path) -> RayEngine:
        return RayEngine(folder, Gateway(cluster.address, store, FENCE_S), nodes)

    made: MakeEngine = make
    yield lambda act: perform(tmp_path, act, made)
    withdraw(store)
