"""Lists of jobs: asked for page by page, arrays folded into one line, columns that fit the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainmaster.cli.support import format as words
from trainmaster.cli.support.console import NOTHING
from trainmaster.cli.support.plain_table import Cell, PlainTable, fit_table
from trainmaster.client.job_lists import list_jobs
from trainmaster.client.manager_api import ManagerApi, Query
from trainmaster.daemon.array_rows import ArrayRow, fold
from trainmaster.daemon.job_rows import JobRow
from trainmaster.errors import BadInput
from trainmaster.model.job_state import JobState

if TYPE_CHECKING:
    from rich.table import Table

SMALL_PAGE = 100
GIVES_WAY = ("queue", "user", "waited", "progress", "run")
"""Where the screen is narrow, these columns are left out, the first of them first."""


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


def jobs_table(
    client: ManagerApi, query: Query, limit: int | None, width: int, *, each: bool, wide: bool
) -> Table | PlainTable:
    """The jobs that match, as `ps` shows them: arrays in one line, unless each element is wanted."""
    rows = _rows(client, query, limit, each)
    more = ("submitted", "priority", "attempt", "devices") if wide else ()
    has_lost = any(row.lost_s >= 1 for row in rows)
    headings = (
        *("id", "name", "user", "queue", "state", "gpus", "waited", "run"),
        *("lost",) * has_lost,
        *("progress", *more, "where or why"),
    )
    cells = [_cells(line, wide, has_lost) for line in (rows if each else fold(rows))]
    return fit_table(headings, cells, width, () if wide else GIVES_WAY, folds=wide)


def _rows(client: ManagerApi, query: Query, limit: int | None, each: bool) -> list[JobRow]:
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


def _cells(line: JobRow | ArrayRow, wide: bool, has_lost: bool) -> tuple[Cell, ...]:
    if isinstance(line, ArrayRow):
        rows: Sequence[JobRow] = line.rows
        longest = max(rows, key=lambda row: row.waiting_s or row.queue_s)
        state: Cell = line.state_words
        gpus, why = line.size, line.where_or_why or NOTHING
        has_started, attempt, progress = True, NOTHING, NOTHING
    else:
        rows, longest = (line,), line
        state, gpus, why = words.state(line), line.size, words.where_or_why(line)
        has_started, attempt = line.start_s is not None, str(line.attempt)
        progress = words.progress(line)
    first = rows[0]
    is_hidden = not first.name  # another user's: its times are not shown either
    more: tuple[str, ...] = ()
    if wide:
        devices = ", ".join(each for row in rows for each in row.devices)
        submitted = words.at(None if is_hidden else min(row.submit_s for row in rows))
        more = (submitted, str(first.priority), attempt, devices or NOTHING)
    return (
        *(line.id, line.name or NOTHING, first.user, first.queue),
        *(state, gpus, NOTHING if is_hidden else words.waited(longest)),
        words.length_cell(max(row.run_s for row in rows)) if has_started else NOTHING,
        *(words.lost(sum(row.lost_s or 0 for row in rows)),) * has_lost,
        progress,
        *(*more, why),
    )
