"""The contract that every store keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from trainmaster.store.rows import (
    Batch,
    JobRow,
    KeyRow,
    ProgressRow,
    SnapshotRow,
    StepRow,
    StoryRow,
)


class StoreError(Exception):
    """The store cannot be used now: one sentence that says why and what to do."""


class Deposed(StoreError):
    """Another daemon leads by now: nothing may be written any more."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which jobs to list: all that match, newest first."""

    states: frozenset[str] = frozenset()
    """Empty = any."""
    user: str | None = None
    queue: str | None = None
    array: str | None = None
    text: str | None = None
    """Part of the name or of the id."""
    since_ms: int | None = None
    """Submitted then or later."""
    before: str | None = None
    """Go on after this job id of an earlier page; nothing follows one that is not there."""
    limit: int = 100
    is_brief: bool = False
    """Without the job files: `spec_json` is empty. For long lists."""


class Store(Protocol):
    """Writing is the leader's; reading is anybody's. All methods block: call them from a thread."""

    @property
    def url(self) -> str:
        """Without a password: for messages."""
        ...

    # -- leading -----------------------------------------------------------------------------------

    def lead(self) -> bool:
        """Become the one daemon that may write, if nobody else is; at once, without waiting."""
        ...

    def leads(self) -> bool:
        """Whether this one still leads, as far as can be told now.

        No while the store is out of reach; yes again when it is back and nobody led meanwhile.
        """
        ...

    # -- writing: the leader's -----------------------------------------------------------------------

    def append(self, batches: Sequence[Batch]) -> None:
        """Keep these for good, in one transaction; Deposed if another leads, StoreError if it cannot.

        After a StoreError the same batches may be appended again, with more behind them: those that
        were kept all the same (the answer was lost on its way) are not kept twice. Steps must be
        the next ones; jobs of stories and progress must be there; the first answer to a key stands.
        """
        ...

    def keep_snapshot(self, snapshot: SnapshotRow) -> None: ...

    def compact(self, before_ms: int) -> int:
        """Drop steps before this time that a kept snapshot covers, and older snapshots; how many steps.

        The oldest snapshot that stays is followed by every step since. Of the others the newest two
        stay and the first of every day. Keys go after seven days.
        """
        ...

    # -- reading -------------------------------------------------------------------------------------

    def snapshot(self, *, oldest: bool = False) -> SnapshotRow | None:
        """The newest one, or the oldest that is kept."""
        ...

    def steps(self, after: int = 0, limit: int | None = None) -> Sequence[StepRow]:
        """Steps that follow step `after`, in order."""
        ...

    def jobs(self, wanted: Wanted) -> Sequence[JobRow]: ...

    def job(self, id: str) -> JobRow | None: ...

    def last_number(self) -> int:
        """The largest whole number among job ids (12 of `12` and `12_3`); 0 where there is none."""
        ...

    def count(self) -> dict[str, int]:
        """How many jobs are in each state."""
        ...

    def story(self, job: str) -> Sequence[StoryRow]: ...

    def progress(self, job: str, limit: int = 1000) -> Sequence[ProgressRow]:
        """Reports of a job, evenly thinned to at most so many."""
        ...

    def key(self, key: str) -> KeyRow | None: ...

    def close(self) -> None:
        """Stop leading, and let go of everything."""
        ...
