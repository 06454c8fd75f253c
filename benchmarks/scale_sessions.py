"""The manager's half of one waiting call per node: real sessions, to nodes that answer after a time.

Each call and each answer is pickled and read again, as on the way through the gateway; what Ray's own process
does beyond that is not in it. Measured in processor time and memory of this process.
"""

from __future__ import annotations

import asyncio
import gc
import pickle
import random
import resource
import time
from collections.abc import Callable, Mapping
from typing import Any

from trainmaster.engines.protocol import Abilities
from trainmaster.engines.ray.frames import framed
from trainmaster.engines.ray.node_link import NodeNews
from trainmaster.engines.ray.node_reports import Batch, Begun, PartReport
from trainmaster.engines.ray.node_session import NodeSession
from trainmaster.model.engine_reports import Progressed
from trainmaster.model.job import Run

WINDOW_S = 10.0
HEAD = len(framed(None)) - len(pickle.dumps(None))
"""Bytes before each value."""


class DistantNodes:
    """Keeps NodeLink for calls: a node has news every so many seconds, at random."""

    def __init__(self, seed: int = 0) -> None:
        self.news_s = 20.0
        self.answers = 0
        self._random = random.Random(seed)
        self._numbers: dict[str, int] = {}

    async def open(self, tell: Callable[[NodeNews], None]) -> None:
        pass

    async def call(self, node: str, method: str, *words: object) -> object:
        """Of `next`: one progress report, when there is news."""
        sent(("call", node, method, words))
        if method == "begin":
            return sent(Begun(1, Abilities(True, True, True)))
        await asyncio.sleep(self._random.expovariate(1 / self.news_s))
        self.answers += 1
        self._numbers[node] = number = self._numbers.get(node, 0) + 1
        report = Progressed(Run(node, 1), 0, step=number, loss=1.0, samples_per_s=100.0)
        return sent(Batch(number, (PartReport(number, report),)))

    async def reserve(
        self, run: Run, thousandths: Mapping[str, int], cpus: Mapping[str, int]
    ) -> None:
        pass

    async def reserved(self) -> Mapping[Run, Mapping[str, int]]:
        return {}

    def troubles(self) -> tuple[str, ...]:
        return ()

    async def close(self) -> None:
        pass


def sent(value: object) -> Any:
    """As the other side reads it."""
    return pickle.loads(framed(value)[HEAD:])


async def _measured(nodes: int) -> dict[str, Any]:
    async def begun(session: NodeSession) -> None:
        session.is_usable = True

    async def take(node: str, batch: Batch) -> None:
        pass

    link = DistantNodes()
    gc.collect()
    before = _memory_kib()
    sessions = [NodeSession(link, f"n{number}", begun, take) for number in range(nodes)]
    await asyncio.sleep(1.0)
    found: dict[str, Any] = {
        "nodes": nodes,
        "memory_kib": round((_memory_kib() - before) / nodes, 1),
    }
    for name, news_s in (("idle", 20.0), ("busy", 1.0)):
        link.news_s = news_s
        if name == "busy":
            await asyncio.sleep(5.0)
        began, began_cpu, answers = time.monotonic(), time.thread_time(), link.answers
        await asyncio.sleep(WINDOW_S)
        took, count = time.monotonic() - began, link.answers - answers
        spent = time.thread_time() - began_cpu
        found[name] = {
            "answers_per_s": round(count / took, 1),
            "us_each": round(spent / max(1, count) * 1e6),
            "core": round(spent / took, 4),
        }
    for each in sessions:
        await each.close()
    return found


def _memory_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measured(counts: tuple[int, ...] = (100, 1000)) -> list[dict[str, Any]]:
    return [asyncio.run(_measured(count)) for count in counts]
