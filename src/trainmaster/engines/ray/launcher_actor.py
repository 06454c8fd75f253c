"""The actor of a node: it has the node's launcher, and confirms to the fence that the node is alive.

There is one for each node, detached and named by the node's incarnation, so that it outlives the manager. Ray
starts it again when its process dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import structlog

from trainmaster import __version__
from trainmaster.engines.local.journal import steady_ms
from trainmaster.engines.protocol import EngineError
from trainmaster.engines.ray import fence, former_nodes, node_folder
from trainmaster.engines.ray.confirmation import Confirmation, confirm
from trainmaster.engines.ray.former_nodes import FormerNode
from trainmaster.engines.ray.node_facts import NodeFacts, UnusableNode, cluster_node, machine_on
from trainmaster.model.engine_reports import ClusterNode

log = structlog.get_logger(__name__)

LAUNCHER = "trainmaster.engines.ray.launcher:Launcher"
FIRST_S = 20.0
"""How long Ray's control store may take to confirm a node at the start."""
ANSWER_S = 5.0
MOST_PAUSE_S = 5.0
NOT_OURS = frozenset({"LD_PRELOAD", "RAY_RAYLET_PID", "RAY_JOB_ID"})
"""Variables that are Ray's own, and no programs'."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a launcher is started with."""

    facts: NodeFacts
    store: str
    fence_s: float
    version: str
    serves_users: bool = False
    """Whether jobs run as the users who submit them."""
    launcher: str = LAUNCHER
    """Its class, as module and name."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """A launcher that takes calls."""

    launcher: str
    """Of this process, at random: another one has other runs in its memory."""
    start: Start
    node: ClusterNode
    remarks: tuple[str, ...] = ()
    former: tuple[FormerNode, ...] = ()
    """What its machine was before."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A node that cannot be used: one sentence."""

    why: str


class Unconfirmed(Exception):
    """Ray's control store has not confirmed the node for so long that its runs were ended."""


class LauncherActor:
    """Words and answers are pickled, so that only the manager and the launcher need to know their types."""

    def __init__(self, start: bytes) -> None:
        self._said: Start = pickle.loads(start)
        self._facts = self._said.facts
        self._id = uuid4().hex
        self._welcome: Welcome | Refusal | None = None
        self._starting = asyncio.Lock()
        self._launcher: Any = None
        self._confirmed_ms = 0
        _take_raylets_niceness()
        self._raylet = _raylet_pid(os.environ)
        environ = raylet_environ(os.environ)
        self._environ = environ
        self._folder = node_folder.node_folder(self._said.store, self._facts.name, environ)
        try:
            node_folder.open_folder(self._folder)
            self._lock = node_folder.take_over(self._folder)
            if self._said.version != __version__:
                raise UnusableNode(
                    f"Trainmaster on {self._facts.name} is {__version__}, and the manager's is"
                    f" {self._said.version}: install the same, and restart its raylet."
                )
            if self._said.serves_users and os.geteuid() != 0:
                raise UnusableNode(
                    f"The raylet of {self._facts.name} is not root's, and the manager starts jobs as the"
                    " users who submit them: start it as root, or the manager without --run-as-user."
                )
            self._watch_fence()
        except UnusableNode as why:
            self._welcome = Refusal(str(why))
            return
        except OSError as error:
            self._welcome = Refusal(f"{self._folder} on {self._facts.name}: {error.strerror}.")

    async def start(self) -> bytes:
        """The launcher's welcome or its refusal, pickled."""
        async with self._starting:
            if self._welcome is None:
                self._welcome = await self._start()
        return pickle.dumps(self._welcome)

    async def call(self, method: str, words: bytes) -> bytes:
        """Whether the method was carried out, and its answer or its exception, pickled."""
        try:
            if not isinstance(self._welcome, Welcome):
                raise Unconfirmed("it has not been started")
            if self._is_stale():
                raise Unconfirmed("Ray's control store does not confirm that it is alive")
            return pickle.dumps((True, await getattr(self._launcher, method)(*pickle.loads(words))))
        except Exception as error:
            return pickle.dumps((False, error))

    async def _start(self) -> Welcome | Refusal:
        """Only what takes calls confirms: a launcher that is refused leaves the fence as it was."""
        facts = self._facts
        _take_raylets_niceness()  # each thread has its own
        os.environ.clear()
        os.environ.update(self._environ)
        try:
            machine = machine_on(facts, self._environ)
            raylet = former_nodes.raylet_of(facts, self._raylet, machine.devices)
            former_nodes.note(self._folder, raylet)
            former = await asyncio.to_thread(former_nodes.end_former, self._folder, raylet)
            self._launcher = _class_of(self._said.launcher)(self._folder, machine)
            await self._launcher.open()
        except (UnusableNode, EngineError, OSError) as why:
            return Refusal(str(why))
        is_alive = alive_by_ray(facts.incarnation)
        if not await asyncio.to_thread(self._is_confirmed_soon, is_alive):
            return Refusal(
                f"Ray's control store does not confirm to {facts.name} that it is alive."
            )
        words = (is_alive,)
        threading.Thread(target=self._confirm, args=words, name="confirm", daemon=True).start()
        node = cluster_node(facts, machine)
        return Welcome(self._id, self._said, node, tuple(_remarks()), former)

    # -- alive ---------------------------------------------------------------------------------------------

    def _is_stale(self) -> bool:
        return steady_ms() - self._confirmed_ms > self._said.fence_s * 1000

    def _is_confirmed_soon(self, is_alive: Callable[[float], bool]) -> bool:
        until = time.monotonic() + FIRST_S
        while time.monotonic() < until:
            if self._confirm_once(is_alive):
                return True
            time.sleep(0.2)
        return False

    def _confirm(self, is_alive: Callable[[float], bool]) -> None:
        """Ask for ever whether this incarnation of the node is alive; once it is not, this process ends."""
        while True:
            time.sleep(min(MOST_PAUSE_S, self._said.fence_s / 8))
            self._confirm_once(is_alive)

    def _confirm_once(self, is_alive: Callable[[float], bool]) -> bool:
        asked_ms = steady_ms()
        try:
            answer = is_alive(max(1.0, min(ANSWER_S, self._said.fence_s / 4)))
        except Exception as error:  # whatever Ray raises while its store is away
            log.warning("Ray's control store does not answer", why=str(error))
            return False
        if not answer:
            log.error("Ray counts this node as dead", node=self._facts.name)
            os._exit(0)
        return self._note(asked_ms)

    def _note(self, asked_ms: int) -> bool:
        fence_ms = int(self._said.fence_s * 1000)
        try:
            self._watch_fence()
            confirm(self._folder, Confirmation(asked_ms, fence_ms, self._facts.incarnation))
        except (OSError, UnusableNode) as error:
            log.error("the fence could not be told", why=str(error))
            return False
        self._confirmed_ms = asked_ms
        return True

    def _watch_fence(self) -> None:
        """Have a fence on this node: without one there are no runs."""
        try:
            fence.start(self._folder, self._environ)
        except subprocess.CalledProcessError as error:
            raise UnusableNode(
                f"The fence of {self._facts.name} ended with {error.returncode} at its start."
            ) from None


def alive_by_ray(incarnation: str) -> Callable[[float], bool]:
    """Asks Ray's control store for this node. Ray has no public word for one node alone."""
    import ray._private.worker
    from ray._raylet import NodeID

    client = ray._private.worker.global_worker.gcs_client
    node = NodeID.from_hex(incarnation)
    return lambda timeout_s: bool(client.check_alive([node], timeout=timeout_s)[0])


def raylet_environ(own: Mapping[str, str]) -> dict[str, str]:
    """The variables that the node's raylet was started with: those of a worker are Ray's for its tasks, and
    hide the GPUs."""
    try:
        said = Path(f"/proc/{_raylet_pid(own)}/environ").read_bytes()
    except OSError:
        return dict(own)
    rows = (row.split("=", 1) for row in os.fsdecode(said).split("\0") if "=" in row)
    return {name: value for name, value in rows if name not in NOT_OURS}


def _raylet_pid(own: Mapping[str, str]) -> int:
    return int(own.get("RAY_RAYLET_PID") or os.getppid())


def _take_raylets_niceness() -> None:
    """Ray starts its workers with a low priority, which runs and their fence would have too."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _raylets_niceness())


def _raylets_niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, os.getppid())


def _remarks() -> Iterator[str]:
    if os.getpriority(os.PRIO_PROCESS, 0) > _raylets_niceness():
        yield (
            "Ray gives its workers, and so jobs, a low priority: set RAY_worker_niceness=0 for its raylet."
        )


def _class_of(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
