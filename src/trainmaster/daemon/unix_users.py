"""Names of Unix users."""

from __future__ import annotations

import os
import pwd
import time
from functools import lru_cache

REMEMBERED_S = 10
"""How long a name is believed: a directory service may be slow, and a number may be given to another user."""


def user_name(uid: int) -> str:
    """The name of a Unix user; `uid-N` for one without a name."""
    return _looked_up(uid, int(time.monotonic() // REMEMBERED_S))


@lru_cache(1000)
def _looked_up(uid: int, _when: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"


def own_name() -> str:
    """The user that this process runs as."""
    return user_name(os.geteuid())
