"""A worker's environment (RANK, WORLD_SIZE, MASTER_ADDR, CUDA_VISIBLE_DEVICES, TRAINMASTER_*), and the file
with all workers that a supervisor runs.

Nothing is started here, so that it can be shown before it is done.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainmaster.engines.local import launchers
from trainmaster.engines.local.launchers import Meeting
from trainmaster.engines.local.path_entry import with_path_entry
from trainmaster.engines.local.privileges import is_users
from trainmaster.engines.local.rank_places import RankPlace, rank_places
from trainmaster.engines.local.runfile import CgroupPlan, HangPlan, RankSpec, RunFile
from trainmaster.engines.local.simple_commands import as_program
from trainmaster.failures.hang_rule import DEFAULT_LIMITS, HangLimits
from trainmaster.gpu import mps
from trainmaster.gpu.driver import FAKE_GPUS
from trainmaster.gpu.mps import MpsPlace
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import (
    MOST_PIDS,
    OUT_OF_SIGHT,
    Account,
    GangPart,
    LaunchSpec,
    OnHang,
    Ranks,
)
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.topology import Topology
from trainmaster_sdk import wire

RUN = "TRAINMASTER_RUN"
DEVICES = "TRAINMASTER_DEVICES"
HANDED_ON = ("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "TZ", "TMPDIR", FAKE_GPUS)
"""All that a program gets of the manager's own environment, which may hold secrets."""
SHARED = ("LANG", "TZ", FAKE_GPUS)
"""The part of it that programs of other users get as well: not where root's own programs are."""
SESSION = "trainmaster_sdk.terminal"
"""The program of `trainmaster shell`."""
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class Host:
    """What a launch must know of this machine: its devices, and what may be limited."""

    topology: Topology
    uuids: tuple[str, ...]
    """By the topology's GPU numbers; empty if CPU slots replace GPUs."""
    cgroups: CgroupPlan
    numbers: tuple[int, ...] = ()
    """The same GPUs as the driver counts them, in the order of the PCI bus; empty: not known."""
    gpus_folder: str = ""
    """Where runs on one GPU tell each other how fast they are."""
    hang_limits: HangLimits = DEFAULT_LIMITS
    most_pids: int | None = None
    """Processes and threads that one run may have; None: not limited."""
    minors: tuple[int, ...] | None = None
    """Of the GPUs' device files, by the topology's GPU numbers: a run may open its own alone. None: any."""


def run_file(
    run: Run,
    placement: Placement,
    spec: LaunchSpec,
    host: Host,
    at: str,
    generation: int,
    daemon: MpsPlace | None = None,
    *,
    is_prerun: bool = False,
) -> RunFile:
    """Everything that the supervisor of this run, which listens there, must know.

    A new port is chosen each time, except for a part of a gang. With a `daemon` it is a client of MPS.
    """
    cgroups = host.cgroups
    host = as_counted_inside(placement, host)
    places = rank_places(placement, spec.ranks, spec.part)
    meeting = meeting_of(spec.part)
    everybody = common_env(run, spec, at, generation) | {
        "MASTER_ADDR": meeting.host,
        "MASTER_PORT": meeting.port,
    }
    own = dict(spec.env)
    env = base_env(os.environ, spec.account) | own | everybody
    return RunFile(
        name=f"{run.job}.{run.attempt}",
        generation=generation,
        workdir=spec.workdir,
        env=with_path_entry(env) if spec.counts_steps else env,
        ranks=tuple(
            RankSpec(
                (
                    *spec.prefix,
                    *as_program(launchers.with_flags(spec.command, spec.launcher, place, meeting)),
                ),
                rank_env(place, spec, host, own)
                | launchers.variables(spec.ranks, place, meeting)
                | mps_env(placement, daemon, own, limits_memory=spec.limits_gpu_memory)
                | container_env(spec, host),
            )
            for place in places
        ),
        socket=at,
        first_rank=places[0].rank,
        gang_generation=0 if spec.part is None else spec.part.generation,
        grace_ms=spec.grace_ms,
        log_bytes=spec.logs.file_bytes,
        log_files=spec.logs.files,
        placement=repr(placement.slices),
        umask=spec.umask,
        program_files=spec.program_files,
        cgroups=replace(
            cgroups,
            memory=spec.memory if cgroups.memory_in else None,
            cpus=spec.cpus if cgroups.cpus_in else None,
            pids=host.most_pids,
            minors=minors_of(placement, host),
            counts_memory=bool(cgroups.memory_in) and not host.uuids,
        ),
        uuid=spec.uuid,
        row=spec.row,
        sharing=Sharing.MPS.value if daemon is not None else "",
        role=placement.role.value if host.uuids else "",
        tolerance_ppm=spec.tolerance_ppm if host.uuids else 0,
        gpus_folder=host.gpus_folder if host.uuids else "",
        hang=hang_plan(spec, host),
        prerun_ms=spec.prerun_ms if is_prerun else 0,
        prerun_steps=spec.prerun_steps if is_prerun else 0,
        account=spec.account,
        secrets=dict(spec.secrets),
        container_engine=spec.container_engine,
        slots=tuple(own_slot(place, spec, host) for place in places),
        in_place=spec.part is not None and spec.part.in_place,
        numbers=() if spec.part is None else spec.part.numbers,
    )


def own_slot(place: RankPlace, spec: LaunchSpec, host: Host) -> str:
    """What this rank has for itself: one CPU slot of a node is like another, a GPU is not."""
    node = host.topology.nodes[host.topology.node_of_gpu[place.devices[0]]]
    if not host.uuids:
        return f"{node.name} x {place.slots}"
    if spec.ranks is Ranks.PER_NODE:
        return names_of(place, host)
    return f"{node.name}:{place.devices[place.local_rank % len(place.devices)] - node.first_gpu}"


def hang_plan(spec: LaunchSpec, host: Host) -> HangPlan | None:
    """None for sessions, which wait for their user and are suspended when they are idle."""
    if SESSION in spec.command:
        return None
    return HangPlan(
        host.hang_limits,
        restarts=spec.on_hang is OnHang.RESTART,
        known_ms=spec.longest_silence_ms,
        sees_processes=spec.container_engine not in OUT_OF_SIGHT,
    )


def mps_gpu(placement: Placement, spec: LaunchSpec, host: Host) -> str | None:
    """The GPU whose MPS daemon it is to be a client of; None: it is not to be a client.

    A client has one daemon, and ours have one GPU each, which has another number there: a launcher that reads
    numbers is not a client. Containers do not see the daemon's pipes. A daemon serves one user at a time, and
    the programs of others would wait for it: theirs are no clients.
    """
    if is_users(spec.account):
        return None
    is_client = placement.sharing is Sharing.MPS and len(placement.slices) == 1
    if not (is_client and host.uuids) or spec.prefix or spec.launcher == launchers.DEEPSPEED:
        return None
    return host.uuids[placement.slices[0].gpu]


def mps_env(
    placement: Placement, daemon: MpsPlace | None, own: Mapping[str, str], *, limits_memory: bool
) -> dict[str, str]:
    """What makes a rank a client of MPS: its daemon, and its part of threads and memory.

    Its owner may state another part of the threads, but no other limit of memory.
    """
    if daemon is None:
        return {}
    piece = placement.slices[0]
    stated = {mps.THREADS: own[mps.THREADS]} if mps.THREADS in own else {}
    return daemon.env | mps.limits(piece.share, piece.memory if limits_memory else 0) | stated


def container_env(spec: LaunchSpec, host: Host) -> dict[str, str]:
    """Its groups are those of its engine, which has to be told."""
    if spec.container_engine not in OUT_OF_SIGHT or not host.most_pids:
        return {}
    return {MOST_PIDS: str(host.most_pids)}


def rebound(file: RunFile, placement: Placement, spec: LaunchSpec, host: Host) -> RunFile:
    """The same run on other devices of its nodes."""
    host = as_counted_inside(placement, host)
    places = rank_places(placement, spec.ranks, spec.part)
    ranks = tuple(
        replace(rank, env=rank.env | named_devices(place, spec, host))
        for rank, place in zip(file.ranks, places, strict=True)
    )
    row = spec.row or file.row
    return replace(
        file,
        ranks=ranks,
        placement=repr(placement.slices),
        row=row,
        cgroups=replace(file.cgroups, minors=minors_of(placement, host)),
        role=placement.role.value if host.uuids else "",
    )


def base_env(ours: Mapping[str, str], account: Account | None = None) -> dict[str, str]:
    """What a program gets where its submitter says nothing: who it runs as, and where programs are.

    For another account than the manager's it is that account's own, and its folders too.
    """
    known = {"PATH": DEFAULT_PATH}
    if is_users(account):
        known |= {name: ours[name] for name in SHARED if name in ours}
        known |= {"HOME": account.home, "USER": account.name, "LOGNAME": account.name}
        return known | {"SHELL": account.shell}
    with contextlib.suppress(KeyError):  # a user without an entry
        user = pwd.getpwuid(os.getuid())
        known |= {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
        known["SHELL"] = user.pw_shell or "/bin/sh"
    return known | {name: ours[name] for name in HANDED_ON if name in ours}


def common_env(run: Run, spec: LaunchSpec, socket: str, generation: int) -> dict[str, str]:
    env = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "PYTHONUNBUFFERED": "1",
        wire.JOB: run.job,
        wire.ATTEMPT: str(run.attempt),
        RUN: f"{run.job}.{run.attempt}",
        wire.RESTART_COUNT: str(
            max(0, run.attempt - 1 - spec.prerun_attempts)
            + generation
            + (0 if spec.part is None else spec.part.generation)
        ),
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
    speed = dict(spec.speeds).get(node.name, node.type.speed_ppm)
    env = {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.world),
        "LOCAL_WORLD_SIZE": str(place.local_world),
        "NODE_RANK": str(place.node_rank),
        "GROUP_RANK": str(place.node_rank),
        wire.SPEED: str(speed * (1 if spec.launcher else place.slots)),
    } | named_devices(place, spec, host)
    if place.slots == 1:
        # Lightning and Hugging Face take it to mean that every GPU has a process of its own already.
        env["LOCAL_RANK"] = str(place.local_rank)
    if "OMP_NUM_THREADS" not in own:
        env["OMP_NUM_THREADS"] = str(threads(place, spec, node.cpus, node.gpus))
    return env


def named_devices(place: RankPlace, spec: LaunchSpec, host: Host) -> dict[str, str]:
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(device_names(place, spec, host)),
        DEVICES: names_of(place, host),
    }


def uuids_of(placement: Placement, spec: LaunchSpec, host: Host) -> list[str]:
    """The GPUs of all ranks, in their order."""
    places = rank_places(placement, spec.ranks)
    return [host.uuids[gpu] for place in places for gpu in place.devices]


def minors_of(placement: Placement, host: Host) -> tuple[int, ...] | None:
    """The GPUs that its processes may open; none on CPU slots; None: any."""
    if host.minors is None:
        return None
    own = {host.minors[piece.gpu] for piece in placement.slices} if host.uuids else set()
    return tuple(sorted(own))


def as_counted_inside(placement: Placement, host: Host) -> Host:
    """CUDA leaves out GPUs that a program may not open, and counts the others from 0 (not seen on hardware
    with several GPUs)."""
    if host.minors is None or not host.numbers:
        return host
    own = sorted({host.numbers[piece.gpu] for piece in placement.slices})
    inside = {number: position for position, number in enumerate(own)}
    return replace(host, numbers=tuple(inside.get(number, number) for number in host.numbers))


def device_names(place: RankPlace, spec: LaunchSpec, host: Host) -> list[str]:
    """The GPUs of a rank, by UUID; DeepSpeed's launcher reads numbers only."""
    if not host.uuids:
        return []
    if spec.launcher == launchers.DEEPSPEED and host.numbers and not spec.prefix:
        return [str(host.numbers[gpu]) for gpu in place.devices]
    return [host.uuids[gpu] for gpu in place.devices]


def names_of(place: RankPlace, host: Host) -> str:
    """The devices of a rank as `node:number`."""
    node = host.topology.nodes[host.topology.node_of_gpu[place.devices[0]]]
    return ",".join(f"{node.name}:{gpu - node.first_gpu}" for gpu in place.devices)


def threads(place: RankPlace, spec: LaunchSpec, cpus: int, gpus: int) -> int:
    """A process's share of its node's cores, unless the job states a number.

    A launcher starts one process for each of its GPUs, and hands its own environment on to them.
    """
    wanted = cpus * place.slots // max(1, gpus) if spec.cpus is None else spec.cpus
    return max(1, wanted // (place.slots if spec.launcher else 1) // 1000)


def meeting_of(part: GangPart | None) -> Meeting:
    """Where the gang's ranks meet: on a new port of this machine, unless they are on several."""
    if part is None or part.nodes == 1:
        return Meeting(launchers.LOOPBACK, str(free_port()))
    return Meeting(part.host, str(part.port))


# -- places --------------------------------------------------------------------------------------------


_given: list[int] = []
"""Ports handed out last: their programs may not listen yet."""
MOST_GIVEN = 512


def free_port(host: str = launchers.LOOPBACK) -> int:
    """A free port of this address of the machine that was not handed out recently."""
    while True:
        with socket.socket() as probe:
            probe.bind((host, 0))
            port: int = probe.getsockname()[1]
        if port not in _given:
            _given.append(port)
            del _given[:-MOST_GIVEN]
            return port
