"""Node events of a simulation: planned changes, and failures drawn by the seed."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable
from enum import IntEnum
from random import Random

from trainmaster.model import events as e
from trainmaster.perf.perf_model import FailureModel
from trainmaster.sim.engine import SimEngine


class NodeTransition(IntEnum):
    """The next event of a node that fails at random."""

    FAILS = 0
    NOTICED = 1
    """The failure is detected, and repair begins."""
    RETURNS = 2


class NodeSchedule:
    """Planned changes of the cluster, and random failures."""

    def __init__(
        self,
        node_failures: FailureModel,
        planned: Iterable[e.NodeChange],
        nodes: int,
        start_ms: int,
        seed: int,
    ) -> None:
        self._node_failures = node_failures
        self._random = Random(f"nodes/{seed}")
        self._planned = deque(sorted(planned, key=lambda planned: planned.at_ms))
        self.is_busy = bool(self._planned) or self._node_failures.mtbf_ms is not None
        """Whether there are any node events."""
        self._gone: set[int] = set()
        """Nodes that left by plan: they neither fail nor return from repair."""
        self._due: list[tuple[int, int, NodeTransition]] = []
        """(when, node, what) for failures and repairs."""
        if self._node_failures.mtbf_ms is not None:
            for node in range(nodes):
                self._due.append((start_ms + self._lifetime(), node, NodeTransition.FAILS))
            self._due.sort()

    def _lifetime(self) -> int:
        assert self._node_failures.mtbf_ms is not None
        return 1 + round(self._random.expovariate(1.0 / self._node_failures.mtbf_ms))

    def next_time(self, *, is_idle: bool) -> int | None:
        """Time of the next event; while nothing runs or arrives, failures of healthy nodes do not matter."""
        is_waited_for = not is_idle or any(
            transition is not NodeTransition.FAILS for _, _, transition in self._due
        )
        times = [self._due[0][0]] if self._due and is_waited_for else []
        if self._planned:
            times.append(self._planned[0].at_ms)
        return min(times, default=None)

    def facts_at(self, now: int, engine: SimEngine) -> list[e.Event]:
        facts: list[e.Event] = []
        while self._planned and self._planned[0].at_ms <= now:
            event = self._planned.popleft().event
            if isinstance(event, e.NodeLeft):
                self._gone.add(event.node)
                facts += engine.break_node(event.node, now)
                facts += engine.lose_node(event.node, now)
            else:
                if isinstance(event, e.NodeJoined):
                    self._gone.discard(event.node)
                facts.append(event)
        while self._due and self._due[0][0] <= now:
            _, node, transition = self._due.pop(0)
            is_here = node not in self._gone
            if transition is NodeTransition.FAILS:
                facts += engine.break_node(node, now) if is_here else ()
                after, following = self._node_failures.detection_ms, NodeTransition.NOTICED
            elif transition is NodeTransition.NOTICED:
                facts += engine.lose_node(node, now) if is_here else ()
                after, following = self._node_failures.repair_ms, NodeTransition.RETURNS
            else:
                facts += [e.NodeJoined(node)] if is_here else ()
                after, following = self._lifetime(), NodeTransition.FAILS
            insort(self._due, (now + after, node, following))
        return facts
