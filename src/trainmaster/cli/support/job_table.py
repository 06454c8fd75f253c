"""Lists of jobs: asked for page by page, arrays folded into one line, columns that fit the screen.

Columns that matter less give way where the screen is narrow; long sentences are cut at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions
from rich.markup import escape as escaped
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from trainmaster.cli.support import format as words
from trainmaster.cli.support.client import Client, Json, Query
from trainmaster.cli.support.console import NOTHING
from trainmaster.cli.support.errors import BadInput
from trainmaster.daemon.array_rows import ArrayRow, fold
from trainmaster.daemon.response_models import JobRow
from trainmaster.model.job_state import JobState

PAGE = 1000
SMALL_PAGE = 100
GIVES_WAY = ("queue", "user", "waited", "progress", "run")
"""Where the screen is narrow, these columns are left out, the first of them first."""
GAP = 2
MOST = 40
"""Columns that any other cell gets at most."""
LEAST_LAST = 24
"""Minimum width of the last cell; other columns are dropped before it gets narrower."""


def states_of(text: str, known: Sequence[JobState], refusal: str) -> str:
    """States as the user lists them, checked: one that is not known is refused in these words."""
    words = [
        word.strip().lower().replace(" ", "_").replace("-", "_")
        for word in text.split(",")
        if word.strip()
    ]
    for word in words:
        if word not in known:
            raise BadInput(refusal.format(state=word, known=", ".join(known)))
    return ",".join(words)


def list_jobs(
    client: Client, query: Query, most: int | None = None, page: int = PAGE
) -> Iterator[Json]:
    """Rows of the manager that match, newest first, page by page."""
    before: str | None = None
    left = most
    while left is None or left > 0:
        limit = min(PAGE, page if left is None else left)
        found = client.get("/jobs", {**query, "limit": limit, "before": before})
        yield from found["jobs"]
        before = found.get("next")
        left = None if left is None else left - len(found["jobs"])
        if not before:
            return


def jobs_table(
    client: Client, query: Query, limit: int | None, width: int, *, each: bool, wide: bool
) -> Table | PlainTable:
    """The jobs that match, as `ps` shows them: arrays in one line, unless each element is wanted."""
    rows = _rows(client, query, limit, each)
    more = ("submitted", "priority", "attempt", "devices") if wide else ()
    has_lost = any(row.lost_s for row in rows)
    headings = (
        *("id", "name", "user", "queue", "state", "gpus", "waited", "run"),
        *("lost",) * has_lost,
        *("progress", *more, "where or why"),
    )
    cells = [_cells(line, wide, has_lost) for line in (rows if each else fold(rows))]
    return fit_table(headings, cells, width, () if wide else GIVES_WAY, folds=wide)


def _rows(client: Client, query: Query, limit: int | None, each: bool) -> list[JobRow]:
    """As many as are wanted: an array that is folded counts as one, and has all its elements."""
    if each or limit is None:
        return [JobRow.from_json(answer) for answer in list_jobs(client, query, limit)]
    rows: list[JobRow] = []
    lines: set[str] = set()
    for answer in list_jobs(client, query, page=max(limit, SMALL_PAGE)):
        row = JobRow.from_json(answer)
        line = row.array or row.id
        if line not in lines and len(lines) == limit:
            break
        lines.add(line)
        rows.append(row)
    return rows


def escape(text: str) -> str:
    """Text that rich takes as it is."""
    return text if "[" not in text and "\\" not in text else escaped(text)


def _cells(line: JobRow | ArrayRow, wide: bool, has_lost: bool) -> tuple[str, ...]:
    if isinstance(line, ArrayRow):
        rows: Sequence[JobRow] = line.rows
        longest = max(rows, key=lambda row: row.waiting_s or row.queue_s)
        state, gpus, why = line.state_words, line.size, line.where_or_why or NOTHING
        has_started, attempt, progress = True, NOTHING, NOTHING
    else:
        rows, longest = (line,), line
        state, gpus, why = words.state(line), f"{line.gpus:g}", words.where_or_why(line)
        has_started, attempt = line.start_s is not None, str(line.attempt)
        progress = words.progress(line)
    first = rows[0]
    more: tuple[str, ...] = ()
    if wide:
        devices = ", ".join(each for row in rows for each in row.devices)
        submitted = words.at(min(row.submit_s for row in rows))
        more = (submitted, str(first.priority), attempt, escape(devices) or NOTHING)
    return (
        *map(escape, (line.id, line.name, first.user, first.queue)),
        *(state, gpus, words.waited(longest)),
        words.length_cell(max(row.run_s for row in rows)) if has_started else NOTHING,
        *(words.lost(sum(row.lost_s or 0 for row in rows)),) * has_lost,
        progress,
        *(*more, escape(why)),
    )


def fit_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    gives_way: Sequence[str] = (),
    folds: bool = False,
) -> Table | PlainTable:
    """A table of cells in rich's markup; `gives_way` names columns, first to go first."""
    columns = [_column(texts) for texts in zip(*rows, strict=True)] or [[] for _ in headings]
    widths = [
        min(max(len(heading), _widest(column)), MOST)
        for heading, column in zip(headings, columns, strict=True)
    ]
    kept = _kept(headings, widths, width, gives_way)
    kept_headings, kept_widths = [headings[at] for at in kept], [widths[at] for at in kept[:-1]]
    kept_columns = [columns[at] for at in kept]
    if not folds:
        return PlainTable(kept_headings, kept_columns, kept_widths)
    made = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for heading, size in zip(kept_headings, kept_widths, strict=False):
        made.add_column(heading, no_wrap=True, width=size, overflow="ellipsis")
    made.add_column(kept_headings[-1], overflow="fold")
    for row in zip(*kept_columns, strict=True):
        made.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return made


Cell = str | Text
"""Plain letters, or anything else: colours, wide characters."""


def _column(texts: Sequence[str]) -> Sequence[Cell]:
    whole = "".join(texts)
    if whole.isascii() and "[" not in whole:  # the usual case, and by far the quickest
        return texts
    return [
        text if text.isascii() and "[" not in text else Text.from_markup(text) for text in texts
    ]


def _widest(column: Sequence[Cell]) -> int:
    return max(
        (len(cell) if isinstance(cell, str) else cell.cell_len for cell in column), default=0
    )


class PlainTable:
    """Rows of one line each. Rich's own table takes half a millisecond for one: too long for thousands."""

    def __init__(
        self, headings: Sequence[str], columns: Sequence[Sequence[Cell]], widths: Sequence[int]
    ) -> None:
        self._headings, self._columns, self._widths = headings, columns, widths
        self.row_count = len(columns[0])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        taken = sum(self._widths) + GAP * len(self._widths)
        widths = (*self._widths, max(1, options.max_width - taken))
        columns = [
            [_fitted(cell, width) for cell in (Text(heading, style="bold", end=""), *column)]
            for heading, column, width in zip(self._headings, self._columns, widths, strict=True)
        ]
        plain: list[str] = []
        for row in zip(*columns, strict=True):
            if all(type(cell) is str for cell in row):
                plain.append((" " * GAP).join(row).rstrip())
                continue
            if plain:
                yield Segment("\n".join((*plain, "")))
                plain = []
            yield from _styled(row, console)
            yield Segment.line()
        if plain:
            yield Segment("\n".join((*plain, "")))


def _fitted(cell: Cell, width: int) -> Cell:
    """Cut and padded to its column."""
    if isinstance(cell, str):
        return cell.ljust(width) if len(cell) <= width else f"{cell[: width - 1]}…"
    cell.truncate(width, overflow="ellipsis", pad=True)
    return cell if cell.style or cell.spans else cell.plain


def _styled(row: Sequence[Cell], console: Console) -> Iterator[Segment]:
    """A line with colours; what is padded at its end is left out."""
    for at, cell in enumerate(row):
        is_last = at == len(row) - 1
        if isinstance(cell, str):
            yield Segment(cell.rstrip() if is_last else cell + " " * GAP)
            continue
        if is_last:
            cell.rstrip()
        yield from cell.render(console)
        if not is_last:
            yield Segment(" " * GAP)


def _kept(
    headings: Sequence[str], widths: Sequence[int], width: int, gives_way: Sequence[str]
) -> list[int]:
    """Numbers of the columns that there is room for, the last always among them."""
    kept = list(range(len(headings)))
    leaving = [headings.index(name) for name in gives_way if name in headings]
    while leaving:
        needed = sum(widths[at] + GAP for at in kept[:-1]) + min(widths[kept[-1]], LEAST_LAST)
        if needed <= width:
            break
        kept.remove(leaving.pop(0))
    return kept
