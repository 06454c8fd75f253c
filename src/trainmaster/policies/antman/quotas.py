"""How many GPUs each queue may hold as its own: stated, or by weight.

`--queues FILE` with `guaranteed_gpus` states quotas. Where it states none, the weights divide the
cluster: those of the `queues` option, else those of the file. A queue that is not named then has no
quota. With neither option nor file nobody is bound, and queues only take turns. No quota is above the
queue's maximum, or that of a queue around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainmaster.model.queue import Queue
from trainmaster.model.units import NOMINAL
from trainmaster.policies.antman.queue_limits import ceiling


@dataclass(frozen=True, slots=True)
class Quotas:
    """Thousandths of a GPU by queue; None = nobody is bound."""

    by_queue: Mapping[str, int] | None

    @classmethod
    def of(cls, queues: Mapping[str, Queue], weights: Mapping[str, int], total: int) -> Quotas:
        stated = {name: queue.guaranteed for name, queue in queues.items() if queue.guaranteed}
        if stated:
            return cls(_capped(stated, queues))
        named = dict(weights) or {name: queue.weight for name, queue in queues.items()}
        if not named:
            return cls(None)
        heavy = sum(named.values())
        shares = {name: total * weight // heavy for name, weight in named.items()}
        return cls(_capped(shares, queues))

    def of_queue(self, queue: str) -> int | None:
        return None if self.by_queue is None else self.by_queue.get(queue, 0)

    def allow(self, queue: str, size: int) -> bool:
        """Whether so much is within the queue's quota."""
        quota = self.of_queue(queue)
        return quota is None or size <= quota

    def used(self, queue: str, held: int) -> int:
        """The part of its quota that a queue holds, in parts per million; what it holds without."""
        quota = self.of_queue(queue)
        return held if quota is None else held * NOMINAL // max(1, quota)


def _capped(quotas: Mapping[str, int], queues: Mapping[str, Queue]) -> dict[str, int]:
    found = {}
    for name, quota in quotas.items():
        most = ceiling(queues, name)
        found[name] = quota if most is None else min(quota, most)
    return found
