"""The cluster at one moment as plain text: for `--once`, files and pipes."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.cli.support.plain_table import PlainTable, fit_table
from trainmaster.cli.top_screen.cluster_lists import (
    JOB_HEADINGS,
    QUEUE_HEADINGS,
    headline,
    job_cells,
    queue_cells,
    troubles,
)
from trainmaster.cli.top_screen.cluster_view import Choice, ClusterView
from trainmaster.cli.top_screen.gpu_grid import LEGEND, grid_lines, jobs_on
from trainmaster.cli.top_screen.job_letters import JobLetters
from trainmaster.text.control_characters import visible_line

GIVES_WAY = ("user", "time", "progress")
MORE = "More jobs match: `trainmaster ps` lists all."


def snapshot_text(view: ClusterView, choice: Choice, width: int) -> str:
    """Headline, grid, jobs and queues, as wide as stated."""
    letters = JobLetters()
    letters.give(jobs_on(view.nodes))
    grid = [
        "".join(part.text for part in line).rstrip()
        for line in grid_lines(view.nodes, letters, width)
    ]
    jobs = [job_cells(line, letters) for line in view.lines()]
    queues = [queue_cells(each) for each in view.queues]
    blocks = (
        [headline(view), *troubles(view)],
        [*grid, LEGEND] if grid else [],
        [_table(JOB_HEADINGS, jobs, width, GIVES_WAY)] if jobs else [_nothing(choice)],
        [MORE] if view.is_cut else [],
        [_table(QUEUE_HEADINGS, queues, width)] if queues else [],
    )
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _nothing(choice: Choice) -> str:
    """That nothing is listed."""
    if choice == Choice():
        return "No jobs. `trainmaster run -- COMMAND` starts one."
    return visible_line(f"None of {choice.words()}.")


def _table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    gives_way: Sequence[str] = (),
) -> str:
    table = fit_table(headings, rows, width, gives_way)
    assert isinstance(table, PlainTable)  # only folded ones are not
    return table.text(width, {}).rstrip("\n")
