"""The rows that `--failure-reasons` adds to the table, which the next start has again."""

from __future__ import annotations

from pathlib import Path

from trainmaster.cli.support.remembered_file import Remembered, remembered
from trainmaster.daemon.failure_table import built_in_table, table_with
from trainmaster.failures.reason_table import ReasonTable

REASONS = "failure_reasons.yaml"
"""A file of the data folder: the content of the file that `--failure-reasons` named last."""
Reasons = Remembered[ReasonTable]
"""The table of a manager, and where its added rows are from."""


def reasons_of(folder: Path, stated: str | None) -> Reasons:
    """The table for this start."""
    return remembered(folder / REASONS, stated, "--failure-reasons", built_in_table(), table_with)


def changed_rows(table: ReasonTable) -> tuple[str, ...]:
    """Keys of the rows that are not as in our own table."""
    ours = built_in_table().by_key
    return tuple(row.key for row in table.rows if ours.get(row.key) != row)
