"""Patterns of ignore files, read as Git reads them, and matched without backtracking.

Between two stars only the first place where a piece fits needs to be tried, so each is an atomic group: a
line with many stars, which users may write, costs no more than its length times that of the path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

STARS = re.compile(r"\*+")
ANY_FOLDERS = "(?:[^/]+/)*"
NEVER = "(?!)"
"""Matches nothing: what Git makes of a pattern that is not complete."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of an ignore file."""

    matches: re.Pattern[str]
    takes_back: bool
    """The line begins with `!`: what earlier lines exclude is not excluded."""
    only_folders: bool


@dataclass(frozen=True, slots=True)
class IgnorePatterns:
    """The lines of an ignore file in their order: the last one that matches decides."""

    rules: tuple[Rule, ...] = ()
    _folders: dict[str, bool] = field(default_factory=dict)
    """A cache: which folders are excluded."""

    def excludes(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether the path, or a folder that it is in, is excluded."""
        if not self.rules:
            return False
        parent = path.rpartition("/")[0]
        return (parent != "" and self._excludes_folder(parent)) or self._decides(path, is_folder)

    def excluded_part(self, path: str) -> str:
        """Of an excluded path: the outermost folder that is excluded, or the path itself."""
        parts = path.split("/")
        outer = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
        return next((each for each in outer if self._excludes_folder(each)), path)

    def _excludes_folder(self, path: str) -> bool:
        known = self._folders.get(path)
        if known is None:
            known = self._folders[path] = self.excludes(path, is_folder=True)
        return known

    def _decides(self, path: str, is_folder: bool) -> bool:
        for rule in reversed(self.rules):
            if (is_folder or not rule.only_folders) and rule.matches.fullmatch(path):
                return not rule.takes_back
        return False


def patterns_of(lines: Iterable[str]) -> IgnorePatterns:
    """The patterns of an ignore file."""
    return IgnorePatterns(tuple(rule for line in lines if (rule := _rule(line)) is not None))


def _rule(line: str) -> Rule | None:
    text = _without_trailing_spaces(line)
    if not text or text.startswith("#"):
        return None
    takes_back = text.startswith("!")
    text = text.removeprefix("!")
    only_folders = text.endswith("/")
    text = text.removesuffix("/")
    if not text:
        return None
    return Rule(re.compile(_regex(text), re.DOTALL), takes_back, only_folders)


def _without_trailing_spaces(line: str) -> str:
    kept = line.rstrip(" ")
    return line[: len(kept) + 1] if kept.endswith("\\") else kept


def _regex(text: str) -> str:
    """A whole pattern: runs of segments with `**` between them."""
    segments = _segments(text.removeprefix("/"))
    if "/" not in text:
        segments.insert(0, "**")
    runs: list[list[str]] = [[]]
    for segment in segments:
        if segment == "**":
            runs.append([])
        else:
            runs[-1].append(_segment(segment))
    first, *rest = ("/".join(run) for run in runs)
    if not rest:
        return first
    *middle, last = rest
    found = f"{first}/" if first else ""
    found += "".join(f"(?>(?:[^/]+/)*?{run}/)" for run in middle if run)
    return found + (ANY_FOLDERS + last if last else ".+")


def _segments(text: str) -> list[str]:
    """What is between the slashes; one inside brackets is part of them, though it matches nothing."""
    found, begin, at = [], 0, 0
    while at < len(text):
        if text[at] == "[":
            _, at = _choice(text, at)
            continue
        if text[at] == "/":
            found.append(text[begin:at])
            begin = at + 1
        at += 2 if text[at] == "\\" else 1
    return [*found, text[begin:]]


def _segment(text: str) -> str:
    """The part between two slashes: pieces with stars between them."""
    first, *rest = _pieces(text)
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>[^/]*?{piece})" for piece in middle if piece) + f"[^/]*{last}"


def _pieces(text: str) -> list[str]:
    """What is between the stars, each as the regular expression of so many characters."""
    found, at = [""], 0
    while at < len(text):
        sign = text[at]
        if sign == "*":
            at = STARS.match(text, at).end()  # type: ignore[union-attr]
            found.append("")
            continue
        if sign == "[":
            one, at = _choice(text, at)
        elif sign == "\\":
            one = re.escape(text[at + 1]) if at + 1 < len(text) else NEVER
            at += 2
        else:
            one = "[^/]" if sign == "?" else re.escape(sign)
            at += 1
        found[-1] += one
    return found


def _choice(text: str, at: int) -> tuple[str, int]:
    """`[a-z]` or `[!a-z]`, and where it ends; of `[z-a]` Git takes the first alone."""
    begin = at + 1
    negated = text[begin : begin + 1] in ("!", "^")
    begin += negated
    end, inside, last = begin, "", ""
    while end < len(text) and (text[end] != "]" or end == begin):
        is_range = last != "" and text[end] == "-" and text[end + 1 : end + 2] not in ("", "]")
        end += is_range
        if text[end] == "\\" and end + 1 < len(text):
            end += 1
        one = text[end]
        if not is_range:
            inside += re.escape(one)
        elif last <= one:
            inside += f"{re.escape(last)}-{re.escape(one)}"
        last = "" if is_range else one
        end += 1
    if end >= len(text):
        return NEVER, len(text)
    return f"(?!/)[{'^' if negated else ''}{inside}]", end + 1
