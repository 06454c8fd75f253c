"""Open files: the manager may have as many as the system allows; jobs have its limit as it was started."""

from __future__ import annotations

import resource

SOFT, HARD = resource.getrlimit(resource.RLIMIT_NOFILE)
"""As this process was started."""


def raise_limit() -> None:
    """Allow this process as many open files as the system allows."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (HARD, HARD))


def restore_limit(soft: int) -> None:
    """Go back to the limit that the manager was started with."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
