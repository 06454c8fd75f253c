"""Reads tables row by row; every error is one sentence with file, line and column."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import TextIO, TypeVar

from trainmaster.model.job import Demand, Shape
from trainmaster.model.topology import NodeSpec, Topology, TopologyError, build
from trainmaster.model.trace import Trace, TracedJob, TraceError
from trainmaster.model.units import DAY, SECOND, WHOLE

T = TypeVar("T")

RETRIES = 2
"""A job's retries unless its failed attempts in the trace ask for more."""
LONGEST_S = 10**12
"""No time in a trace may exceed this (30,000 years): a larger one is a typing error."""

MOST_GPUS = 1_000_000

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class TraceRow(dict[str, str]):
    """One row of a table by column; its methods read a cell, and name it in errors."""

    __slots__ = ("_table",)

    def __init__(self, table: TraceTable, cells: Sequence[str]) -> None:
        super().__init__(table.absent)
        self.update(zip(table.columns, map(str.strip, cells), strict=True))
        self._table = table

    @property
    def line(self) -> int:
        return self._table.line

    def problem(self, column: str, complaint: str) -> TraceError:
        return TraceError(f"{self._table.path} line {self.line}, column {column}: {complaint}.")

    def number(self, column: str, text: str | None = None) -> float:
        """A finite number, in the cell or in a piece of it."""
        shown = self[column] if text is None else text.strip()
        try:
            value = float(shown)
        except ValueError:
            raise self.problem(column, _not_a("a number", shown)) from None
        if not isfinite(value):
            raise self.problem(column, f"{shown!r} is not a finite number")
        return value

    def milliseconds(self, column: str, text: str | None = None) -> int:
        """A time or a length of time in seconds, not negative, as whole milliseconds."""
        value = self.number(column, text)
        if 0 <= value <= LONGEST_S:
            return round(value * SECOND)
        problem = "negative" if value < 0 else f"longer than {LONGEST_S} seconds"
        raise self.problem(column, f"{(text or self[column]).strip()} is {problem}")

    def whole(self, column: str, least: int | None = None) -> int:
        """A whole number; `4.0` is one too, because spreadsheets write it so."""
        text = self[column]
        try:
            value = int(text)
        except ValueError:
            number = self.number(column)
            if not number.is_integer():
                raise self.problem(column, f"{text!r} is not a whole number") from None
            value = int(number)
        if least is not None and value < least:
            raise self.problem(column, f"{value} is less than {least}")
        return value

    def gpus(self, column: str, least: int = 1) -> int:
        """A number of GPUs."""
        count = self.whole(column, least)
        if count > MOST_GPUS:
            raise self.problem(column, f"{count} GPUs are more than any cluster has")
        return count

    def moment(self, column: str) -> int:
        """A wall-clock date and time as milliseconds since 1970 on the file's own clock."""
        try:
            return wall_clock_ms(self[column])
        except ValueError:
            wanted = "a date and time such as 2017-10-09 07:01:55"
            raise self.problem(column, _not_a(wanted, self[column])) from None

    def choice(self, column: str, words: Mapping[str, T]) -> T:
        """The value of one of these words."""
        text = self[column]
        word = text if text in words else text.lower()
        if word not in words:
            known = ", ".join(filter(None, words))
            raise self.problem(column, f"{text!r} is none of {known}")
        return words[word]


class TraceTable:
    """A delimited file, read row by row."""

    def __init__(self, path: Path, source: TextIO, delimiter: str = ",") -> None:
        self.path = path
        self.columns: Sequence[str] = ()
        self.absent: Mapping[str, str] = {}
        """Optional columns that the file lacks: empty cells of every row."""
        # Tab-separated traces hold command lines, in which a quote is just a quote.
        quotes = None if delimiter == "\t" else '"'
        self._reader = csv.reader(source, delimiter=delimiter, strict=True, quotechar=quotes)
        self.first = self._next_cells()
        """The row that is read next; None at the end of the file."""
        if self.first is None:
            raise TraceError(f"{path} is empty.")

    @property
    def line(self) -> int:
        """Line number of the last row read."""
        return self._reader.line_num

    def read_header(self, required: Sequence[str], optional: Sequence[str] = ()) -> None:
        """Take the first row as column names and insist on the required ones."""
        self.columns = names = [name.strip() for name in self.first or ()]
        where, self.first = f"{self.path} line {self.line}", None
        self.absent = dict.fromkeys([name for name in optional if name not in names], "")
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise TraceError(f"{where}: column {twice!r} is there twice.")
        missing = [name for name in required if name not in names]
        if missing:
            s = "s" if len(missing) > 1 else ""
            raise TraceError(f"{where}: the header has no column{s} {', '.join(missing)}.")

    def accept_header(self, names: Sequence[str]) -> None:
        """Name the columns of a file that may come with its header row or without."""
        self.columns = names
        if [name.strip() for name in self.first or ()] == list(names):
            self.first = None

    def rows(self) -> Iterator[TraceRow]:
        """Every row that is not blank, each as wide as the header."""
        width = len(self.columns)
        cells = self.first or self._next_cells()
        while cells is not None:
            if len(cells) != width:
                raise TraceError(
                    f"{self.path} line {self.line}: the row has {len(cells)} fields,"
                    f" {width} are expected."
                )
            yield TraceRow(self, cells)
            cells = self._next_cells()

    def _next_cells(self) -> list[str] | None:
        try:
            return next(filter(None, self._reader), None)
        except csv.Error as error:
            raise TraceError(f"{self.path} line {self.line}: {error}.") from None


def wall_clock_ms(text: str) -> int:
    """Milliseconds since 1970 of `2017-10-09 07:01:55`, taken as it stands; zones are dropped."""
    moment = datetime.fromisoformat(text.strip().removesuffix(" PST").removesuffix(" PDT"))
    return (moment.replace(tzinfo=UTC) - EPOCH) // _MILLISECOND


def _not_a(what: str, shown: str) -> str:
    return f"{shown!r} is not {what}" if shown else f"a value is missing, {what} is expected"


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open a text file for reading; errors become one sentence."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as source:
            yield source
    except UnicodeDecodeError:
        raise TraceError(f"{path} is not UTF-8 text; save it as UTF-8 and try again.") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise TraceError(f"{path} cannot be read: {reason}.") from None


@contextmanager
def open_table(path: Path, delimiter: str = ",") -> Iterator[TraceTable]:
    with open_text(path) as source:
        yield TraceTable(path, source, delimiter)


def read_json(path: Path) -> object:
    with open_text(path) as source:
        try:
            return json.load(source)
        except json.JSONDecodeError as error:
            raise TraceError(f"{path} line {error.lineno}: it is not JSON, {error.msg}.") from None


def one_rack(path: Path, nodes: Sequence[NodeSpec]) -> Topology:
    """The cluster of a list of machines without racks."""
    try:
        return build(("cluster", "rack", "node", "gpu"), nodes)
    except TopologyError as error:
        raise TraceError(f"{path}: {error}.") from None


@lru_cache(maxsize=65_536)
def demand_for(
    count: int,
    share: int = WHOLE,
    memory: int = 0,
    minimum: int | None = None,
    maximum: int | None = None,
    gpu_type: str | None = None,
) -> Demand:
    """The one Demand object for these numbers: a million jobs ask for a few dozen of them."""
    return Demand(
        nominal=Shape(count=count, share=share, memory=memory),
        min_count=count if minimum is None else minimum,
        max_count=count if maximum is None else maximum,
        gpu_type=gpu_type,
    )


class TraceBuilder:
    """Collects the jobs of a trace: ids seen, rows left out, and at the end all jobs or an error."""

    def __init__(self, path: Path, what: str = "line") -> None:
        self.path = path
        self._what = what
        self.jobs: list[TracedJob] = []
        self._seen: dict[str, int] = {}
        self._left_out: Counter[str] = Counter()
        self._notes: list[str] = []

    def claim(self, row: TraceRow, column: str = "job_id") -> str:
        """The id in a cell, for one job only."""
        job_id = row[column]
        if not job_id:
            raise row.problem(column, f"the {column.rpartition('_')[2]} is missing")
        self.claim_at(job_id, row.line, column)
        return job_id

    def claim_at(self, job_id: str, place: int, column: str) -> None:
        """Register a job's id; a duplicate raises an error that names both lines."""
        first = self._seen.setdefault(job_id, place)
        if first != place:
            raise TraceError(
                f"{self.path} {self._what} {place}, column {column}:"
                f" {job_id!r} is already on {self._what} {first}."
            )

    def leave_out(self, reason: str, jobs: int = 1) -> None:
        if jobs:
            self._left_out[reason] += jobs

    def note(self, text: str) -> None:
        self._notes.append(text)

    def trace(self, *, is_dated: bool = False) -> Trace:
        """The finished trace, sorted by submission; ties keep their order in the file.

        Where submissions are dates, time 0 is midnight before the first: hours of the day survive.
        """
        if is_dated and self.jobs:
            origin = min(traced.job.submit_ms for traced in self.jobs) // DAY * DAY
            self.jobs = [
                replace(each, job=replace(each.job, submit_ms=each.job.submit_ms - origin))
                for each in self.jobs
            ]
        left_out = list(self._left_out.items())
        if not self.jobs:
            why = ", ".join(f"{count} left out: {reason}" for reason, count in left_out)
            raise TraceError(f"{self.path} holds no jobs{f' ({why})' if why else ''}.")
        notes = [
            f"{self.path.name}: {count} job{'s' if count > 1 else ''} left out: {reason}."
            for reason, count in left_out
        ]
        notes += self._notes
        times = [traced.job.submit_ms for traced in self.jobs]
        if any(later < earlier for earlier, later in pairwise(times)):
            self.jobs.sort(key=lambda traced: traced.job.submit_ms)
            notes.append(f"{self.path.name}: submit times were not in order; the jobs were sorted.")
        return Trace(jobs=tuple(self.jobs), notes=tuple(notes))
