"""`trainmaster record`: the live history as a trace to simulate, or as the log of events."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trainmaster.cli.support.console import examples
from trainmaster.cli.support.options import Data, Url

EPILOG = examples(
    "trainmaster record --out mine.csv",
    "trainmaster simulate mine.csv --cluster 1x8 --policy fifo,trainmaster",
    "trainmaster record --format events --out log.jsonl",
)


class Form(StrEnum):
    """What is written."""

    TRACE = "trace"
    EVENTS = "events"


def record(
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Output file. Default: standard output."),
    ] = None,
    form: Annotated[
        Form,
        typer.Option(
            "--format", help="trace: a native trace (CSV); events: the event log (JSON lines)."
        ),
    ] = Form.TRACE,
    url: Url = None,
    data: Data = None,
) -> None:
    """Export the history: as a trace that `simulate` reads, or as the event log for replay."""
    from trainmaster.cli.support.client import connect
    from trainmaster.cli.support.console import remark
    from trainmaster.cli.support.errors import cannot_write
    from trainmaster.text.formatting import plural

    with connect(url, data) as client:
        counts = client.get("/jobs", {"limit": 1})["counts"] if form is Form.TRACE else {}
        count = _Lines()
        pieces = count.of(client.download(f"/record/{form.value}"))
        if out is None:
            for piece in pieces:
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            remark("Note", _left_out(count.lines - 1, counts) if form is Form.TRACE else ())
            return
        # a file that is there is kept until the new one is whole
        part = out.with_name(f".{out.name}.part")
        try:
            with part.open("wb") as file:
                for piece in pieces:
                    file.write(piece)
            os.replace(part, out)
        except OSError as error:
            raise cannot_write(str(out), error) from None
        finally:
            part.unlink(missing_ok=True)
    if form is Form.EVENTS:
        remark("Note", (f"wrote {out}",))
        return
    written = count.lines - 1
    remark("Note", (f"wrote {plural(written, 'job')} to {out}", *_left_out(written, counts)))


class _Lines:
    """Counts the lines of what passes by."""

    def __init__(self) -> None:
        self.lines = 0

    def of(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.lines += piece.count(b"\n")
            yield piece


def _left_out(written: int, counts: Mapping[str, int]) -> Iterator[str]:
    """Which jobs are not in a trace, and why."""
    from trainmaster.model.job_state import ENDED_STATES, LIVE_STATES
    from trainmaster.text.formatting import plural

    never = sum(counts.get(state, 0) for state in ENDED_STATES) - written
    if never > 0:
        yield f"left out {plural(never, 'job')} that ended without being started"
    live = sum(counts.get(state, 0) for state in LIVE_STATES)
    if live > 0:
        has = "has" if live == 1 else "have"
        yield f"left out {plural(live, 'job')} that {has} not ended yet"
