"""Times, GPUs and progress of live jobs as text, and such text of the command line read."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from trainmaster.cli.support.console import NOTHING
from trainmaster.cli.support.plain_table import Cell, Coloured
from trainmaster.client.address import state_folder, user_data_folder
from trainmaster.errors import BadInput
from trainmaster.text.formatting import exact_length, first_of, plural, short_length

if TYPE_CHECKING:
    from trainmaster.daemon.job_rows import JobRow

MOST_NAMES = 8
"""Of nodes that are named before a sentence."""
COLOURS = {
    "running": "green",
    "succeeded": "dim",
    "failed": "red",
    "timed_out": "red",
    "cancelled": "dim",
    "suspended": "yellow",
}


def length_cell(seconds: float | None) -> str:
    """A length of time for a column: `3m12s`, `2d04h`."""
    return NOTHING if seconds is None else short_length(seconds)


def lost(seconds: float) -> Cell:
    """Work that was lost, in red."""
    return Coloured(short_length(seconds), "red") if seconds >= 1 else NOTHING


def at(seconds: float | None) -> str:
    """A point of time, in the reader's time zone."""
    if seconds is None:
        return NOTHING
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M:%S}"


def ago(seconds: float | None) -> str:
    if seconds is None:
        return NOTHING
    since = time.time() - seconds
    return f"{short_length(since)} ago" if since >= 1 else "just now"


def percent(part: float | None) -> str:
    """A part of 1: 42 %."""
    return "-" if part is None else f"{100 * part:.0f} %"


def progress(row: JobRow) -> str:
    """How far it has come: part and step where it says so."""
    if row.progress is None:
        return NOTHING
    step, total = row.progress.step, row.progress.total_steps
    return f"{100 * step / total:.0f}% ({step}/{total})" if total else f"step {step}"


def state(row: JobRow) -> Cell:
    """A job's state in its colour, with what is to be said beside it: `pending (dependency)`."""
    colour = COLOURS.get(row.state)
    return Coloured(row.state_words, colour) if colour else row.state_words


def state_label(word: str) -> str:
    """`timed out`."""
    return word.replace("_", " ")


def waited(row: JobRow) -> str:
    """How long it has been waiting now, or waited for its first start."""
    return length_cell(row.queue_s if row.waiting_s is None else row.waiting_s)


def where_or_why(row: JobRow) -> str:
    """The last column: where it runs, why it waits, how and why it failed."""
    return row.where_or_why or NOTHING


def left_jobs(running: int, waiting: int) -> str:
    """`2 jobs go on, 1 waits`."""
    goes_on = "goes on" if running == 1 else "go on"
    waits = "waits" if waiting == 1 else "wait"
    said = [f"{plural(running, 'job')} {goes_on}"] if running else []
    said += [f"{waiting if said else plural(waiting, 'job')} {waits}"] if waiting else []
    return ", ".join(said)


def found_again(running: int, waiting: int, folder: Path) -> str:
    """What jobs do without their manager, and which command finds them again."""
    is_default = folder == user_data_folder() == state_folder(None)
    where = "" if is_default else f" --data {shlex.quote(str(folder))}"
    them = "it" if running + waiting == 1 else "them"
    return f"{left_jobs(running, waiting)}; `trainmaster up{where}` finds {them} again."


def by_sentence(said: Iterable[tuple[str, str]]) -> list[str]:
    """What is said of nodes, each sentence once: `n0 and n1: Memory is not limited.`"""
    nodes: dict[str, list[str]] = {}
    for node, sentence in said:
        nodes.setdefault(sentence, []).append(node)
    return [f"{first_of(names, MOST_NAMES)}: {sentence}" for sentence, names in nodes.items()]


def seconds_of(text: str, option: str) -> float:
    """A length of time of the command line: 90s, 1h30m, 2d, 01:30:00."""
    from trainmaster.config.units import duration_ms

    try:
        return duration_ms(text) / 1000
    except ValueError as error:
        raise BadInput(f"{option} {error}") from None


def stated_length(value: object) -> str:
    """A length of time of a job file, in one way of writing it."""
    from trainmaster.config.units import duration_ms

    try:
        return exact_length(duration_ms(value))
    except ValueError:  # of an earlier version: seconds
        return f"{value}s"


def settings_of(texts: Sequence[str], what: str) -> dict[str, str]:
    """`key=value` arguments as a mapping."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise BadInput(f"{what} `{text}` has no value: write key=value.")
        found[key.strip()] = value
    return found
