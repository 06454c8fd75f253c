"""The jobs of an array, as a table whose rows lead to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import events, ui

from trainmaster.api.web.parts.plain_text import shown
from trainmaster.daemon.job_rows import JobRow
from trainmaster.text.formatting import duration

MOST = 1_000
"""As many as the API gives on a page."""
COLUMNS = (
    ("id", "Job"),
    ("state", "State"),
    ("run", "Ran"),
    ("where", "Where, or why"),
)


def element_rows(jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The first one first."""
    rows = [JobRow.from_json(dict(job)) for job in jobs]
    return [
        {
            "id": row.id,
            "index": row.array_index,
            "state": row.state_words,
            "run": duration(row.run_s),
            "where": shown(row.where_or_why, 200),
        }
        for row in sorted(rows, key=lambda row: row.array_index or 0)
    ]


class Elements:
    def __init__(self) -> None:
        columns = [
            {
                "name": name,
                "label": label,
                "field": name,
                "align": "left",
                "sortable": name == "state",
            }
            for name, label in COLUMNS
        ]
        self._table = ui.table(columns=columns, rows=[], row_key="id", pagination=20)
        self._table.classes("w-full cursor-pointer").props("flat bordered dense wrap-cells")
        self._table.on("rowClick", self._open)
        self._said = ui.label().classes("text-sm opacity-70")

    def show(self, jobs: Sequence[Mapping[str, Any]], *, of: int) -> None:
        rows = element_rows(jobs)
        if rows != self._table.rows:
            self._table.rows = rows
        few = len(rows) < of
        self._said.set_text(f"The last {len(rows):,} of {of:,} jobs." if few else "")

    def _open(self, event: events.GenericEventArguments) -> None:
        ui.navigate.to(f"/jobs/{event.args[1]['id']}")
