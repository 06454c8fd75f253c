"""Looks at the processes of a cluster's nodes: answers each line on its standard input by one of JSON.

    python -m tests.ray.node_processes ADDRESS

A line is a question in JSON: {"alive": [MARK, ...]}, {"states": [[NODE, PID], ...]}, {"kill": MARK} or
{"sees": PATH}. Nodes need nothing of ours for it: the program is sent to them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tests.ray.cluster import ROOT

PER_NODE = 10**9
"""A process is known by its number and that of its node, in one."""


class NodeProcesses:
    """Those of all nodes, for a stage."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @classmethod
    @contextmanager
    def of(cls, address: str) -> Iterator[NodeProcesses]:
        words = [sys.executable, "-m", "tests.ray.node_processes", address]
        pipe = subprocess.PIPE
        with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as process:
            yield cls(process)

    def alive_with(self, *marks: str) -> list[int]:
        return [node * PER_NODE + pid for node, pid in self._ask({"alive": marks})]

    def state_of(self, number: int) -> str:
        (state,) = self._ask({"states": [divmod(number, PER_NODE)]})
        return str(state)

    def kill_with(self, mark: str) -> None:
        self._ask({"kill": mark})

    def all_see(self, path: Path) -> bool:
        return all(self._ask({"sees": str(path)}))

    def _ask(self, question: dict[str, Any]) -> list[Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        found: list[Any] = json.loads(self._process.stdout.readline())
        return found


class Looker:
    """On one node: by /proc, as tests/live/stage.py does, and without it."""

    def machine(self) -> str:
        """The same for nodes that see the same processes."""
        import os

        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"

    def sees(self, path: str) -> bool:
        import os

        return os.path.exists(path)

    def alive(self, marks: list[str]) -> list[int]:
        import os

        found, wanted = [], {mark.encode() for mark in marks}
        for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    has_all = wanted <= {*file.read().split(b"\0")}
            except OSError:
                continue
            if has_all and self.state(pid) not in ("Z", "X", ""):
                found.append(pid)
        return found

    def state(self, pid: int) -> str:
        try:
            with open(f"/proc/{pid}/stat", errors="replace") as file:
                return file.read().rpartition(")")[2].split()[0]
        except OSError:
            return ""

    def kill(self, mark: str) -> None:
        import os
        import signal
        from contextlib import suppress

        for pid in self.alive([mark]):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def main(address: str) -> None:
    ray.init(address=address, log_to_driver=False, logging_level="error")
    kind = ray.remote(num_cpus=0)(Looker)
    machines: dict[str, Any] = {}
    for node in ray.nodes():
        if node["Alive"]:
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            looker = kind.options(scheduling_strategy=there).remote()
            machines.setdefault(ray.get(looker.machine.remote()), looker)
    for line in sys.stdin:
        print(json.dumps(answer([*machines.values()], **json.loads(line))), flush=True)


def answer(
    lookers: list[Any],
    alive: list[str] | None = None,
    states: list[tuple[int, int]] | None = None,
    kill: str | None = None,
    sees: str | None = None,
) -> list[Any]:
    if alive is not None:
        found = ray.get([each.alive.remote(alive) for each in lookers])
        return [(node, pid) for node, pids in enumerate(found) for pid in pids]
    if states is not None:
        return [ray.get(lookers[node].state.remote(pid)) for node, pid in states]
    if sees is not None:
        return [*ray.get([each.sees.remote(sees) for each in lookers])]
    ray.get([each.kill.remote(kill) for each in lookers])
    return []


if __name__ == "__main__":
    main(sys.argv[1])
