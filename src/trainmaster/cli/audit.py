"""`trainmaster audit`: who asked the manager for what."""

from __future__ import annotations

from typing import Annotated

from trainmaster.cli.support.console import show_answer, show_table
from trainmaster.cli.support.moments import moment_of
from trainmaster.cli.support.options import AsJson, option
from trainmaster.client.manager_api import Json, ManagerApi

COLUMNS = (
    *("at", "user", "role", "via", "uid", "token"),
    *("verb", "path", "status", "subject", "left_out"),
)


def audit(
    client: ManagerApi,
    user: Annotated[str | None, option("--user USER", "Only requests of this user.")] = None,
    since: Annotated[
        str | None, option("--since WHEN", "Only since this date, or this long ago (1d).")
    ] = None,
    limit: Annotated[int, option("--limit N", "At most the N newest.", min=1, max=10_000)] = 100,
    as_json: AsJson = False,
) -> None:
    """Show requests that changed something, were refused or showed secrets, the newest last; for admins.

    Examples:
        trainmaster audit
        trainmaster audit --user ada --since 1d
        trainmaster audit --since 2026-11-01 --limit 10000 --json
    """
    query = {
        "user": user,
        "since": None if since is None else f"{moment_of(since, '--since'):.3f}",
        "limit": str(limit),
    }
    said = client.get("/audit", query)
    if as_json or not said["entries"]:
        show_answer(said, as_json, "No such requests.")
    else:
        show_table(COLUMNS, [_row(each) for each in said["entries"]])


def _row(said: Json) -> list[object]:
    return ["-" if said[name] is None else said[name] for name in COLUMNS]
