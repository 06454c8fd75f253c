"""The end of a job's output, as people look at it after a failure."""

from __future__ import annotations

from collections.abc import Sequence

from anyio import to_thread

from trainmaster.api.logs import Log
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.service_api import JobStatus, LogFile
from trainmaster.model.job_state import ENDED_STATES, JobState

LAST_BYTES = 64 * 1024
SHOWN = 10
"""Lines that `show` and `explain` end with."""


def last_lines(files: Sequence[LogFile], count: int, rank: int = 0) -> str:
    """Of a rank of the last attempt; lines may be a megabyte long, so bytes are limited too."""
    own = [file for file in files if file.rank == rank] or [f for f in files if f.rank == 0]
    newest = max(own, key=lambda file: file.attempt, default=None)
    if newest is None:
        return ""
    log = Log(newest.paths)
    start = max(log.tail_start(count), log.size - LAST_BYTES)
    return (
        b"".join(log.pieces(start))
        .decode("utf-8", "replace")
        .replace("\x00", "\N{REPLACEMENT CHARACTER}")
    )


async def lines_after_failure(service: Daemon, status: JobStatus) -> list[str]:
    """The last lines of a job that ended without success; of the rank that failed first."""
    row = status.row
    is_bad = row.state in ENDED_STATES and row.state != JobState.SUCCEEDED
    if not is_bad or row.start_ms is None:
        return []
    files = await service.queries.log_files(row.id)
    text = await to_thread.run_sync(last_lines, files, SHOWN, process_shown(status))
    return text.splitlines()


def process_shown(status: JobStatus) -> int:
    """Whose output is looked at first: of a job that failed, that of the process which shows it; else 0."""
    failed, end = status.history.failed_by, status.history.end
    if status.row.state != JobState.FAILED or end is None:
        return 0
    shown = end.rank if failed is None or failed.process is None else failed.process
    return shown or 0
