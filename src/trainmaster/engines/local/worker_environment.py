"""A worker's environment (RANK, WORLD_SIZE, MASTER_ADDR, CUDA_VISIBLE_DEVICES, TRAINMASTER_*), and the file
with all workers that a supervisor runs.

Nothing is started here, so that it can be shown before it is done.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainmaster.engines.local.runfile import CgroupPlan, RankSpec, RunFile
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec, Ranks
from trainmaster.model.placement import Placement
from trainmaster.model.topology import Topology
from trainmaster_sdk import wire

RUN = "TRAINMASTER_RUN"
DEVICES = "TRAINMASTER_DEVICES"
NOT_HANDED_ON = ("TRAINMASTER_", "TORCHELASTIC_", "SLURM_")
"""Variables of the manager's own environment that would mislead a program."""


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Where one rank runs: its rank, the world size, and its devices."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    node_rank: int
    devices: tuple[int, ...]
    """All GPUs of the run on this node, as the topology counts them."""
    slots: int
    """How many of them are this rank's own."""


def rank_places(placement: Placement, ranks: Ranks) -> tuple[RankPlace, ...]:
    """One rank for each slice, node by node, or one for each node."""
    by_node: dict[int, list[int]] = {}
    for piece in placement.slices:
        by_node.setdefault(piece.node, []).append(piece.gpu)
    per_node = ranks is Ranks.PER_NODE
    world = len(by_node) if per_node else len(placement.slices)
    found: list[RankPlace] = []
    for node_rank, gpus in enumerate(by_node.values()):
        here = 1 if per_node else len(gpus)
        devices = tuple(dict.fromkeys(gpus))
        for local_rank in range(here):
            slots = len(devices) if per_node else 1
            found.append(RankPlace(len(found), world, local_rank, here, node_rank, devices, slots))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Host:
    """What a launch must know of this machine: its devices, and what may be limited."""

    topology: Topology
    uuids: tuple[str, ...]
    """By the topology's GPU numbers; empty if CPU slots replace GPUs."""
    cgroups: CgroupPlan


def run_file(
    run: Run, placement: Placement, spec: LaunchSpec, host: Host, at: str, generation: int
) -> RunFile:
    """Everything that the supervisor of this run, which listens there, must know.

    A new port is chosen each time.
    """
    cgroups = host.cgroups
    places = rank_places(placement, spec.ranks)
    argv = (*spec.prefix, *spec.command)
    everybody = common_env(run, spec, at, generation) | {"MASTER_PORT": str(free_port())}
    own = dict(spec.env)
    return RunFile(
        name=f"{run.job}.{run.attempt}",
        generation=generation,
        workdir=spec.workdir,
        env=base_env(os.environ) | own | everybody,
        ranks=tuple(RankSpec(argv, rank_env(place, spec, host, own)) for place in places),
        socket=at,
        grace_ms=spec.grace_ms,
        log_bytes=spec.logs.file_bytes,
        log_files=spec.logs.files,
        placement=repr(placement.slices),
        cgroups=replace(
            cgroups,
            memory=spec.memory if cgroups.memory_in else None,
            cpus=spec.cpus if cgroups.cpus_in else None,
        ),
    )


def base_env(ours: Mapping[str, str]) -> dict[str, str]:
    """What a program inherits from the manager: PATH, HOME and the like."""
    return {name: value for name, value in ours.items() if not name.startswith(NOT_HANDED_ON)}


def common_env(run: Run, spec: LaunchSpec, socket: str, generation: int) -> dict[str, str]:
    env = {
        "MASTER_ADDR": "127.0.0.1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "PYTHONUNBUFFERED": "1",
        wire.JOB: run.job,
        wire.ATTEMPT: str(run.attempt),
        RUN: f"{run.job}.{run.attempt}",
        wire.RESTART_COUNT: str(run.attempt - 1 + generation),
        wire.CHECKPOINT_DIR: spec.checkpoint_dir,
        wire.SOCKET: socket,
    }
    if spec.array_index is not None:
        env[wire.ARRAY_INDEX] = str(spec.array_index)
    if spec.array_size is not None:
        env[wire.ARRAY_SIZE] = str(spec.array_size)
    if spec.max_runtime_ms is not None:
        env[wire.END_TIME] = str((time.time_ns() // 1_000_000 + spec.max_runtime_ms) // 1000)
    return env


def rank_env(
    place: RankPlace, spec: LaunchSpec, host: Host, own: Mapping[str, str]
) -> dict[str, str]:
    node = host.topology.nodes[host.topology.node_of_gpu[place.devices[0]]]
    uuids = [host.uuids[gpu] for gpu in place.devices] if host.uuids else []
    env = {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.world),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(place.local_world),
        "NODE_RANK": str(place.node_rank),
        "GROUP_RANK": str(place.node_rank),
        "CUDA_VISIBLE_DEVICES": ",".join(uuids),
        DEVICES: ",".join(f"{node.name}:{gpu - node.first_gpu}" for gpu in place.devices),
    }
    if "OMP_NUM_THREADS" not in own:
        env["OMP_NUM_THREADS"] = str(threads(place, spec, node.cpus, node.gpus))
    return env


def threads(place: RankPlace, spec: LaunchSpec, cpus: int, gpus: int) -> int:
    """A rank's share of its node's cores, unless the job states a number."""
    wanted = cpus * place.slots // max(1, gpus) if spec.cpus is None else spec.cpus
    return max(1, wanted // 1000)


# -- places --------------------------------------------------------------------------------------------


_given: list[int] = []
"""Ports handed out last: their programs may not listen yet."""
MOST_GIVEN = 512


def free_port() -> int:
    """A free port of the loopback interface that was not handed out recently."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port not in _given:
            _given.append(port)
            del _given[:-MOST_GIVEN]
            return port
