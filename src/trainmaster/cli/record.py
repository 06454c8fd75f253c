"""`trainmaster record`: the live history as a trace to simulate, or as the log of events."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trainmaster.cli.live_options import Data, Url
from trainmaster.cli.wording import examples

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
        typer.Option("--out", metavar="FILE", help="Where to; else standard output."),
    ] = None,
    form: Annotated[
        Form,
        typer.Option("--format", help="A native trace (CSV), or the event log (lines of JSON)."),
    ] = Form.TRACE,
    url: Url = None,
    data: Data = None,
) -> None:
    """Export the live history: a trace that `simulate` reads, or the log that replays it."""
    from trainmaster.cli.client import connect
    from trainmaster.cli.complaints import cannot_write
    from trainmaster.cli.wording import remark

    with connect(url, data) as client:
        pieces = client.download(f"/record/{form.value}")
        if out is None:
            for piece in pieces:
                sys.stdout.buffer.write(piece)
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
    remark("Note", (f"wrote {out}",))
