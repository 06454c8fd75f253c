"""Whether a traceback ends in a call that writes: the path that it names is then an output, and no input."""

from __future__ import annotations

import re
from collections.abc import Sequence

ARGUMENTS = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*?"
WRITES = re.compile(
    rf"(?:open\w*|File|memmap)\((?:{ARGUMENTS},)?\s*(?:mode\s*=\s*)?"
    r"""["'](?:[wax][bt+]{0,2}|[bt][wax]\+?|[wax][:|]\w*)["']"""
    r"|\bO_(?:WRONLY|CREAT)\b"
    r"|\b(?:mkdir|makedirs|mkdtemp|mkstemp|mkfifo|mknod|touch|symlink|symlink_to|urlretrieve)\("
    r"|(?:\.to_(?!list|numpy|dict|tensor|device)\w+|\b(?:img|im|fig)?sav(?:e|efig|etxt|ez)(?:_\w+)?)\("
    r"|\b(?:write_(?!through)\w+|imwrite|imsave|savemat|\w*FileHandler|\w*Writer)\("
    r"|\bos\.(?:rename|replace|link)\(|\bshutil\.move\(|\b\w*Temporary(?:File|Directory)\("
    r"|\bjoblib\.dump\(|\bbasicConfig\(.*filename|\bopen\((?:dst|dest)\b"
)
"""Calls of which the path is made: a mode that writes, folders, and the libraries' ways to save."""
READS = re.compile(
    rf"""\bopen\({ARGUMENTS},\s*(?:mode\s*=\s*)?["']r|\bopen\((?:[^(),]|\({ARGUMENTS}\))*\)"""
    r"|\b(?:read_(?!only)\w+|load\w*|listdir|scandir)\("
)
SHELL_WRITES = re.compile(
    r"(?:\b|^)(?:mkdir|tee|touch): |cannot (?:create|touch)\b|[Dd]irectory nonexistent"
)
"""How a shell and its tools say that they could not make a path."""


def is_written(code: Sequence[str]) -> bool:
    """Whether the last of these lines of code that reads or writes at all writes.

    `code`: from the last frame of the program itself to that of the exception.
    """
    told = (line for line in reversed(code) if WRITES.search(line) or READS.search(line))
    return WRITES.search(next(told, "")) is not None


def is_write_message(line: str) -> bool:
    """Whether a shell or one of its tools says that it could not make a path."""
    return SHELL_WRITES.search(line) is not None
