"""Who is asking."""

from __future__ import annotations

import getpass
import os

USER = "TRAINMASTER_USER"


def my_name() -> str:
    """The name under which this person's jobs are kept."""
    stated = os.environ.get(USER, "")
    if stated:
        return stated
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without an entry, as in a container
        return str(os.getuid())
