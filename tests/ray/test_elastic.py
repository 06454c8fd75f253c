"""A PyTorch gang on a real cluster that a policy resizes over two nodes, while it trains."""

from __future__ import annotations

from pathlib import Path

from tests.live.daemons import LiveDaemon, until
from tests.live.elastic_job import BATCH, SAMPLES
from tests.live.test_elastic_policies import (
    PATIENCE_S,
    cancel,
    neighbour,
    samples_by_epoch,
    story,
    train,
    until_size,
)
from tests.ray.cluster import RayCluster, two_racks
from tests.ray.conftest import OWN_CLUSTER

pytestmark = OWN_CLUSTER
STEPS = 200


def test_max_min_resizes_a_gang_over_two_nodes_in_place(tmp_path: Path) -> None:
    with RayCluster.running(*two_racks(2, gpus=2)) as cluster:
        daemon = LiveDaemon(tmp_path / "data", "--engine", "ray", "--address", cluster.address)
        daemon.start()
        try:
            daemon.until_active()
            _resize(daemon, tmp_path / "elastic")
        finally:
            daemon.kill()


def _resize(daemon: LiveDaemon, folder: Path) -> None:
    daemon.call("PUT", "/api/v1/policy", {"name": "max-min", "options": {}})
    others = [neighbour(daemon) for _ in range(3)]
    for each in others:
        daemon.until_state(each, "running")
    id = train(daemon, folder, "1-4", 0.8, steps=STEPS)
    until_size(daemon, id, folder, 1)
    (first,) = daemon.job(id)["pids"]
    (own,) = daemon.job(id)["nodes"]
    there = next(each for each in others if daemon.job(each)["nodes"] != [own])
    cancel(daemon, there)
    until_size(daemon, id, folder, 2)
    assert len(daemon.job(id)["nodes"]) == 2
    assert first in daemon.job(id)["pids"]
    daemon.until_state(neighbour(daemon), "running")
    until_size(daemon, id, folder, 1)
    (folder / "hurry").touch()
    until(lambda: daemon.job(id)["state"] == "succeeded", "its end", PATIENCE_S)
    told = story(daemon, id)
    assert [each["what"] for each in told].count("started") == 1, told
    resizes = [each["detail"] for each in told if each["what"] == "resized"]
    assert [each["in_place"] for each in resizes] == [True] * len(resizes), resizes
    assert [len(each["pids"]) for each in resizes] == [2, 1]
    epochs = samples_by_epoch(folder)
    assert epochs.keys() == set(range(STEPS * BATCH // SAMPLES))
    assert all(seen == dict.fromkeys(range(SAMPLES), 1) for seen in epochs.values())
