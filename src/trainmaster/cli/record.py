"""`trainmaster record`: the live history as a trace to simulate, or as the log of events."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from trainmaster.cli.support.console import remark, write_data
from trainmaster.cli.support.files import write_bytes, write_text
from trainmaster.cli.support.options import option
from trainmaster.client.manager_api import ManagerApi
from trainmaster.errors import cannot_write
from trainmaster.model.job_state import ENDED_STATES, LIVE_STATES
from trainmaster.scenarios.recorded_folder import CLUSTER, PERF, QUEUES, TRACE
from trainmaster.text.formatting import plural

OUT = (
    "Output file. A name without a suffix is a folder: of the trace with its cluster, queues and switching"
    " costs. Default: standard output."
)
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
        trainmaster record --out yesterday
        trainmaster simulate yesterday --policy fifo,trainmaster
        trainmaster record --out mine.csv
        trainmaster simulate mine.csv --cluster 1x8 --policy fifo,trainmaster
        trainmaster record --format events --out log.jsonl
    """
    is_folder = out is not None and form is RecordFormat.TRACE and _is_folder(out)
    trace = out / TRACE if out is not None and is_folder else out
    if out is not None and is_folder:
        _write_scenario(client, out)
    counts = client.get("/jobs", {"limit": 1})["counts"] if form is RecordFormat.TRACE else {}
    lines = 0

    def write(write_piece: Callable[[bytes], object]) -> None:
        nonlocal lines
        for piece in client.download(f"/record/{form.value}"):
            lines += piece.count(b"\n")
            write_piece(piece)

    if trace is None:
        write(write_data)
        sys.stdout.flush()
    else:
        write_bytes(trace, lambda file: write(file.write))
        jobs = f"{plural(lines - 1, 'job')} to " if form is RecordFormat.TRACE else ""
        remark("Note", (f"wrote {jobs}{out}",))
    if form is RecordFormat.TRACE:
        remark("Note", _left_out(lines - 1, counts))


def _is_folder(out: Path) -> bool:
    return out.is_dir() or (not out.suffix and not out.exists())


def _write_scenario(client: ManagerApi, folder: Path) -> None:
    """Cluster, queues and switching costs, as the files that `simulate` reads."""
    from ruamel.yaml import YAML

    found = client.get("/record/scenario")
    yaml = YAML(typ="safe")
    yaml.default_flow_style = False
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise cannot_write(str(folder), error) from error
    options = "".join(f" {name}={value}" for name, value in found["options"].items())
    for name in (CLUSTER, QUEUES, PERF):
        said = found[name.partition(".")[0]]
        if not said:
            (folder / name).unlink(missing_ok=True)
            continue
        text = io.StringIO(f"# Recorded under the policy {found['policy']}{options}.\n")
        text.seek(0, io.SEEK_END)
        yaml.dump(said, text)
        write_text(folder / name, lambda out, text=text: out.write(text.getvalue()))  # type: ignore[misc]


def _left_out(written: int, counts: Mapping[str, int]) -> Iterator[str]:
    """Which jobs are not in a trace, and why."""
    never = sum(counts.get(state, 0) for state in ENDED_STATES) - written
    if never > 0:
        yield f"left out {plural(never, 'job')} that ended without being started"
    live = sum(counts.get(state, 0) for state in LIVE_STATES)
    if live > 0:
        has = "has" if live == 1 else "have"
        yield f"left out {plural(live, 'job')} that {has} not ended yet"
