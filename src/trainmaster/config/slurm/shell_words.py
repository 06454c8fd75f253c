"""A command line of the shell cut into words as they are written, with their places: quotes stay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

BREAKS = ";&|\n()<>`"
"""Signs that end a word by themselves."""


class Word(NamedTuple):
    """A word, or a sign that ends a command, and where it stands."""

    text: str
    start: int
    end: int

    @property
    def is_break(self) -> bool:
        return self.text[0] in BREAKS and not self.text.startswith("$")

    @property
    def plain(self) -> str:
        """Without quotes around all of it."""
        text = self.text
        return text[1:-1] if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0] else text


def words(text: str) -> Iterator[Word]:
    """Words in their order; `$( … )` and quotes belong to the word that they are in."""
    at = 0
    while at < len(text):
        sign = text[at]
        if sign in " \t\r" or text.startswith("\\\n", at):
            at += 2 if sign == "\\" else 1
        elif sign == "#" and (at == 0 or text[at - 1] in " \t\n;"):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif sign in BREAKS:
            end = at + 1
            while end < len(text) and text[end] == sign and sign in ";&|<>":
                end += 1
            yield Word(text[at:end], at, end)
            at = end
        else:
            end = _end_of_word(text, at)
            yield Word(text[at:end], at, end)
            at = end


def _end_of_word(text: str, at: int) -> int:
    while at < len(text) and text[at] not in " \t\r" + BREAKS:
        if text.startswith("\\\n", at):
            return at
        at = _after(text, at)
    return at


def _after(text: str, at: int) -> int:
    """Behind the sign at this place, or behind the quotes or the substitution that begin there."""
    sign = text[at]
    if sign == "\\":
        return min(at + 2, len(text))
    if sign == "'":
        end = text.find("'", at + 1)
        return len(text) if end < 0 else end + 1
    if sign == '"':
        at += 1
        while at < len(text) and text[at] != '"':
            at = _after(text, at) if text[at] in "\\$" else at + 1
        return min(at + 1, len(text))
    if text.startswith(("$(", "${"), at):
        return _closed(text, at + 1)
    return at + 1


def _closed(text: str, at: int) -> int:
    """Behind the bracket that closes the one at this place."""
    opens, closes = text[at], {"(": ")", "{": "}"}[text[at]]
    depth = 0
    while at < len(text):
        if text[at] == opens:
            depth += 1
        elif text[at] == closes:
            depth -= 1
            if depth == 0:
                return at + 1
        if text[at] in "'\"\\":
            at = _after(text, at)
        else:
            at += 1
    return len(text)
