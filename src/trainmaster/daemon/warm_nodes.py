"""Which nodes have the code of a program already, because a job with it ran there."""

from __future__ import annotations

MOST_PROGRAMS = 1000
"""Of those the last ones are remembered; a manager that was restarted learns them again."""
MOST_NODES = 32
"""Of those that have a program's code, the last ones are remembered: they do for a choice."""
NO_FILES = ("", "-")
"""Digests that say nothing of a program's files."""


class WarmNodes:
    """By the digest of the program's files."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[int, ...]] = {}

    def of(self, digest: str) -> tuple[int, ...]:
        return tuple(sorted(self._nodes.get(digest, ())))

    def learn(self, digest: str, nodes: tuple[int, ...]) -> tuple[int, ...]:
        """The last ones that have it now; empty: those that are known already."""
        if digest in NO_FILES:
            return ()
        before = self._nodes.pop(digest, ())
        others = [node for node in before if node not in nodes]
        self._nodes[digest] = (*others, *nodes)[-MOST_NODES:]
        if len(self._nodes) > MOST_PROGRAMS:
            del self._nodes[next(iter(self._nodes))]
        after = self.of(digest)
        return () if after == tuple(sorted(before)) else after
