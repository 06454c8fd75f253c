"""What the report says, before it is a page or Markdown: headings, words, tables and figures.

Words may hold `code` between backticks; everything else in them is shown as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Tone(Enum):
    """How an entry of a table is set off from the others."""

    PLAIN = ""
    BEST = "best"
    MET = "met"
    MISSED = "missed"
    SOFT = "soft"


@dataclass(frozen=True, slots=True)
class Entry:
    """One field of a table."""

    words: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading; numbers stand to the right."""

    title: str
    is_number: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table; an emphasised one is ours."""

    entries: tuple[Entry, ...]
    is_emphasised: bool = False


@dataclass(frozen=True, slots=True)
class Heading:
    words: str
    anchor: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Paragraph:
    words: str
    is_lead: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    is_folded: bool = False
    """On the page behind a summary line, to be opened; in print and Markdown always open."""


@dataclass(frozen=True, slots=True)
class Figure:
    slug: str
    caption: str
    svg: str


Block = Heading | Paragraph | Listing | Table | Figure


@dataclass(frozen=True, slots=True)
class Article:
    """The whole report."""

    title: str
    kicker: str
    abstract: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Numbered:
    """A block with its number among the tables or the figures, 0 for the others."""

    block: Block
    number: int

    @property
    def name(self) -> str:
        return f"{type(self.block).__name__} {self.number}"


def numbered(blocks: Sequence[Block]) -> tuple[Numbered, ...]:
    """Tables and figures are numbered in their order, the same on the page and in Markdown."""
    counts: dict[type[Block], int] = {Table: 0, Figure: 0}
    found = []
    for block in blocks:
        if type(block) in counts:
            counts[type(block)] += 1
        found.append(Numbered(block, counts.get(type(block), 0)))
    return tuple(found)


def plain(*words: str) -> tuple[Entry, ...]:
    return tuple(Entry(each) for each in words)


def pieces(words: str) -> list[tuple[str, bool]]:
    """Words cut at their backticks: (text, is it code)."""
    return [(text, place % 2 == 1) for place, text in enumerate(words.split("`")) if text]


def quoted(words: str) -> str:
    """As code, whatever it holds."""
    return "`" + words.replace("`", "'") + "`" if words else ""


def slug(words: str) -> str:
    """Words made fit for a file name or an anchor."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "x"
