"""Names of Unix users."""

from __future__ import annotations

import os
import pwd
from functools import lru_cache


@lru_cache(1000)
def user_name(uid: int) -> str:
    """The name of a Unix user; `uid-N` for one without a name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"


def own_name() -> str:
    """The user that this process runs as."""
    return user_name(os.geteuid())
