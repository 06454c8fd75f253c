"""When an input path is set aside, and for which jobs: one bad file must not fail job after job.

A path is set aside when several jobs have failed on it, of several users or of several programs: one
program with a wrong path of its own says nothing about the path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from trainmaster.failures.retry_rules import unchanging
from trainmaster.model.inputs import InputBlock, InputFailure
from trainmaster.model.units import DAY

MISSING = "missing"
"""How the stamp of a path that does not exist begins; that of the folder that it would be in follows."""
MISSING_REASON = "missing-file"
RECENT_MS = 7 * DAY
"""Older failures do not count."""
WORDS = re.compile(r"[^\s'\"`=,;|&<>()]+")
"""What may be a path in a command line, or in a script that a shell is given."""
OUTPUT_OPTION = re.compile(
    r"(?i)(?!.*(?:load|from|input|prev|read|resume))-{0,2}(?:o|of|to|dst|dest|destination"
    r"|(?:[a-z0-9]+[-_.])*(?:out|output|save|export)s?(?:dir|file|path|to|folder)?(?:[-_].*)?)"
)
"""What is said before a path that the job makes: `--out`, `--save-dir`, `hydra.output_dir=`; ..."""
REDIRECTION = re.compile(r">[>|&]?\s*['\"]?$")
"""... or, in what a shell is given, between it and the word before."""
TEE = "tee"
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
    """The paths that a job names, in its data and in its arguments, but for those that it makes.

    Cached: arrays have many such jobs.
    """
    words = (word for word, is_output in _words(command) if not is_output)
    return frozenset(absolute(each, workdir) for each in (*words, *data) if each)


@lru_cache(maxsize=4096)
def made_paths(command: tuple[str, ...], workdir: str) -> frozenset[str]:
    """The paths that a job names only as its outputs: `--out PATH`, `> PATH`."""
    made = frozenset(absolute(word, workdir) for word, is_output in _words(command) if is_output)
    return made - named_paths(command, workdir, ())


def is_made(path: str, command: tuple[str, ...], workdir: str, data: tuple[str, ...]) -> bool:
    """Whether a path is, or lies in, an output of a job, and is not in one of its inputs as well."""
    found, named = absolute(path, workdir), named_paths(command, workdir, data)
    return any(is_in(found, each) for each in made_paths(command, workdir)) and not any(
        is_in(found, each) for each in named
    )


def _words(command: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
    """What may be a path in a command line, and whether it is said there to be an output."""
    before = ""
    for argument in command:
        is_value = before.startswith("-") and OUTPUT_OPTION.fullmatch(before) is not None
        if argument:
            yield argument, is_value
        last, end = "", 0
        for word in WORDS.finditer(argument):
            yield word[0], is_value or _is_output(last, argument[end : word.start()])
            last, end = word[0], word.end()
        before = argument


def _is_output(last: str, between: str) -> bool:
    """Whether a word is an output by the word before it, and by what stands between the two."""
    if last == TEE or REDIRECTION.search(between):
        return True
    is_option = last.startswith("-") or "=" in between
    return is_option and OUTPUT_OPTION.fullmatch(last) is not None


def block_of(named: Iterable[str], blocks: Iterable[InputBlock]) -> InputBlock | None:
    """The first block that keeps a job from starting that names these paths."""
    paths = tuple(named)
    return next((each for each in blocks if any(is_in(path, each.path) for path in paths)), None)


def has_changed(block: InputBlock, stamp: str) -> bool:
    """Whether the path is another one than it was when jobs failed on it."""
    if block.stamp:
        return stamp != block.stamp
    was_missing = bool(block.failures) and block.failures[-1].reason == MISSING_REASON
    return was_missing and not stamp.startswith(MISSING)
