"""Times in which devices are kept free: for maintenance of a node, or for a user or a queue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reservation:
    """Devices that are kept free of other jobs from `begin_ms` until `end_ms`; of all jobs in maintenance."""

    number: int
    gpus: tuple[int, ...]
    """Their indices in the cluster, as in a slice."""
    begin_ms: int
    end_ms: int
    nodes: tuple[int, ...] = ()
    """Nodes in maintenance, which take nothing meanwhile; empty: it is for a user or a queue."""
    user: str = ""
    queue: str = ""
    """Whose jobs may use the devices; with both, jobs of that user in that queue."""
    reason: str = ""
    """In the words of whoever made it."""
    by: str = ""
    """Who made it."""
    force: bool = False
    """Whether runs that would lose work are ended too when it begins."""

    @property
    def is_maintenance(self) -> bool:
        return not (self.user or self.queue)

    def admits(self, user: str, queues: Iterable[str]) -> bool:
        """Whether it is for a job of this user, in this queue and those around it."""
        if self.is_maintenance or (self.user and self.user != user):
            return False
        return not self.queue or self.queue in queues

    def is_on(self, now: int) -> bool:
        return self.begin_ms <= now < self.end_ms
