"""The lists below the grid: jobs and queues as cells of text, and the cluster in a line."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.cli.support import format as words
from trainmaster.cli.support.console import NOTHING, cell
from trainmaster.cli.top_screen.cluster_view import ClusterView, Line
from trainmaster.cli.top_screen.job_letters import JobLetters
from trainmaster.client.manager_api import Json
from trainmaster.daemon.array_rows import ArrayRow
from trainmaster.daemon.job_rows import JobRow
from trainmaster.model.topology import SLOT_TYPE
from trainmaster.text.control_characters import visible_line
from trainmaster.text.formatting import shortened

JOB_HEADINGS = ("", "id", "name", "user", "state", "gpus", "time", "progress", "where or why")
QUEUE_HEADINGS = ("queue", "in", "held", "guaranteed", "maximum", "running", "pending", "suspended")
MOST_NAME, MOST_USER, MOST_WORDS = 16, 10, 22


def headline(view: ClusterView) -> str:
    """`3 of 4 GPUs in use, busy 87 %   2 running, 5 pending, 1 suspended   trainmaster`"""
    status = view.status
    if status["policy"] is None:
        return f"This manager is a {status['role']}: it runs no jobs now."
    unit = "CPU slots" if status["device_type"] == SLOT_TYPE else "GPUs"
    busy = [util for util in map(_util, _devices(view.nodes)) if util is not None]
    used = f"{status['used']} of {status['devices']} {unit} in use"
    if busy:
        used += f", busy {words.percent(sum(busy) / len(busy))}"
    counts = status["jobs"] or {}
    states = ", ".join(
        f"{counts.get(state, 0):,} {state}" for state in ("running", "pending", "suspended")
    )
    return f"{used}   {states}   {visible_line(status['policy'])}"


def troubles(view: ClusterView) -> list[str]:
    """What does not work as it should."""
    status = view.status
    return [visible_line(each) for each in (status["trouble"], *status["notes"]) if each]


def _devices(nodes: Sequence[Json]) -> list[Json]:
    return [device for node in nodes for device in node["devices"]]


def _util(device: Json) -> float | None:
    gpu = device.get("gpu")
    return None if gpu is None else gpu["util"]


def job_cells(line: Line, letters: JobLetters) -> tuple[str, ...]:
    """A job, or the elements of an array that wait."""
    if isinstance(line, ArrayRow):
        progress, first = NOTHING, line.rows[0]
        seconds = max(row.waiting_s or 0 for row in line.rows)
    else:
        progress, first = words.progress(line), line
        seconds = (line.waiting_s or 0) if line.start_s is None else line.run_s
    found = (
        letters.of(first.id),
        line.id,
        shortened(visible_line(line.name), MOST_NAME) or NOTHING,
        shortened(visible_line(line.user), MOST_USER),
        shortened(line.state_words, MOST_WORDS),
        line.size,
        words.length_cell(seconds) if first.name else NOTHING,  # of other users it is not told
        progress,
        line.where_or_why or NOTHING,
    )
    return tuple(map(visible_line, found))


def queue_cells(queue: Json) -> tuple[str, ...]:
    """A queue: what its jobs hold, and may."""
    keys = ("name", "parent", "gpus", "guaranteed_gpus", "maximum_gpus")
    counts = ("running", "pending", "suspended")
    return tuple(visible_line(cell(queue[key])) for key in (*keys, *counts))


def job_sentence(line: Line | None) -> str:
    """The job that is chosen, in full."""
    if line is None:
        return ""
    said = f"{line.id} {line.name}".strip()
    if isinstance(line, JobRow) and line.name:
        said += f" in {line.queue}"
    return visible_line(f"{said}: {line.state_words}. {line.where_or_why}".strip())
