"""The trace formats by name, how they are recognised, and how a file is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO

from trainmaster.model.trace import Trace, TraceError
from trainmaster.text.suggest import did_you_mean
from trainmaster.traces import (
    alibaba_2020,
    alibaba_2023,
    gavel,
    helios,
    native,
    philly,
    philly_82k,
    tiresias,
)
from trainmaster.traces.csv_reader import open_text

Reader = Callable[[Path], Trace]

FORMATS: Mapping[str, Reader] = {
    "native": native.read,
    "philly": philly.read,
    "philly-82k": philly_82k.read,
    "helios": helios.read,
    "alibaba-2020": alibaba_2020.read,
    "alibaba-2023": alibaba_2023.read,
    "tiresias": tiresias.read,
    "gavel": gavel.read,
}

_HEADERS: Mapping[str, tuple[str, ...]] = {
    "native": native.REQUIRED,
    "philly-82k": philly_82k.REQUIRED,
    "helios": helios.REQUIRED,
    "alibaba-2020": alibaba_2020.TASK_COLUMNS,
    "alibaba-2023": alibaba_2023.REQUIRED,
    "tiresias": tiresias.REQUIRED,
}
_HEAD = 65_536
_ENOUGH = 0.5
"""Fraction of a format's columns that identifies it, so that its reader can name missing columns."""


def load(path: Path, format: str | None = None) -> Trace:
    """The trace in a file; its format is recognised unless it is given."""
    name = recognise(path) if format is None else format
    reader = FORMATS.get(name)
    if reader is None:
        raise TraceError(f"there is no trace format {name!r}; {did_you_mean(name, FORMATS)}")
    return reader(path)


def convert(path: Path, out: TextIO, format: str | None = None) -> Trace:
    """Write a trace as native CSV, with the unknown columns of a native file; answer the trace."""
    name = recognise(path) if format is None else format
    trace = load(path, name)
    extra = native.extra_columns(path) if name == "native" else None
    native.write(trace, out, extra)
    return trace


def recognise(path: Path) -> str:
    """The format of a file by its first line, or of a folder by the files in it."""
    if path.is_dir():
        return _recognise_folder(path)
    with open_text(path) as source:
        head = source.read(_HEAD)
    first = next((line for line in head.splitlines() if line.strip()), "")
    if not first:
        raise TraceError(f"{path} is empty.")
    name = _recognise_line(first)
    if name is None:
        raise TraceError(
            f"{path} is in no trace format that Trainmaster knows: give a CSV of your own the columns"
            f" {', '.join(native.REQUIRED)}, or name one of {', '.join(FORMATS)} with --format."
        )
    return name


def _recognise_folder(path: Path) -> str:
    if (path / alibaba_2020.TASK_TABLE).exists():
        return "alibaba-2020"
    if (path / philly.JOB_LOG).exists():
        return "philly"
    raise TraceError(
        f"{path} is a folder without {alibaba_2020.TASK_TABLE} or {philly.JOB_LOG}; name a file."
    )


def _recognise_line(first: str) -> str | None:
    if first.lstrip().startswith("["):
        return "philly"
    if first.count("\t") + 1 in gavel.WIDTHS:
        return "gavel"
    cells = [cell.strip().strip('"') for cell in first.split(",")]
    if len(cells) == len(alibaba_2020.TASK_COLUMNS) and cells[3] in alibaba_2020.STATUSES:
        return "alibaba-2020"
    present = set(cells)
    overlap = {
        name: len(present.intersection(columns)) / len(columns)
        for name, columns in _HEADERS.items()
    }
    best = max(overlap, key=lambda name: overlap[name])
    return best if overlap[best] >= _ENOUGH else None
