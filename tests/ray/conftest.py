"""These tests need Ray and a network namespace: they are collected by `make test-ray` alone."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.ray.cluster import RayCluster, two_racks
from tests.ray.namespace import ADDRESS, RUNS

collect_ignore_glob = [] if os.environ.get(RUNS) else ["*"]
OWN_CLUSTER = pytest.mark.skipif(
    bool(os.environ.get(ADDRESS)), reason=f"kills nodes, so not in the cluster of {ADDRESS}"
)


@pytest.fixture(scope="session")
def small_cluster() -> Iterator[RayCluster]:
    """Two nodes of two GPUs, in racks of their own. Who kills one starts it again."""
    with RayCluster.running(*two_racks(2, gpus=2)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def wide_cluster() -> Iterator[RayCluster]:
    """The same with four GPUs each."""
    with RayCluster.running(*two_racks(2, gpus=4)) as cluster:
        yield cluster
