"""The Ray cluster of `up --engine ray --nodes`: for a job, over a restart, to its end."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.live.daemons import LiveDaemon, until
from tests.ray.cluster import environ_of, kill, program_of
from tests.ray.conftest import OWN_CLUSTER
from trainmaster.cli.diagnosis.cluster import cluster_facts
from trainmaster.cli.support.engine_option import remember_engine
from trainmaster.engines.engine_settings import EngineChoice
from trainmaster.engines.protocol import EngineError
from trainmaster.engines.ray import local_cluster
from trainmaster.engines.ray.admission import MODE, PATH
from trainmaster.engines.ray.gateway_client import Gateway

pytestmark = OWN_CLUSTER


def test_it_runs_a_gang_outlives_the_manager_and_ends_when_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        assert local_cluster.nodes_of(there) == {"0", "1"}
        end_raylet_of(there, "1")
        assert oct((data / local_cluster.TOKEN).stat().st_mode & 0o777) == "0o600"
        again = LiveDaemon(data)  # with the same engine, as it is remembered
        again.start()
        again.until_active()
        assert local_cluster.running(data) == there
        assert local_cluster.nodes_of(there) == {"0", "1"}
        assert again.job(job)["state"] == "succeeded"
        assert_asks_for_its_token(there.address, tmp_path, monkeypatch)
        again.kill()
        assert local_cluster.stop(data) > 0
        assert list(local_cluster.processes_of(there)) == []
        assert local_cluster.running(data) is None
        assert not os.path.exists(there.temp_dir)
    finally:
        daemon.kill()
        local_cluster.stop(data)


def end_raylet_of(cluster: local_cluster.LocalCluster, node: str) -> None:
    for pid in local_cluster.processes_of(cluster):
        environ = environ_of(pid)
        if program_of(pid) == "raylet" and environ.get(local_cluster.NODE) == node:
            kill(pid)
    assert local_cluster.nodes_of(cluster) == {"0", "1"} - {node}


def assert_asks_for_its_token(address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `up --address` and `doctor` say without it, and with another one."""
    other = folder / "other-token"
    other.write_text("0" * 64)
    for environ, why in (
        ({}, f"asks for a token: set {MODE}=token"),
        ({MODE: "token", PATH: str(other)}, "does not accept the token"),
    ):
        with pytest.raises(EngineError, match=why):
            asyncio.run(Gateway(address, "s1", environ=environ).connect())
    remember_engine(folder, EngineChoice("ray", address))
    found = cluster_facts(folder)
    assert found is not None
    assert "asks for a token" in found.refusal
