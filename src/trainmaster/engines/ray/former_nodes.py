"""Names that this machine had on the cluster before: what was left running under them ends.

A raylet that is started again under another name is a new node, with the devices of the old one. Runs of the
old one would go on there until its fence ends them. So the new launcher ends them before it takes calls.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog

from trainmaster.durable_files import write_whole
from trainmaster.engines.local.journal import BOOT
from trainmaster.engines.ray import fence, node_folder
from trainmaster.engines.ray.confirmation import ending
from trainmaster.engines.ray.node_facts import NodeFacts, UnusableNode
from trainmaster_sdk.process_tree import is_alive, stat_of

log = structlog.get_logger(__name__)

FILE = "raylet.json"
WHY = "Its raylet was started again under another name, so it was ended there."
PATIENCE_S = 5.0
PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class FormerNode:
    """Nothing of ours runs there any more, and its raylet is dead."""

    name: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class Raylet:
    """The process of a node, and what it hands out."""

    name: str
    incarnation: str
    pid: int
    born: str
    """By the clock of the kernel: numbers of processes come again."""
    processes: str
    """The namespace in which its number counts."""
    devices: tuple[str, ...]
    boot: str = BOOT

    @property
    def is_dead(self) -> bool:
        """Whether it ran where this process runs, and does not any more."""
        is_here = (self.boot, self.processes) == (BOOT, _processes())
        return is_here and not (is_alive(self.pid) and _born(self.pid) == self.born)


def raylet_of(facts: NodeFacts, pid: int, devices: Sequence[str]) -> Raylet:
    """CPU slots have no names: those of one address are taken to be the same."""
    named = tuple(devices) or (f"slots of {facts.host}",)
    return Raylet(facts.name, facts.incarnation, pid, _born(pid), _processes(), named)


def note(folder: Path, raylet: Raylet) -> None:
    write_whole(folder / FILE, json.dumps(asdict(raylet)))


def noted(folder: Path) -> Raylet | None:
    try:
        said = json.loads((folder / FILE).read_text())
        return Raylet(**said | {"devices": tuple(said["devices"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def end_former(folder: Path, raylet: Raylet) -> tuple[FormerNode, ...]:
    """End what dead raylets with devices of this one left running; UnusableNode where that cannot be."""
    found = []
    for other in sorted(folder.parent.iterdir()):
        said = None if other == folder else noted(other)
        if said is not None and said.is_dead and set(said.devices) & set(raylet.devices):
            lock = node_folder.take_over(other)
            try:
                if noted(other) == said:
                    _end(other, raylet.name)
                    found.append(FormerNode(said.name, said.incarnation))
            finally:
                os.close(lock)
    return tuple(found)


def _end(folder: Path, name: str) -> None:
    until = time.monotonic() + PATIENCE_S
    with ending(folder):
        while fence.live_runs(folder):
            fence.end_runs(folder, WHY)
            if time.monotonic() >= until:
                raise UnusableNode(
                    f"What was left running in {folder} when {name} had another name cannot be ended."
                )
            time.sleep(PAUSE_S)


def _born(pid: int) -> str:
    fields = stat_of(pid)
    return fields[19].decode() if fields else ""


def _processes() -> str:
    return os.readlink("/proc/self/ns/pid")
