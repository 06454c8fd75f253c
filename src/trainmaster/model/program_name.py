"""What program a run is of, by the name that its user gave it."""

from __future__ import annotations

import re
from functools import lru_cache

CHANGING = re.compile(r"(?<![a-z0-9])(?=[0-9a-f]{6})[0-9a-f]*\d[0-9a-f]*|\d+")
"""Hashes (six hexadecimal digits or more, one of them a figure), and numbers."""


@lru_cache(maxsize=4096)
def program_of(app: str) -> str:
    """The name without what changes from run to run: numbers, dates, hashes."""
    return CHANGING.sub("#", app.lower())
