"""Why runs failed: reads the end of what their ranks wrote, and classifies it, off the event loop."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from signal import Signals

import structlog

from trainmaster.daemon.failure_table import built_in_table
from trainmaster.engines.local.logs import rank_logs
from trainmaster.failures.classification import Evidence, RankLog, classify
from trainmaster.failures.reason_table import ReasonTable
from trainmaster.model.engine_reports import Ended, Lost, Report, StopOrder
from trainmaster.model.failure import UNKNOWN_REASON, Failure
from trainmaster.model.job import Run

log = structlog.get_logger("trainmaster.daemon")

OWN_BYTES = 64 * 1024
"""What is read of the rank that failed first, ..."""
OTHER_BYTES = 8 * 1024
OTHER_RANKS = 64
"""... and of how many others how much."""


class FailureReader:
    """Classifies the ends of runs by one table."""

    def __init__(self, folder: Path | None = None, table: ReasonTable | None = None) -> None:
        self._folder = folder
        """The data folder that the runs are in; None: only the reports say what happened."""
        self._table = table

    @property
    def table(self) -> ReasonTable:
        return built_in_table() if self._table is None else self._table

    def failures(self, reports: Iterable[Report]) -> Mapping[Run, Failure]:
        """Why each run failed that these reports say has failed or is lost."""
        return {each.run: self.failure(each) for each in reports if is_failure(each)}

    def failure(self, report: Report) -> Failure:
        """Why one run failed; reading its logs may take a moment. Whatever is in them, it does not raise."""
        try:
            return classify(self._evidence(report), self.table)
        except Exception:
            log.exception("a failure could not be classified", run=str(report.run))
            said = without_logs(report)
            return Failure(
                UNKNOWN_REASON, rank=said.rank, exit_code=said.exit_code, signal=said.signal
            )

    def _evidence(self, report: Report) -> Evidence:
        said = without_logs(report)
        if self._folder is None:
            return said
        folder = self._folder / "runs" / report.run.job / str(report.run.attempt)
        logs = rank_logs(folder)
        first = said.rank or 0
        lines = lines_at_end(logs.get(first, ()), OWN_BYTES) or said.lines
        others = [rank for rank in logs if rank != first][:OTHER_RANKS]
        read = tuple(RankLog(rank, lines_at_end(logs[rank], OTHER_BYTES)) for rank in others)
        return replace(said, lines=lines, others=read, ranks=len(logs) or None)


def is_failure(report: Report) -> bool:
    """Whether it says that a run failed by itself or went away."""
    if isinstance(report, Ended):
        return report.code != 0 and report.asked is StopOrder.NOTHING
    return isinstance(report, Lost)


def without_logs(report: Report) -> Evidence:
    """What the report itself says."""
    if isinstance(report, Ended):
        lines = tuple(report.tail.splitlines())
        return Evidence(
            *(report.code, signal_of(report), report.rank, lines, report.why), ran_ms=report.ran_ms
        )
    why = report.why if isinstance(report, Lost) else ""
    return Evidence(why=why, is_lost=True)


def signal_of(report: Ended) -> str:
    """The signal that ended it; its code alone tells it only where an earlier version says no more."""
    return signal_name(report.code) if report.signal is None else report.signal


def signal_name(code: int) -> str:
    """The signal that an exit code may stand for, if any."""
    return next((each.name for each in Signals if each + 128 == code), "")


def lines_at_end(paths: Sequence[Path], most: int) -> tuple[str, ...]:
    """The last lines of a rank's files, oldest first, up to that many bytes; the first may be cut."""
    last = b""
    for path in reversed(paths):
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - most + len(last)))
                last = file.read(most) + last
        except OSError:
            continue
        if len(last) >= most:
            break
    return tuple(last.decode("utf-8", "replace").splitlines())
