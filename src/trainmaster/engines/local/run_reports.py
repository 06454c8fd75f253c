"""What a supervisor reports of its run: in the journal first, then to followers; progress and saves thinned.

Only the standard library is imported here: supervisors load it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from trainmaster.engines.local.journal import Journal
from trainmaster.engines.local.progress_throttle import ProgressThrottle, SaveThrottle, cleaned
from trainmaster_sdk.wire import Message

RETRY_S = 0.5
"""How soon an entry is tried again that the disk refused."""


class RunReports:
    """`send` tells followers what is in the journal."""

    def __init__(self, journal: Journal, send: Callable[[Iterable[Message]], None]) -> None:
        self._journal = journal
        self._send = send
        self._progress = ProgressThrottle()
        self._saves = SaveThrottle()

    @property
    def is_written(self) -> bool:
        """Whether all that was said is on the disk."""
        return self._journal.is_written

    @property
    def due_at(self) -> float | None:
        """When `tick` wants to be called; None: nothing is held back."""
        due = [at for at in (self._progress.due_at, self._saves.due_at) if at is not None]
        if not self.is_written:
            due.append(time.monotonic() + RETRY_S)
        return min(due, default=None)

    def write(self, what: str, said: Message) -> None:
        """Into the journal first; told when it is there."""
        self._send(self._journal.append(self._journal.entry(what, said)))

    def hold_progress(self, report: Message) -> None:
        """It is written when one is due again: the newest."""
        self._progress.held = report

    def hold_save(self, said: Message) -> None:
        """As the program says it, with its step where that is a number."""
        step = cleaned(said)
        self._saves.held = {} if step is None else {"step": step["step"]}
        self._write_due()

    def write_held(self) -> None:
        """What is held back: of its progress, and of its saves."""
        held = self._progress.take()
        if held is not None:
            self.write("progress", held)
        saved = self._saves.take()
        if saved is not None:
            self.write("saved", saved)

    def tick(self) -> None:
        self._write_due()
        if not self.is_written:
            self.retry()

    def retry(self, *more: Message) -> None:
        """Write again what the disk refused, and anything that others removed; `more` is only told."""
        self._send([*self._journal.retry(), *more])

    def remembered(self, after: int) -> Iterable[Message]:
        """The entries after that number, for one that begins to follow."""
        return self._journal.remembered(after)

    def _write_due(self) -> None:
        now = time.monotonic()
        if any(at is not None and at <= now for at in (self._progress.due_at, self._saves.due_at)):
            self.write_held()
