"""These tests need Ray and a network namespace: they are collected by `make test-ray` alone."""

from __future__ import annotations

import os

import pytest

from tests.ray.namespace import ADDRESS, RUNS

collect_ignore_glob = [] if os.environ.get(RUNS) else ["*"]
OWN_CLUSTER = pytest.mark.skipif(
    bool(os.environ.get(ADDRESS)), reason=f"kills nodes, so not in the cluster of {ADDRESS}"
)
