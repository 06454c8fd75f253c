"""The Ray cluster of `up --engine ray --nodes`: for a job, over a restart, to its end."""

from __future__ import annotations

import os
from pathlib import Path

from tests.live.daemons import LiveDaemon, until
from tests.ray.conftest import OWN_CLUSTER
from trainmaster.engines.ray import local_cluster

pytestmark = OWN_CLUSTER


def test_it_runs_a_gang_outlives_the_manager_and_ends_when_told_to(tmp_path: Path) -> None:
    data = tmp_path / "data"
    daemon = LiveDaemon(data, "--engine", "ray", "--nodes", "2", "--slots", "2")
    daemon.start()
    try:
        until(lambda: daemon.url is not None, "Ray to start, slowly on a busy machine", 180)
        daemon.until_active()
        names = [each["name"] for each in daemon.call("GET", "/api/v1/nodes")["nodes"]]
        assert names == ["node0", "node1"]
        command = ["sh", "-c", 'echo "$RANK of $WORLD_SIZE"']
        job = daemon.submit(command=command, gpus=4, workdir=str(tmp_path), ranks="gpu")
        daemon.until_state(job, "succeeded")
        assert daemon.stop() == 0
        there = local_cluster.running(data)
        assert there is not None
        assert oct((data / local_cluster.TOKEN).stat().st_mode & 0o777) == "0o600"
        again = LiveDaemon(data)  # with the same engine, as it is remembered
        again.start()
        again.until_active()
        assert local_cluster.running(data) == there
        assert again.job(job)["state"] == "succeeded"
        again.kill()
        assert local_cluster.stop(data) > 0
        assert list(local_cluster.processes_of(there)) == []
        assert local_cluster.running(data) is None
        assert not os.path.exists(there.temp_dir)
    finally:
        daemon.kill()
        local_cluster.stop(data)
