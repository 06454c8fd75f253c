"""What failed runs cost, by reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.api.web.parts.sheet import Column, Sheet
from trainmaster.text.formatting import share

COLUMNS = (
    Column("reason", "reason"),
    Column("blame", "whose fault"),
    Column("trials", "failed runs", is_number=True),
    Column("jobs", "jobs", is_number=True),
    Column("users", "users", is_number=True),
    Column("p50_min", "median minutes", is_number=True),
    Column("gpu_hours", "GPU-hours", is_number=True),
    Column("gpu_share", "of all failed", is_number=True),
)


class ReasonSheet(Sheet):
    """The API's table of failures."""

    def __init__(self) -> None:
        super().__init__(COLUMNS, key="reason", empty="No run has failed.")

    def show_reasons(self, report: Mapping[str, Any]) -> None:
        self.show(
            {
                **row,
                "p50_min": (row["p50_min"], f"{row['p50_min']:,.1f}"),
                "gpu_hours": (row["gpu_hours"], f"{row['gpu_hours']:,.2f}"),
                "gpu_share": (row["gpu_share"], share(row["gpu_share"])),
            }
            for row in report["reasons"]
        )
