"""Output of ranks as lines to read: without escapes, of limited length, of a progress bar its last state."""

from __future__ import annotations

import base64
import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainmaster.text.control_characters import visible

MOST_OF_LINE = 2_000
"""Characters of a line that are shown."""
MOST_HELD = 64 * 1024
"""Characters of a line without an end that are waited for."""
ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours, and where the cursor goes
    r"|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links, the clipboard
    r"|[ -/]*[0-~])"
)


@dataclass
class _Rank:
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )
    rest: str = ""
    """What has come of a line without its end."""
    left_out: int = 0
    """Characters of that line that were not held."""


class LogText:
    """What has come of several ranks; `names` puts the rank before each line."""

    def __init__(self, *, names: bool = False) -> None:
        self._names = names
        self._ranks: dict[int, _Rank] = {}
        self._attempt: int | None = None

    def take_event(self, said: Mapping[str, Any]) -> list[str]:
        """Of an event as the API sends it; each attempt begins with a line of its own."""
        begins = self._attempt not in (None, said["attempt"])
        self._attempt = said["attempt"]
        lines = self.take(said["rank"], base64.b64decode(said["bytes"]))
        return [f"\N{EM DASH} attempt {said['attempt']} \N{EM DASH}", *lines] if begins else lines

    def take(self, rank: int, piece: bytes) -> list[str]:
        """The lines that this piece completes."""
        known = self._ranks.setdefault(rank, _Rank())
        *ended, rest = (known.rest + known.decoder.decode(piece)).split("\n")
        lines = []
        for line in ended:
            lines.append(self._line(rank, line, known.left_out))
            known.left_out = 0
        _, bar, last = rest.rstrip("\r").rpartition("\r")
        rest = rest if not bar else last + rest[len(rest.rstrip("\r")) :]
        known.left_out = (0 if bar else known.left_out) + max(0, len(rest) - MOST_HELD)
        known.rest = rest[:MOST_HELD]
        return lines

    def unfinished(self) -> str:
        """The lines that have no end yet, such as a progress bar."""
        return "\n".join(
            self._line(rank, known.rest, known.left_out)
            for rank, known in sorted(self._ranks.items())
            if known.rest
        )

    def _line(self, rank: int, line: str, left_out: int) -> str:
        line = ESCAPES.sub("", line).rstrip("\r").rpartition("\r")[2].expandtabs(8)
        count = len(line) + left_out
        if count > MOST_OF_LINE:
            line = f"{line[:MOST_OF_LINE]}\N{HORIZONTAL ELLIPSIS} ({count:,} characters)"
        return f"[{rank}] {visible(line)}" if self._names else visible(line)
