"""Reads tables row by row; every error is one sentence with file, line and column."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import TextIO

from trainmaster.model.job import Demand, Shape
from trainmaster.model.trace import Trace, TracedJob, TraceError
from trainmaster.model.units import SECOND, WHOLE

LONGEST_S = 10**12
"""No time in a trace may exceed this (30,000 years): a larger one is a typing error."""

MOST_GPUS = 1_000_000

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Table:
    """A delimited file that knows where it is, so that a bad value can be named to its cell."""

    def __init__(self, path: Path, source: TextIO, delimiter: str = ",") -> None:
        self.path = path
        self.columns: tuple[str, ...] = ()
        self._positions: dict[str, int] = {}
        # Tab-separated traces hold command lines, in which a quote is just a quote.
        quotes = None if delimiter == "\t" else '"'
        self._reader = csv.reader(source, delimiter=delimiter, strict=True, quotechar=quotes)
        self._held: list[str] | None = None

    @property
    def line(self) -> int:
        """Line of the row that was read last."""
        return self._reader.line_num

    def read_header(self, required: Sequence[str]) -> None:
        """Take the first row as column names and insist on the required ones."""
        first = self._next_row()
        if first is None:
            raise TraceError(f"{self.path} is empty.")
        self.name_columns([name.strip() for name in first])
        missing = [name for name in required if name not in self._positions]
        if missing:
            s = "s" if len(missing) > 1 else ""
            raise TraceError(
                f"{self.path} line {self.line}: the header has no column{s} {', '.join(missing)}."
            )

    def accept_header(self, names: Sequence[str]) -> None:
        """Name the columns of a file that may come with its header row or without."""
        first = self._next_row()
        if first is None:
            raise TraceError(f"{self.path} is empty.")
        self.name_columns(names)
        if [name.strip() for name in first] != list(names):
            self._held = first

    def width(self) -> int:
        """How many fields the next row has; the row stays to be read."""
        row = self._next_row()
        if row is None:
            raise TraceError(f"{self.path} is empty.")
        self._held = row
        return len(row)

    def name_columns(self, names: Sequence[str]) -> None:
        self.columns = tuple(names)
        self._positions = {name: i for i, name in enumerate(names)}
        if len(self._positions) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise TraceError(f"{self.path} line {self.line}: column {twice!r} is there twice.")

    def position(self, column: str) -> int:
        return self._positions[column]

    def find(self, column: str) -> int | None:
        """Where an optional column stands, if the file has it."""
        return self._positions.get(column)

    def rows(self) -> Iterator[list[str]]:
        """Every row that is not blank, each as wide as the header."""
        width = len(self.columns)
        while (row := self._next_row()) is not None:
            if len(row) != width:
                raise TraceError(
                    f"{self.path} line {self.line}: the row has {len(row)} fields,"
                    f" {width} are expected."
                )
            yield row

    def _next_row(self) -> list[str] | None:
        if self._held is not None:
            held, self._held = self._held, None
            return held
        try:
            for row in self._reader:
                if row:
                    return row
        except csv.Error as error:
            raise TraceError(f"{self.path} line {self.line}: {error}.") from None
        return None

    def problem(self, column: str, complaint: str) -> TraceError:
        return TraceError(f"{self.path} line {self.line}, column {column}: {complaint}.")

    def number(self, text: str, column: str) -> float:
        """A finite number."""
        try:
            value = float(text)
        except ValueError:
            raise self.problem(column, _not_a("a number", text)) from None
        if not isfinite(value):
            raise self.problem(column, f"{text.strip()!r} is not a finite number")
        return value

    def milliseconds(self, text: str, column: str) -> int:
        """A time or a length of time in seconds, not negative, as whole milliseconds."""
        value = self.number(text, column)
        if value < 0:
            raise self.problem(column, f"{text.strip()} is negative")
        if value > LONGEST_S:
            raise self.problem(column, f"{text.strip()} is longer than {LONGEST_S} seconds")
        return round(value * SECOND)

    def whole(self, text: str, column: str, least: int | None = None) -> int:
        """A whole number; `4.0` is one too, because spreadsheets write it so."""
        try:
            value = int(text)
        except ValueError:
            number = self.number(text, column)
            if not number.is_integer():
                raise self.problem(column, f"{text.strip()!r} is not a whole number") from None
            value = int(number)
        if least is not None and value < least:
            raise self.problem(column, f"{value} is less than {least}")
        return value

    def gpus(self, text: str, column: str, least: int = 1) -> int:
        """A number of GPUs."""
        count = self.whole(text, column, least)
        if count > MOST_GPUS:
            raise self.problem(column, f"{count} GPUs are more than any cluster has")
        return count

    def moment(self, text: str, column: str) -> int:
        """A wall-clock date and time as milliseconds since 1970 on the file's own clock."""
        try:
            return wall_clock_ms(text)
        except ValueError:
            raise self.problem(
                column, _not_a("a date and time such as 2017-10-09 07:01:55", text)
            ) from None


def wall_clock_ms(text: str) -> int:
    """Milliseconds since 1970 of `2017-10-09 07:01:55`, taken as it stands; zones are dropped."""
    text = text.strip()
    if text.endswith((" PST", " PDT")):
        text = text[:-4]
    moment = datetime.fromisoformat(text)
    return (moment.replace(tzinfo=UTC) - EPOCH) // _MILLISECOND


def _not_a(what: str, text: str) -> str:
    shown = text.strip()
    return f"{shown!r} is not {what}" if shown else f"a value is missing, {what} is expected"


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """A text file open for reading; what goes wrong with it is said in one sentence."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as source:
            yield source
    except UnicodeDecodeError:
        raise TraceError(f"{path} is not UTF-8 text; save it as UTF-8 and try again.") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise TraceError(f"{path} cannot be read: {reason}.") from None


@contextmanager
def open_table(path: Path, delimiter: str = ",") -> Iterator[Table]:
    with open_text(path) as source:
        yield Table(path, source, delimiter)


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
        self.jobs: list[TracedJob] = []
        self._what = what
        self._seen: dict[str, int] = {}
        self._left_out: Counter[str] = Counter()
        self._notes: list[str] = []

    def claim(self, job_id: str, place: int, column: str = "job_id") -> None:
        """Take an id for a job; the second job that wants it is an error that names both."""
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

    def trace(self) -> Trace:
        """The finished trace, sorted by submission; ties keep their order in the file."""
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


def midnight_before(first_ms: int) -> int:
    """The start of that day on the file's own clock, so that hours of the day survive."""
    day = 86_400 * SECOND
    return first_ms // day * day
