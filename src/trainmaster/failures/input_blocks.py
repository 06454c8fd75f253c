"""When an input path is set aside, and for which jobs: one bad file must not fail job after job.

A path is set aside when several jobs have failed on it, of several users or of several programs: one
program with a wrong path of its own says nothing about the path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from trainmaster.failures.retry_rules import unchanging
from trainmaster.model.inputs import InputBlock, InputFailure
from trainmaster.model.units import DAY

MISSING = "missing"
"""The stamp of a path that does not exist."""
MISSING_REASON = "missing-file"
RECENT_MS = 7 * DAY
"""Older failures do not count."""
WORDS = re.compile(r"[^\s'\"`=,;|&<>()]+")
"""What may be a path in a command line, or in a script that a shell is given."""
INTERPRETER = re.compile(r"python[\d.]*")
REMOTE = re.compile(r"^\w+://")
ROOT = "/"


def absolute(path: str, workdir: str) -> str:
    """The path as seen from a folder, without detours; a URL stays as it is."""
    if REMOTE.match(path):
        return path.rstrip(ROOT)
    whole = path if path.startswith(ROOT) else f"{workdir}/{path}"
    parts: list[str] = []
    for part in whole.split(ROOT):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return ROOT + ROOT.join(parts)


def is_in(path: str, folder: str) -> bool:
    """Whether it is this path, or lies below it."""
    return path == folder or path.startswith(f"{folder.rstrip(ROOT)}/")


def failed_inputs(path: str, workdir: str, data: Iterable[str]) -> tuple[str, ...]:
    """The paths that a failure counts against: the one that it names, and the stated data around it."""
    if not path:
        return ()
    found = absolute(path, workdir)
    around = [each for each in (absolute(each, workdir) for each in data) if is_in(found, each)]
    return tuple(each for each in dict.fromkeys((found, *around)) if each != ROOT)


def program_key(app: str, folder: str, command: tuple[str, ...]) -> str:
    """What makes two jobs of one user jobs of one program: the name and the folder it was submitted from.

    Code that is given to Python on the command line is told apart by its text, numbers left out.
    """
    code = unchanging(" ".join(command)) if INTERPRETER.fullmatch(app) else ""
    return f"{folder}/{app} {code}".rstrip()


def is_to_be_blocked(failures: Sequence[InputFailure], jobs: int) -> bool:
    """Whether so many jobs failed on it within a week, and not all of one program of one user."""
    last_ms = max((each.at_ms for each in failures), default=0)
    recent = [each for each in failures if last_ms - each.at_ms <= RECENT_MS]
    if len({each.job for each in recent}) < jobs:
        return False
    return len({each.user for each in recent}) > 1 or len({each.program for each in recent}) > 1


@lru_cache(maxsize=4096)
def named_paths(command: tuple[str, ...], workdir: str, data: tuple[str, ...]) -> frozenset[str]:
    """The paths that a job names, in its data and in its arguments. Cached: arrays have many such jobs."""
    words = (word for argument in command for word in WORDS.findall(argument))
    return frozenset(absolute(each, workdir) for each in (*command, *words, *data) if each)


def block_of(named: Iterable[str], blocks: Iterable[InputBlock]) -> InputBlock | None:
    """The first block that keeps a job from starting that names these paths."""
    paths = tuple(named)
    return next((each for each in blocks if any(is_in(path, each.path) for path in paths)), None)


def has_changed(block: InputBlock, stamp: str) -> bool:
    """Whether the path is another one than it was when jobs failed on it."""
    if block.stamp:
        return stamp != block.stamp
    was_missing = bool(block.failures) and block.failures[-1].reason == MISSING_REASON
    return was_missing and stamp != MISSING
