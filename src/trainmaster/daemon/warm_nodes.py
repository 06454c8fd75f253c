"""Which nodes have the code of a program already, because a job with it ran there."""

from __future__ import annotations

MOST_PROGRAMS = 1000
"""Of those the last ones are remembered; a manager that was restarted learns them again."""
NO_FILES = ("", "-")
"""Digests that say nothing of a program's files."""


class WarmNodes:
    """By the digest of the program's files."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[int, ...]] = {}

    def of(self, digest: str) -> tuple[int, ...]:
        return self._nodes.get(digest, ())

    def learn(self, digest: str, nodes: tuple[int, ...]) -> tuple[int, ...]:
        """All that have it now."""
        if digest in NO_FILES:
            return ()
        found = tuple(sorted({*self._nodes.pop(digest, ()), *nodes}))
        self._nodes[digest] = found
        if len(self._nodes) > MOST_PROGRAMS:
            del self._nodes[next(iter(self._nodes))]
        return found
