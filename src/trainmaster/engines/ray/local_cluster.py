"""A Ray cluster of several nodes on this machine, for trying out: started once, and left running.

Ray listens on all interfaces whatever it is told, so it asks everybody for a token. Its processes are known
by a mark in their environment.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import mkdtemp

from trainmaster.durable_files import write_whole
from trainmaster.engines.local.processes import variables_of
from trainmaster.engines.local.worker_environment import RUN
from trainmaster.engines.protocol import EngineError
from trainmaster.engines.ray.node_facts import SLOTS_LABEL
from trainmaster.gpu.devices import cores, find_gpus, host_memory, visible
from trainmaster.text.formatting import plural
from trainmaster_sdk.process_tree import all_pids

FILE = "ray-cluster.json"
"""In the data folder."""
TOKEN = "ray-token"
HOST = "127.0.0.1"
MARK = "TRAINMASTER_LOCAL_RAY"
NODE = "TRAINMASTER_LOCAL_RAY_NODE"
"""In the environment of a node's raylet, and of what it starts: the node's number."""
RAYLET = "raylet"
PORTS = range(6379, 10000)
"""Ray gives those from 10002 on to its workers."""
STORE_BYTES = 80_000_000
START_S = 120.0
Share = tuple[dict[str, str], tuple[str, ...]]
"""What a node is started with: variables, and words."""


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """What is written down of it."""

    address: str
    temp_dir: str
    nodes: int
    token: str
    """The file with what Ray asks for."""
    slots: int | None = None
    """CPU slots of each node; None: its part of the GPUs or cores."""

    @property
    def environ(self) -> dict[str, str]:
        """For all that talk to it, and for its own processes."""
        return {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": self.token,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
        }


def running(folder: Path) -> LocalCluster | None:
    """The cluster of a data folder, if its head answers."""
    try:
        found = LocalCluster(**json.loads((folder / FILE).read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise EngineError(f"{folder / FILE} cannot be read: {error}") from None
    host, _, port = found.address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 2.0).close()
    except OSError:
        return None
    return found


def start(folder: Path, nodes: int, slots: int | None, say: Callable[[str], None]) -> LocalCluster:
    """The cluster that is there, with the nodes that have died since, or a new one of so many nodes."""
    found = running(folder)
    if found is not None:
        if (found.nodes, found.slots) != (nodes, slots):
            raise EngineError(
                f"A local Ray of {_described(found)} runs already, and what it has does not change while it"
                " runs: `trainmaster down --ray` ends it."
            )
        _start_missing(found, say)
        return found
    stop(folder)  # what a crash has left of it
    say(f"Starting a Ray cluster of {plural(nodes, 'node')} on this machine...")
    token = folder / TOKEN
    if not token.exists():
        write_whole(token, secrets.token_hex(32), 0o600)
    port = next(each for each in PORTS if _is_free(each))
    place = mkdtemp(prefix="tm-ray-")
    cluster = LocalCluster(f"{HOST}:{port}", place, nodes, str(token), slots)
    write_whole(folder / FILE, json.dumps(asdict(cluster)))
    try:
        _start_all(cluster, port, say)
    except BaseException:
        stop(folder)
        raise
    return cluster


def stop(folder: Path) -> int:
    """End it by pid; how many processes there were. Runs on it are ended by their fences."""
    try:
        cluster = LocalCluster(**json.loads((folder / FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return 0
    ended = 0
    until = time.monotonic() + START_S
    while (pids := list(processes_of(cluster))) and time.monotonic() < until:
        ended = max(ended, len(pids))
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    shutil.rmtree(cluster.temp_dir, ignore_errors=True)
    (folder / FILE).unlink(missing_ok=True)
    return ended


def processes_of(cluster: LocalCluster) -> Iterator[int]:
    """Those of Ray, and launchers; runs and their fences have other names or are of a run."""
    for pid in all_pids():
        said = variables_of(pid, (MARK,))
        if said is not None and said[0] == cluster.temp_dir and not _is_of_runs(pid):
            yield pid


def nodes_of(cluster: LocalCluster) -> set[str]:
    """The numbers of those whose raylets run."""
    raylets = (pid for pid in processes_of(cluster) if _name_of(pid) == RAYLET)
    return {said[0] for pid in raylets if (said := variables_of(pid, (NODE,))) is not None}


def announced(cluster: LocalCluster) -> str:
    """What it listens on."""
    return (
        f"A Ray cluster of {_described(cluster)} runs at {cluster.address}, for trying out. Ray listens on"
        f" all interfaces of this machine and asks for the token in {cluster.token}: keep this machine behind"
        " a firewall all the same. It goes on when the manager stops; `trainmaster down --ray` ends it."
    )


def _described(cluster: LocalCluster) -> str:
    slots = "" if cluster.slots is None else f" with {plural(cluster.slots, 'CPU slot')} each"
    return f"{plural(cluster.nodes, 'node')}{slots}"


def _start_all(cluster: LocalCluster, port: int, say: Callable[[str], None]) -> None:
    rows = list(_shares(cluster.nodes, cluster.slots))
    _ray_start(
        cluster,
        {},
        *("--head", f"--port={port}", "--node-name=head", "--num-gpus=0", "--num-cpus=0"),
        *("--include-dashboard=false", f"--temp-dir={cluster.temp_dir}"),
        f"--ray-client-server-port={_free_port()}",
    )
    for number, row in enumerate(rows):
        say(f"Its head and {number} of its {plural(len(rows), 'node')} run.")
        _start_node(cluster, number, row)


def _start_missing(cluster: LocalCluster, say: Callable[[str], None]) -> None:
    """Nodes whose raylets have died."""
    there = nodes_of(cluster)
    for number, row in enumerate(_shares(cluster.nodes, cluster.slots)):
        if str(number) not in there:
            say(f"Starting node{number} again, whose raylet has died...")
            _start_node(cluster, number, row)


def _start_node(cluster: LocalCluster, number: int, row: Share) -> None:
    environ, words = row
    named = (f"--address={cluster.address}", f"--node-name=node{number}")
    _ray_start(cluster, environ | {NODE: str(number)}, *named, *words)


def _shares(nodes: int, slots: int | None) -> Iterator[Share]:
    """Environment and words of each node: its part of the GPUs, or CPU slots."""
    gpus = () if slots else visible(find_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    cpus = max(1, cores() // nodes)
    memory = f"--memory={host_memory() // (nodes + 1)}"
    each = len(gpus) // nodes
    if gpus and not each:
        raise EngineError(f"--nodes {nodes} is more than the {len(gpus)} GPUs of this machine.")
    for number in range(nodes):
        own = gpus[number * each : (number + 1) * each]
        if own:
            uuids = ",".join(gpu.uuid for gpu in own)
            words = (f"--num-gpus={len(own)}", f"--num-cpus={cpus}", memory)
            yield {"CUDA_VISIBLE_DEVICES": uuids}, words
        else:
            count = slots or cpus
            yield (
                {},
                (
                    *(f"--num-gpus={count}", f"--num-cpus={max(cpus, count)}", memory),
                    f"--labels={SLOTS_LABEL}={count}",
                ),
            )


def _ray_start(cluster: LocalCluster, environ: dict[str, str], *words: str) -> None:
    """Ends as soon as the node is there, and leaves it running."""
    log = Path(cluster.temp_dir) / "start.log"
    with log.open("ab") as out:
        done = subprocess.run(
            [
                *(str(Path(sys.executable).with_name("ray")), "start", *words),
                *(f"--node-ip-address={HOST}", f"--object-store-memory={STORE_BYTES}"),
                *("--disable-usage-stats", "--min-worker-port=0", "--max-worker-port=0"),
                "--dashboard-agent-listen-port=0",
            ],
            check=False,
            env=os.environ | cluster.environ | {MARK: cluster.temp_dir} | environ,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            timeout=START_S,
        )
    if done.returncode:
        last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
        raise EngineError(f"Ray could not be started: {''.join(last)}")


def _is_of_runs(pid: int) -> bool:
    """Whether it is a run's supervisor or program, or a fence: they end by themselves."""
    name = _name_of(pid)
    is_ours = name.startswith("tm ") and name != "tm fork server"
    return is_ours or variables_of(pid, (RUN,)) is not None


def _name_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _is_free(port: int) -> bool:
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            line.bind(("", port))
            return True
    return False


def _free_port() -> int:
    with socket.socket() as line:
        line.bind(("", 0))
        return int(line.getsockname()[1])
