"""For jobs of crash tests: whether another run of the same job goes on at the same time.

Only the standard library: jobs import it from their own folder.
"""

import fcntl
import pathlib
import sys
from collections.abc import Callable
from typing import TextIO

TWICE = 9
"""Exit code of a second run."""


def refuse_second_run(place: pathlib.Path, tell: Callable[[str], None]) -> TextIO:
    """A lock that lasts as long as the file is open; a second run says TWICE and ends."""
    lock = place.open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        tell("TWICE")
        sys.exit(TWICE)
    return lock
