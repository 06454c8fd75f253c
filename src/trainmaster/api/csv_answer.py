"""Tables of the API as CSV: for `format=csv`, and for clients that accept nothing but text/csv."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastapi import Request
from starlette.responses import Response

from trainmaster.daemon.response_models import UsageReport, UsageRow
from trainmaster.model.units import SECOND
from trainmaster.text.formatting import utc_time
from trainmaster.text.spreadsheet import csv_text

MEDIA = "text/csv"
NUMBERS = ("jobs", "gpu_hours", "lost_gpu_hours", "cost", "currency", "unpriced_gpu_hours")
NAMES = ("job", "user", "queue", "gpu_type", "outcome", "begin", "lost_to")
SIZES = ("trials_1", "trials_2_4", "trials_more")
REASON = (
    *("reason", "blame", "trials", "jobs", "users", "p50_min", "p90_min", "p95_min", "run_share"),
    *SIZES,
    *("gpu_hours", "gpu_share"),
)
Rows = Iterable[Mapping[str, object]]


class CsvAnswer(Response):
    """A file for a spreadsheet, in which no cell is a formula."""

    media_type = MEDIA

    def __init__(self, columns: Sequence[str], rows: Rows, *, name: str) -> None:
        disposition = f'attachment; filename="{name}.csv"'
        super().__init__(csv_text(columns, rows), headers={"Content-Disposition": disposition})


def wants_csv(request: Request, form: str | None) -> bool:
    """The parameter decides; without it what the client accepts first."""
    if form is not None:
        return form == "csv"
    return request.headers.get("accept", "").lstrip().startswith(MEDIA)


def or_csv(declared: dict[str, Any]) -> dict[str, Any]:
    """How a route declares that it also answers with a table."""
    declared["responses"][200]["content"][MEDIA] = {"schema": {"type": "string"}}
    return declared


def usage_table(report: UsageReport) -> tuple[Sequence[str], Rows]:
    """The rows without the total, with the columns that name them."""
    rows = [_usage_cells(row, report.currency) for row in report.rows]
    named = [name for name in NAMES if any(row[name] is not None for row in rows)]
    return (*named, *NUMBERS), rows


def _usage_cells(row: UsageRow, currency: str) -> dict[str, object]:
    begin = None if row.begin_s is None else utc_time(round(row.begin_s * SECOND))
    return {**vars(row), "begin": begin, "currency": currency}


def reason_table(report: Mapping[str, Any]) -> tuple[Sequence[str], Rows]:
    return REASON, [row | dict(zip(SIZES, row["sizes"], strict=True)) for row in report["reasons"]]
