"""What jobs wrote, to standard output: as it is, or each line with its rank or element before it."""

from __future__ import annotations

import sys
from collections.abc import Callable

Write = Callable[[str, bytes], None]
"""Takes the rank, or the element of an array, and what it wrote."""


def write_plain(_rank: str, content: bytes) -> None:
    """Bytes to standard output, untouched."""
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


class PrefixedLines:
    """Lines of several ranks, or of several elements of an array, each with its own before it."""

    def __init__(self) -> None:
        self._open: dict[str, bytes] = {}
        """What each has begun to write: a line without its end."""

    def write(self, label: str, content: bytes) -> None:
        *lines, self._open[label] = (self._open.get(label, b"") + content).split(b"\n")
        sys.stdout.buffer.write(b"".join(b"[%s] %s\n" % (label.encode(), each) for each in lines))
        sys.stdout.buffer.flush()

    def end(self, label: str) -> None:
        """It has ended: its last line may have no line break."""
        if self._open.get(label):
            self.write(label, b"\n")

    def close(self) -> None:
        for label in list(self._open):
            self.end(label)
