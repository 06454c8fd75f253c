"""The rows that `--failure-reasons` adds to the table, which the next start has again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainmaster.cli.support.errors import BadInput, system_reason
from trainmaster.config.validation import ConfigError
from trainmaster.daemon.failure_table import built_in_table, table_with
from trainmaster.durable_files import write_whole
from trainmaster.failures.reason_table import ReasonTable

REASONS = "failure_reasons.yaml"
"""A file of the data folder: the content of the file that `--failure-reasons` named last."""
NONE = "none"
"""What it says for our own table alone."""
WAY_OUT = "say the file with --failure-reasons, or none"


@dataclass(frozen=True, slots=True)
class Reasons:
    """The table of a manager, and where its added rows are from."""

    table: ReasonTable
    text: str | None = None
    """The file with the added rows; None: there are none."""
    is_remembered: bool = False
    """Whether they were said at an earlier start."""

    @property
    def changed(self) -> tuple[str, ...]:
        """Keys of the rows that are not as in our own table."""
        ours = built_in_table().by_key
        return tuple(row.key for row in self.table.rows if ours.get(row.key) != row)


def reasons_of(folder: Path, stated: str | None) -> Reasons:
    """The table for this start."""
    if stated == NONE:
        return Reasons(built_in_table())
    if stated is not None:
        return _read(Path(stated))
    kept = folder / REASONS
    if not kept.exists():
        return Reasons(built_in_table())
    try:
        return _read(kept, is_remembered=True)
    except BadInput as error:
        raise BadInput(f"{str(error).rstrip('.')}: {WAY_OUT}.") from None


def remember_reasons(folder: Path, reasons: Reasons) -> None:
    """For the next start."""
    if reasons.text is None:
        (folder / REASONS).unlink(missing_ok=True)
    else:
        write_whole(folder / REASONS, reasons.text)


def _read(file: Path, is_remembered: bool = False) -> Reasons:
    try:
        text = file.read_text("utf-8")
        return Reasons(table_with(text, str(file)), text, is_remembered)
    except ConfigError as error:
        raise BadInput(str(error)) from None
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {system_reason(error)}.") from None
    except UnicodeDecodeError:
        raise BadInput(f"{file} is not a text file in UTF-8.") from None
