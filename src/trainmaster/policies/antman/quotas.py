"""How many GPUs each queue may hold as its own, its quota, and at most, its maximum.

Quotas: `--queues FILE` with `guaranteed_gpus` states them. Where it states none, the weights divide the
cluster: those of the `queues` option, else those of the file. A queue that is not named then has no
quota. With neither option nor file there are no quotas, and queues only take turns. No quota is above
the queue's maximum (`maximum_gpus`), or that of a queue around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainmaster.core.queue_views import QueueView
from trainmaster.mechanisms.fair_share.queue_tree import QueueTree
from trainmaster.model.queue import Queue
from trainmaster.model.units import NOMINAL


@dataclass(frozen=True, slots=True)
class Quotas:
    """Thousandths of a GPU by queue; None = there are no quotas."""

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
        """Whether `size` is within the queue's quota."""
        quota = self.of_queue(queue)
        return quota is None or size <= quota

    def used(self, queue: str, held: int) -> int:
        """The part of its quota that a queue holds, in parts per million; what it holds without."""
        quota = self.of_queue(queue)
        return held if quota is None else held * NOMINAL // max(1, quota)


def _capped(quotas: Mapping[str, int], queues: Mapping[str, Queue]) -> dict[str, int]:
    found = dict(quotas)
    for name in quotas:
        queue = queues.get(name)
        while queue is not None:
            found[name] = min(found[name], found[name] if queue.maximum is None else queue.maximum)
            queue = None if queue.parent is None else queues.get(queue.parent)
    return found


class QueueLimits:
    """What queues hold in one pass, against their maxima and those of the queues around them."""

    def __init__(self, queues: Mapping[str, Queue], parts: Mapping[str, QueueView]) -> None:
        is_bound = any(queue.maximum is not None for queue in queues.values())
        self._tree = QueueTree(queues, {}, parts) if is_bound else None
        if self._tree is not None:
            self._tree.count(parts)

    def give(self, queue: str, share: int) -> None:
        """The queue holds that much more, or less."""
        if self._tree is not None:
            self._tree.leaves[queue].give(share)

    def has_room(self, queue: str, share: int) -> bool:
        """Whether the queue may hold that much more."""
        room = None if self._tree is None else self._tree.leaves[queue].headroom
        return room is None or share <= room

    def never_holds(self, queue: str, share: int) -> bool:
        return self._tree is not None and self._tree.leaves[queue].never_holds(share)

    def is_in_the_way(self, other: str, queue: str, share: int) -> bool:
        """Whether another queue's usage counts against a maximum that `share` more would exceed."""
        if self._tree is None:
            return False
        full = self._tree.leaves[queue].full_for(share)
        return any(node in full for node in self._tree.leaves[other].path())
