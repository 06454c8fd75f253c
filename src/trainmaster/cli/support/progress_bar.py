"""A progress bar on standard error, for long work in a terminal."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from trainmaster.cli.support.console import write_error

if TYPE_CHECKING:
    from rich.progress import Progress

REFRESH_S = 0.1


class ProgressBar(AbstractContextManager["ProgressBar"]):
    """Appears when the work has taken a while; not in a log, which gets only messages."""

    def __init__(self, what: str, *, after_s: float = 0.0) -> None:
        self._what = what
        self.is_watched = sys.stderr.isatty()
        self._next = time.perf_counter() + after_s
        self._bar: Progress | None = None

    def update(self, done: int, in_all: int, words: str = "") -> None:
        if not self.is_watched or time.perf_counter() < self._next:
            return
        if self._bar is None:
            self._bar = _progress()
            self._bar.add_task(self._what, total=in_all, words="")
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, words=words)
        self._bar.refresh()
        self._next = time.perf_counter() + REFRESH_S

    def say(self, line: str) -> None:
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False)
        else:
            write_error(f"{line}\n")

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __exit__(self, *error: object) -> None:
        self.stop()


def _progress() -> Progress:
    from rich import progress as shown

    from trainmaster.cli.support.clean_console import CleanConsole

    return shown.Progress(
        shown.TextColumn("{task.description}"),
        shown.BarColumn(),
        shown.MofNCompleteColumn(),
        shown.TimeRemainingColumn(),
        shown.TextColumn("left  [dim]{task.fields[words]}[/]"),
        console=CleanConsole(stderr=True),
        transient=True,
        auto_refresh=False,
        speed_estimate_period=300,
    )
