"""What can be found out about the cluster that a manager was started with."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from trainmaster.cli.diagnosis.facts import Cluster
from trainmaster.cli.support.engine_option import RAY, remembered_engine
from trainmaster.engines.local.processes import python_path
from trainmaster.engines.protocol import EngineError
from trainmaster.engines.ray import local_cluster
from trainmaster.engines.ray.gateway_client import has_ray

REACH_S = 3.0
ADMISSION_S = 20.0
"""How long Ray may take to be loaded, and to say whether it lets one in."""


def cluster_facts(folder: Path) -> Cluster | None:
    choice = remembered_engine(folder)
    if choice.name != RAY:
        return None
    address, answers = choice.address or "", False
    with suppress(EngineError):
        if choice.nodes is not None:
            own = local_cluster.running(folder)
            if own is None:
                return Cluster(RAY, "", has_ray(), False)
            return Cluster(RAY, own.address, has_ray(), True, _refusal(own.address, own.environ))
    host, _, port = address.rpartition(":")
    with suppress(OSError, ValueError):
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
        answers = True
    return Cluster(RAY, address, has_ray(), answers, _refusal(address, {}) if answers else "")


def _refusal(address: str, environ: Mapping[str, str]) -> str:
    """By a process of its own: Ray's client may end it."""
    if not has_ray():
        return ""
    try:
        asked = subprocess.run(
            [sys.executable, "-P", "-m", "trainmaster.engines.ray.admission", address],
            check=False,
            capture_output=True,
            text=True,
            env=os.environ | environ | {"PYTHONPATH": python_path()},
            timeout=ADMISSION_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout.strip()
