"""Which files of a folder are not wanted: patterns as in .gitignore."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line of such a file."""

    regex: re.Pattern[str]
    folders_only: bool
    is_taken_back: bool
    """It begins with `!`: what it matches is wanted after all."""


class Patterns:
    """All lines together: the last that matches decides."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._patterns = [made for made in map(_pattern, lines) if made is not None]

    def leaves_out(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether this path (relative, with `/`) is named itself."""
        for pattern in reversed(self._patterns):
            if (is_folder or not pattern.folders_only) and pattern.regex.fullmatch(path):
                return not pattern.is_taken_back
        return False

    def leaves_out_within(self, path: str) -> bool:
        """The same for a file, or for any folder that it lies in."""
        at = path.find("/")
        while at >= 0:
            if self.leaves_out(path[:at], is_folder=True):
                return True
            at = path.find("/", at + 1)
        return self.leaves_out(path)


def _pattern(line: str) -> Pattern | None:
    text = line.rstrip("\r\n")
    if not text.endswith("\\ "):
        text = text.rstrip(" ")
    if not text or text.startswith("#"):
        return None
    is_taken_back = text.startswith("!")
    text = text[1:] if is_taken_back else text
    folders_only = text.endswith("/")
    text = text.rstrip("/") if folders_only else text
    # A slash at the start or in the middle ties the pattern to the folder of the file.
    anchored = "/" in text
    text = text.removeprefix("/")
    if not text:
        return None
    try:
        regex = re.compile(("" if anchored else "(?:.*/)?") + _translated(text))
    except re.error:
        return None
    return Pattern(regex, folders_only, is_taken_back)


def _translated(glob: str) -> str:
    out, at = [], 0
    while at < len(glob):
        sign = glob[at]
        if glob.startswith("**/", at) and (at == 0 or glob[at - 1] == "/"):
            out.append("(?:.*/)?")
            at += 3
            continue
        if glob.startswith("**", at) and at + 2 == len(glob) and at and glob[at - 1] == "/":
            out.append(".+")
            break
        if sign == "*":
            out.append("[^/]*")
        elif sign == "?":
            out.append("[^/]")
        elif sign == "\\" and at + 1 < len(glob):
            at += 1
            out.append(re.escape(glob[at]))
        elif sign == "[" and "]" in glob[at + 2 :]:
            end = glob.index("]", at + 2)
            inner = glob[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            out.append(f"[^{inner[1:]}]" if inner[0] in "!^" else f"[{inner}]")
            at = end
        else:
            out.append(re.escape(sign))
        at += 1
    return "".join(out)
