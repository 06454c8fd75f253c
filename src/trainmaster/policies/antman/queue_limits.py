"""What queues may hold at most (`maximum_gpus`), their own bound and those of the queues around them."""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.core.queue_views import QueueView
from trainmaster.mechanisms.fair_share.queue_tree import QueueTree
from trainmaster.model.queue import Queue


class QueueLimits:
    """What is held in one pass, queue by queue, against the maxima."""

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
        """Whether what another queue holds counts against a maximum that forbids so much more."""
        if self._tree is None:
            return False
        full = self._tree.leaves[queue].full_for(share)
        return any(node in full for node in self._tree.leaves[other].path())


def ceiling(queues: Mapping[str, Queue], name: str) -> int | None:
    """The lowest maximum of a queue and those around it; None = there is none."""
    found: list[int] = []
    queue = queues.get(name)
    while queue is not None:
        if queue.maximum is not None:
            found.append(queue.maximum)
        queue = None if queue.parent is None else queues.get(queue.parent)
    return min(found, default=None)
