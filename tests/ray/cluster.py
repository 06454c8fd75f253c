"""A Ray cluster of several nodes on this machine, for tests: each node has its own address on the loopback.

Ray listens on all interfaces whatever it is told, so this is for a network namespace of its own
(`python -m tests.ray`). Nodes have as many GPUs and CPUs as they say; no device is behind them. Everything is
ended by pid: what belongs to a node carries its mark in the environment.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import IO, Any
from uuid import uuid4

from tests.live.daemons import until
from tests.live.stage import state_of, supervisors
from tests.ray.namespace import refuse_open_network
from trainmaster.engines.ray.node_facts import SLOTS_LABEL
from trainmaster.engines.ray.node_folder import NODE_DATA

ROOT = Path(__file__).parents[2]

FIRST_PORT = 6399
"""Not one of those that Ray gives to its workers."""
CLIENT_PORT = 20000
STORE_BYTES = 80_000_000
MARK = "TRAINMASTER_TEST_RAY_NODE"
HEAD = "head"
PATIENCE_S = 120.0
ANSWER_S = 10.0
_nets = count(1)
"""Each cluster of this process has addresses of its own."""
TUNED = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_raylet_start_wait_time_s": "100",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "20",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
}
"""A node that is frozen is dead after some 10 s, and not after a minute; one that is killed sooner. On a busy
machine all is late by seconds."""


@dataclass(frozen=True)
class RayNode:
    """What a node says that it has."""

    name: str
    gpus: int = 4
    cpus: int = 4
    labels: Mapping[str, str] = field(default_factory=dict)


def two_racks(nodes: int, gpus: int = 4) -> tuple[RayNode, ...]:
    """So many nodes in two racks, from n0 on."""
    racks = [{"rack": f"r{2 * number // nodes}"} for number in range(nodes)]
    return tuple(RayNode(f"n{number}", gpus, gpus, rack) for number, rack in enumerate(racks))


class RayCluster:
    """A head without devices, and nodes; processes of a node are found by the mark that they carry."""

    def __init__(self, folder: Path, nodes: Iterable[RayNode], hidden: Path | None = None) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.hidden = hidden
        """A folder of this machine that the nodes do not see: each has an empty one in its place."""
        self.folder = folder
        self.session = uuid4().hex[:12]
        self.net = next(_nets)
        self.address = f"127.0.{self.net}.1:{FIRST_PORT + self.net}"
        self._hosts: dict[str, str] = {}
        self.truth = Truth(self.address)
        self._gcs: tuple[list[str], dict[str, str]] | None = None

    # -- its life ------------------------------------------------------------------------------------------

    @classmethod
    @contextmanager
    def running(cls, *nodes: RayNode, hidden: Path | None = None) -> Iterator[RayCluster]:
        """A cluster of which nothing is left afterwards."""
        folder = Path(mkdtemp(prefix="tm-ray-"))  # paths of sockets have to be short
        cluster = cls(folder, nodes, hidden)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.close()
            shutil.rmtree(cluster.folder, ignore_errors=True)

    def start(self) -> None:
        refuse_open_network()
        self.start_head()
        starting = {node.name: self._begin(node) for node in self.nodes.values()}
        for name, process in starting.items():
            if not self._has_come_up(name, process):
                self._say_why_not(name)
                self.kill_node(name)
                process = self._begin(self.nodes[name])
            self._finish(name, process)
        self.until_nodes(*self.nodes)

    def _has_come_up(self, name: str, process: subprocess.Popen[bytes]) -> bool:
        """Two nodes that start at once may choose the same port: then one raylet ends, and `ray start` would
        wait for it as long as for one on a busy machine."""
        until(
            lambda: process.poll() is not None or not self.raylet(name),
            f"{name} to start",
            PATIENCE_S,
        )
        return process.poll() == 0

    def _say_why_not(self, name: str) -> None:
        print((self.folder / f"{name}.out").read_text(), *self._last_words(), sep="\n", flush=True)

    def _last_words(self) -> list[str]:
        """The ends of what raylets have logged."""
        logs = sorted((self.folder / "session_latest" / "logs").glob("raylet*"))
        return [f"{log.name}: {log.read_text(errors='replace')[-1500:]}" for log in logs]

    def close(self) -> None:
        """End whatever carries a mark of this cluster, and all that it has started."""
        self.truth.close()
        end_all(lambda: [*marked(self.session), *self._of_runs("*")])

    # -- the head ------------------------------------------------------------------------------------------

    def start_head(self) -> None:
        """A new one; or, after `kill_head`, its control store (GCS) again, at the same address."""
        if self._gcs is not None:
            argv, env = self._gcs
            with (self.folder / "gcs.out").open("ab") as out:
                subprocess.Popen(argv, env=env, stdout=out, stderr=out, start_new_session=True)
        else:
            words = (
                "--head",
                f"--port={self.address.partition(':')[2]}",
                "--include-dashboard=false",
            )
            place = (
                f"--temp-dir={self.folder}",
                f"--ray-client-server-port={CLIENT_PORT + self.net}",
            )
            self._finish(
                HEAD, self._ray_start(HEAD, f"127.0.{self.net}.1", 0, 0, {}, *words, *place)
            )
        until(self.gcs, "the head's control store")

    def gcs(self) -> list[int]:
        return [pid for pid in self.pids(HEAD) if program_of(pid) == "gcs_server"]

    def kill_head(self) -> None:
        """The control store alone, as a restart of the head does it for workers."""
        (pid,) = self.gcs()
        self._gcs = (words_of(pid), environ_of(pid))
        kill(pid)

    @contextmanager
    def frozen_head(self) -> Iterator[None]:
        with stopped(self.gcs()):
            yield

    # -- nodes ---------------------------------------------------------------------------------------------

    def raylet(self, name: str) -> list[int]:
        return [pid for pid in self.pids(name) if program_of(pid) == "raylet"]

    def start_node(self, name: str, called: str | None = None) -> None:
        """A node that is gone comes back, under another name if one is given."""
        known = self.nodes[name]
        node = RayNode(called or name, known.gpus, known.cpus, known.labels)
        self.nodes[node.name] = node
        self._hosts.setdefault(node.name, self._hosts[name])
        self._finish(node.name, self._begin(node))
        self.until_nodes(node.name)

    def kill_raylet(self, name: str) -> None:
        """What it started may live on for a moment, and supervisors for as long as they like."""
        for pid in self.raylet(name):
            kill(pid)

    def kill_node(self, name: str) -> None:
        """Everything on it at once, as when its power goes."""
        end_all(lambda: self.pids(name))

    @contextmanager
    def frozen_raylet(self, name: str) -> Iterator[None]:
        with stopped(self.raylet(name)):
            yield

    def pids(self, name: str) -> list[int]:
        """What Ray runs on this node, and all that this has started."""
        return sorted({*marked(f"{self.session}:{name}"), *self._of_runs(name)})

    def _of_runs(self, name: str) -> set[int]:
        """Supervisors on this node, or on all (*), with their guards and ranks: they carry no mark."""
        runs = (self.folder / "data").glob(f"*/{name}/runs/*/*")
        own = {pid for run in runs for pid in supervisors(run)}
        own |= {guard for pid in own if is_guard(guard := parent_of(pid))}
        rows = {pid: parent_of(pid) for pid in living()}
        return {pid for pid in rows if own & set(ancestors(pid, rows))}

    def node_of(self, pid: int) -> str | None:
        """The node that a process is on: that of its nearest ancestor with a mark."""
        while pid > 1:
            mark = environ_of(pid).get(MARK, "")
            if mark.startswith(self.session):
                return mark.partition(":")[2]
            pid = parent_of(pid)
        return None

    # -- Ray's truth ---------------------------------------------------------------------------------------

    def alive(self) -> set[str]:
        """Names of the nodes that Ray believes to be alive, without the head."""
        return {row["name"] for row in self.truth.ask() if row["alive"]} - {HEAD}

    def until_answers(self) -> None:
        self.truth.close()
        self.truth.ask()

    def until_nodes(self, *names: str) -> None:
        until(lambda: set(names) <= self.alive(), f"{names} to be alive")

    def until_gone(self, name: str) -> None:
        until(lambda: name not in self.alive(), f"{name} to be dead")

    def taken(self) -> dict[str, float]:
        """GPUs that are taken on each living node, as every other user of the cluster sees it."""
        rows = [row for row in self.truth.ask() if row["alive"] and row["name"] != HEAD]
        return {row["name"]: row["taken"] for row in rows}

    def _begin(self, node: RayNode) -> subprocess.Popen[bytes]:
        host = self._hosts.setdefault(node.name, f"127.0.{self.net}.{2 + len(self._hosts)}")
        words = f"--address={self.address}"
        process = self._ray_start(node.name, host, node.gpus, node.cpus, node.labels, words)
        # Two that start at once would choose the same sockets.
        until(lambda: self.raylet(node.name) or process.poll(), f"the raylet of {node.name}")
        return process

    def _ray_start(
        self, name: str, host: str, gpus: int, cpus: int, labels: Mapping[str, str], *words: str
    ) -> subprocess.Popen[bytes]:
        mark = {MARK: f"{self.session}:{name}", NODE_DATA: str(self.folder / "data")}
        labels = {**({SLOTS_LABEL: str(gpus)} if gpus else {}), **labels}
        said = ",".join(f"{key}={value}" for key, value in labels.items())
        with (self.folder / f"{name}.out").open("ab") as out:
            return subprocess.Popen(
                [
                    *self._without_hidden(name),
                    *(str(Path(sys.executable).with_name("ray")), "start", *words),
                    *(f"--node-ip-address={host}", f"--node-name={name}"),
                    *(f"--num-gpus={gpus}", f"--num-cpus={cpus}", f"--labels={said}"),
                    *(f"--object-store-memory={STORE_BYTES}", "--disable-usage-stats"),
                    *("--min-worker-port=0", "--max-worker-port=0"),
                    "--dashboard-agent-listen-port=0",
                ],
                env=os.environ | TUNED | mark | self._kept(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def _without_hidden(self, name: str) -> tuple[str, ...]:
        """What a node's raylet is started by, so that it has a view of the disk of its own."""
        if self.hidden is None or name == HEAD:
            return ()
        script = 'mount -t tmpfs none "$0" && exec "$@"'
        return ("unshare", "--mount", "sh", "-c", script, str(self.hidden))

    def _kept(self) -> dict[str, str]:
        """What keeps the head's knowledge over a restart, and lets launchers import what tests give them."""
        store = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(self.folder / "gcs")}
        return store | {"PYTHONPATH": str(ROOT)}

    def _finish(self, name: str, process: subprocess.Popen[bytes]) -> None:
        code = process.wait(PATIENCE_S)
        assert code == 0, f"ray start of {name}: {(self.folder / f'{name}.out').read_text()}"


class Truth:
    """What Ray's control store says, asked by a process apart: Ray's client ends its process when the store
    is away for long."""

    def __init__(self, address: str) -> None:
        self._words = [sys.executable, "-m", "tests.ray.truth", address]
        self._asker: subprocess.Popen[str] | None = None

    def ask(self) -> list[dict[str, Any]]:
        """Its nodes, as soon as it answers."""
        return until(self.answer, "Ray's control store to answer")["nodes"]

    def answer(self) -> dict[str, Any] | None:
        """Its nodes and placement groups; None where it does not answer now."""
        if self._asker is None or self._asker.poll() is not None:
            self._asker = subprocess.Popen(
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                cwd=ROOT,
            )
        assert self._asker.stdin is not None
        assert self._asker.stdout is not None
        try:
            self._asker.stdin.write("?\n")
            self._asker.stdin.flush()
            line = self._asker.stdout.readline() if ready(self._asker.stdout, ANSWER_S) else ""
        except BrokenPipeError:
            line = ""
        if not line:
            self.close()
            return None
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        if self._asker is not None:
            self._asker.kill()
            self._asker.communicate()
            self._asker = None


# -- processes ---------------------------------------------------------------------------------------------


def marked(mark: str) -> list[int]:
    """Living processes with this mark (a session, or one of its nodes), and all that they have started."""
    rows = {pid: parent_of(pid) for pid in living()}
    own = {pid for pid in rows if is_marked(environ_of(pid).get(MARK, ""), mark)}
    found = {pid for pid in rows if own & set(ancestors(pid, rows))}
    return sorted(found | own)


def is_marked(said: str, mark: str) -> bool:
    return said == mark or said.startswith(f"{mark}:")


def ancestors(pid: int, rows: Mapping[int, int]) -> Iterator[int]:
    while pid in rows:
        yield pid
        pid = rows[pid]


def living() -> list[int]:
    found = map(int, filter(str.isdecimal, os.listdir("/proc")))
    return [pid for pid in found if state_of(pid) not in ("Z", "X", "")]


def parent_of(pid: int) -> int:
    with suppress(OSError, IndexError):
        said = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        return int(said.rpartition(")")[2].split()[1])
    return 0


def is_guard(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text() == "tm guard\n"
    return False


def words_of(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    return []


def program_of(pid: int) -> str:
    return next((Path(word).name for word in words_of(pid)[:1]), "")


def environ_of(pid: int) -> dict[str, str]:
    with suppress(OSError):
        said = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        return dict(each.split("=", 1) for each in said.split("\0") if "=" in each)
    return {}


def kill(pid: int) -> None:
    """And wait until it is gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    until(lambda: state_of(pid) in ("Z", "X", ""), f"process {pid} to be gone")


def end_all(find: Callable[[], list[int]]) -> None:
    """Until none is left: what is ended may just be starting another."""

    def none_left() -> bool:
        found = find()
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    until(none_left, "all processes to be gone")


@contextmanager
def stopped(pids: Iterable[int]) -> Iterator[None]:
    pids = tuple(pids)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def ready(stream: IO[str], seconds: float) -> bool:
    return bool(select.select([stream], [], [], seconds)[0])
