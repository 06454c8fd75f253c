"""The table of reasons why runs fail: how each is recognised, whose fault it is, what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from trainmaster.model.failure import UNKNOWN_REASON, Blame, RetryRule

LOST_REASON = "lost-heartbeat"
"""The reason of a run whose node or supervisor went away, where nothing says more."""


class Strength(StrEnum):
    """How much a row's patterns say about the cause."""

    EXPLICIT = "explicit"
    IMPLICIT = "implicit"
    """They count where nothing explicit is found."""
    LATE = "late"
    """They count where no line before names a cause: a GPU reports errors at a later call."""
    SYMPTOM = "symptom"
    """What other ranks suffer when one fails: they count where nothing else is found."""


class Accuses(StrEnum):
    """What a failure for a reason speaks against, besides the program."""

    NOTHING = "nothing"
    DEVICE = "device"
    """The device that it happened on: it is set aside when several jobs fail there."""
    NODES = "nodes"
    """One of the nodes of its gang: all-reduces between two at a time find which."""


class Memory(StrEnum):
    """Which memory a run had too little of."""

    GPU = "gpu"
    HOST = "host"


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
    exceptions: tuple[re.Pattern[str], ...] = ()
    """Any of them in "Type: message" of the exception that ended it shows the reason."""
    words: tuple[re.Pattern[str], ...] = ()
    """As exceptions, but not where the program itself raised it: it may mean something else by them."""
    origins: tuple[re.Pattern[str], ...] = ()
    """Any of them in the last frame and the exception together shows it, whatever others say."""
    lines: tuple[re.Pattern[str], ...] = ()
    """Any of them in a line of its output shows it, where no exception says more."""
    frames: tuple[re.Pattern[str], ...] = ()
    """Any of them in its traceback shows it, where the exception says nothing known, or only a symptom."""
    strength: Strength = Strength.EXPLICIT
    is_gangs: bool = False
    """It tells of another rank: it is not tried where there is none."""
    exit_codes: frozenset[int] = frozenset()
    signals: frozenset[str] = frozenset()
    """End codes and signals that show the reason where no line does."""
    accuses: Accuses = Accuses.NOTHING
    memory: Memory | None = None
    """Where more memory helps: which; None: it does not."""


UNKNOWN = FailureReason(
    UNKNOWN_REASON,
    "unknown",
    Blame.UNKNOWN,
    RetryRule.ONCE,
    "Read the end of its log: trainmaster logs JOB.",
)

NO_ADVICE = "The table has no row for this reason any more: --failure-reasons FILE adds one."
"""For a failure of an earlier start, of which the rows were others."""


@dataclass(frozen=True, slots=True)
class ReasonTable:
    """The rows, in the order in which they are tried."""

    rows: tuple[FailureReason, ...] = ()
    by_key: Mapping[str, FailureReason] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = {row.key: row for row in (UNKNOWN, *self.rows)}
        object.__setattr__(self, "by_key", MappingProxyType(found))

    @property
    def of_one_rank(self) -> ReasonTable:
        """Without the rows that tell of another rank."""
        return ReasonTable(tuple(row for row in self.rows if not row.is_gangs))

    def of(self, key: str) -> FailureReason:
        """The row of a reason; one that the table does not have any more is named by its key."""
        return self.by_key.get(key) or replace(
            UNKNOWN, key=key, title=key.replace("-", " "), advice=NO_ADVICE
        )

    def extended_by(self, rows: Iterable[FailureReason]) -> ReasonTable:
        """With these rows before its own; a row of the same key takes the place of ours."""
        added = tuple(rows)
        keys = {row.key for row in added}
        return ReasonTable((*added, *(row for row in self.rows if row.key not in keys)))
