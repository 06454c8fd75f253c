"""The table of failure reasons: ours, with the rows of an operator's file."""

from __future__ import annotations

from functools import cache
from importlib import resources

from trainmaster.config.failure_reasons import read_table
from trainmaster.failures.reason_table import ReasonTable

OURS = "reasons.yaml"


@cache
def built_in_table() -> ReasonTable:
    """The table that comes with Trainmaster."""
    text = resources.files("trainmaster.failures").joinpath(OURS).read_text(encoding="utf-8")
    return read_table(text, where=OURS)


def table_with(text: str, where: str) -> ReasonTable:
    """Ours with the rows of a file of this text; ConfigError where it is wrong."""
    return read_table(text, built_in_table(), where)
