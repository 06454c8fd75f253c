"""What a client says beside its answers."""

from __future__ import annotations

import sys

from trainmaster.text.control_characters import visible


def note(line: str) -> None:
    """A line on standard error, with control characters as codes."""
    sys.stderr.write(visible(f"{line}\n"))
    sys.stderr.flush()
