"""The table of reasons why runs fail: how each is recognised, whose fault it is, what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from trainmaster.model.failure import UNKNOWN_REASON, Blame, RetryRule


@dataclass(frozen=True, slots=True)
class FailureReason:
    """A row of the table."""

    key: str
    title: str
    """In a few words: "GPU out of memory"."""
    blame: Blame
    retry: RetryRule
    advice: str
    """What to do about it, in one sentence."""
    patterns: tuple[re.Pattern[str], ...] = ()
    """Any of them in a line shows the reason; a group `path` is the input that could not be read."""
    weak_patterns: tuple[re.Pattern[str], ...] = ()
    """These count only where no pattern of any row is found."""
    exit_codes: frozenset[int] = frozenset()
    signals: frozenset[str] = frozenset()
    """End codes and signals that show the reason where no line does."""


UNKNOWN = FailureReason(
    UNKNOWN_REASON,
    "unknown",
    Blame.UNKNOWN,
    RetryRule.ONCE,
    "Read the end of its log; if you see what it was, add a row for it with --failure-reasons.",
)


@dataclass(frozen=True, slots=True)
class ReasonTable:
    """The rows, in the order in which they are tried."""

    rows: tuple[FailureReason, ...] = ()
    by_key: Mapping[str, FailureReason] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = {row.key: row for row in (UNKNOWN, *self.rows)}
        object.__setattr__(self, "by_key", MappingProxyType(found))

    def of(self, key: str) -> FailureReason:
        """The row of a reason; that of `unknown` for one that the table does not have any more."""
        return self.by_key.get(key, UNKNOWN)

    def extended_by(self, rows: Iterable[FailureReason]) -> ReasonTable:
        """With these rows before its own; a row of the same key takes the place of ours."""
        added = tuple(rows)
        keys = {row.key for row in added}
        return ReasonTable((*added, *(row for row in self.rows if row.key not in keys)))
