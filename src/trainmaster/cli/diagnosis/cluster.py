"""What can be found out about the cluster that a manager was started with."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

from trainmaster.cli.diagnosis.facts import Cluster
from trainmaster.cli.support.engine_option import RAY, remembered_engine
from trainmaster.engines.protocol import EngineError
from trainmaster.engines.ray import local_cluster
from trainmaster.engines.ray.gateway_client import has_ray

REACH_S = 3.0


def cluster_facts(folder: Path) -> Cluster | None:
    choice = remembered_engine(folder)
    if choice.name != RAY:
        return None
    address, answers = choice.address or "", False
    with suppress(EngineError):
        if choice.nodes is not None:
            own = local_cluster.running(folder)
            return Cluster(RAY, own.address if own else "", has_ray(), own is not None)
    host, _, port = address.rpartition(":")
    with suppress(OSError, ValueError):
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
        answers = True
    return Cluster(RAY, address, has_ray(), answers)
