"""What is done about a Ray cluster of this machine that runs already, without one."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from trainmaster.engines.protocol import EngineError
from trainmaster.engines.ray import local_cluster
from trainmaster.engines.ray.local_cluster import FILE, LocalCluster

RUNNING = LocalCluster("127.0.0.1:6379", "/tmp/tm-ray-x", 3, "/data/ray-token", 2)


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the nodes that are started while node1 is dead."""
    names: list[str] = []

    def start(cluster: LocalCluster, environ: dict[str, str], *words: str) -> None:
        names.append(next(word for word in words if word.startswith("--node-name=")))
        assert environ[local_cluster.NODE] == "1"
        assert f"--labels={local_cluster.SLOTS_LABEL}=2" in words

    (tmp_path / FILE).write_text(json.dumps(asdict(RUNNING)))
    monkeypatch.setattr(local_cluster, "running", lambda folder: RUNNING)
    monkeypatch.setattr(local_cluster, "nodes_of", lambda cluster: {"0", "2"})
    monkeypatch.setattr(local_cluster, "_ray_start", start)
    return names


def test_nodes_that_have_died_are_started_again(tmp_path: Path, started: list[str]) -> None:
    said: list[str] = []
    assert local_cluster.start(tmp_path, 3, 2, said.append) == RUNNING
    assert started == ["--node-name=node1"]
    assert said == ["Starting node1 again, whose raylet has died..."]


@pytest.mark.parametrize(("nodes", "slots"), [(4, 2), (3, 4), (3, None)])
def test_what_cannot_be_changed_while_it_runs_is_refused(
    tmp_path: Path, started: list[str], nodes: int, slots: int | None
) -> None:
    with pytest.raises(EngineError, match="of 3 nodes with 2 CPU slots each runs already"):
        local_cluster.start(tmp_path, nodes, slots, print)
    assert started == []
