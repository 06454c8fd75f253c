"""`trainmaster record`: the live history as a trace to simulate, or as the log of events."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from trainmaster.cli.support.console import remark, write_data
from trainmaster.cli.support.files import write_bytes
from trainmaster.cli.support.options import option
from trainmaster.client.manager_api import ManagerApi
from trainmaster.model.job_state import ENDED_STATES, LIVE_STATES
from trainmaster.text.formatting import plural

OUT = "Output file. Default: standard output."
FORM = "trace: a native trace (CSV); events: the event log (JSON lines)."


class RecordFormat(StrEnum):
    """What is written."""

    TRACE = "trace"
    EVENTS = "events"


def record(
    client: ManagerApi,
    out: Annotated[Path | None, option("--out FILE", OUT)] = None,
    form: Annotated[RecordFormat, option("--format", FORM)] = RecordFormat.TRACE,
) -> None:
    """Export the history: as a trace that `simulate` reads, or as the event log for replay.

    Examples:
        trainmaster record --out mine.csv
        trainmaster simulate mine.csv --cluster 1x8 --policy fifo,trainmaster
        trainmaster record --format events --out log.jsonl
    """
    counts = client.get("/jobs", {"limit": 1})["counts"] if form is RecordFormat.TRACE else {}
    lines = 0

    def write(write_piece: Callable[[bytes], object]) -> None:
        nonlocal lines
        for piece in client.download(f"/record/{form.value}"):
            lines += piece.count(b"\n")
            write_piece(piece)

    if out is None:
        write(write_data)
        sys.stdout.flush()
    else:
        write_bytes(out, lambda file: write(file.write))
        jobs = f"{plural(lines - 1, 'job')} to " if form is RecordFormat.TRACE else ""
        remark("Note", (f"wrote {jobs}{out}",))
    if form is RecordFormat.TRACE:
        remark("Note", _left_out(lines - 1, counts))


def _left_out(written: int, counts: Mapping[str, int]) -> Iterator[str]:
    """Which jobs are not in a trace, and why."""
    never = sum(counts.get(state, 0) for state in ENDED_STATES) - written
    if never > 0:
        yield f"left out {plural(never, 'job')} that ended without being started"
    live = sum(counts.get(state, 0) for state in LIVE_STATES)
    if live > 0:
        has = "has" if live == 1 else "have"
        yield f"left out {plural(live, 'job')} that {has} not ended yet"
