"""Lists of jobs, page by page."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.client.manager_api import Json, ManagerApi, Query
from trainmaster.client.polling import retry
from trainmaster.daemon.job_rows import JobRow

PAGE = 1000


def list_jobs(
    client: ManagerApi, query: Query, most: int | None = None, page: int = PAGE
) -> Iterator[Json]:
    """Rows of the manager that match, newest first, page by page."""
    before: str | None = None
    left = most
    while left is None or left > 0:
        limit = min(PAGE, page if left is None else left)
        found = client.get("/jobs", {**query, "limit": limit, "before": before})
        yield from found["jobs"]
        before = found.get("next")
        left = None if left is None else left - len(found["jobs"])
        if not before:
            return


def elements_of(client: ManagerApi, array: str) -> list[JobRow]:
    """All elements, the first one first; none where it is not the id of an array."""
    rows = retry(client, lambda: list(list_jobs(client, {"array": array})))
    return [JobRow.from_json(each) for each in reversed(rows)]
