"""Jobs in a table, as pages about something else show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainmaster.api.web.parts.sheet import Column, Sheet
from trainmaster.daemon.job_rows import JobRow
from trainmaster.text.formatting import short_length

COLUMNS = (
    Column("id", "job", to="/jobs/{}"),
    Column("name", "name"),
    Column("user", "user", to="/users/{}"),
    Column("queue", "queue", to="/queues/{}"),
    Column("state", "state"),
    Column("gpus", "GPUs", is_number=True),
    Column("waits", "has waited", is_number=True),
    Column("why", "where, or why not", wraps=True),
)


class JobSheet(Sheet):
    """Rows of the API's list."""

    def __init__(self, empty: str, *without: str) -> None:
        shown = [each for each in COLUMNS if each.name not in without]
        super().__init__(shown, key="id", empty=empty)

    def show_jobs(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self.show(map(_cells, rows))


def _cells(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    row = JobRow.from_json(dict(answer))
    waited = row.waiting_s
    return {
        "id": row.id,
        "name": row.name,
        "user": row.user,
        "queue": row.queue,
        "state": row.state_words,
        "gpus": (row.gpus, row.size),
        "waits": (waited or 0, "" if waited is None else short_length(waited)),
        "why": row.where_or_why,
    }
