"""What a report says, before it is a page or Markdown: headings, words, tables and figures.

Words may hold `code` between backticks; everything else in them is shown as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from trainmaster.report import palette

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

FIGURES = "figures"
SHORT = 26
"""Letters of a row's name that stay on one line."""
SPECIAL = re.compile(r"([\\*_<>\[\]#|~])")


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
    value: float | None = None
    """What it is sorted by."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading; numbers stand to the right."""

    title: str
    is_number: bool = True
    hint: str = ""
    group: str = ""
    """A heading over this column and its neighbours of the same group."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table; an emphasised one is ours, one of a policy has its colour."""

    entries: tuple[Entry, ...]
    is_emphasised: bool = False
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class Heading:
    words: str
    anchor: str
    level: int = 2
    is_wide: bool = True
    """Whether its section takes the page's whole width, where sections stand side by side."""


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
    is_sortable: bool = False

    def groups(self) -> list[tuple[str, int]]:
        """Headings over columns, with the number of columns under each; none without groups."""
        found: list[tuple[str, int]] = []
        for column in self.columns:
            if found and found[-1][0] == column.group:
                found[-1] = (column.group, found[-1][1] + 1)
            else:
                found.append((column.group, 1))
        return found if len(found) > 1 else []


@dataclass(frozen=True, slots=True)
class Figure:
    slug: str
    caption: str
    svg: str


Block = Heading | Paragraph | Listing | Table | Figure


@dataclass(frozen=True, slots=True)
class Document:
    """The whole report."""

    title: str
    kicker: str
    abstract: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Numbered:
    """A block, what kind it is, and its name if it has a caption: `Table 3`."""

    block: Block
    name: str

    @property
    def kind(self) -> str:
        return type(self.block).__name__.lower()


def numbered(blocks: Iterable[Block]) -> Iterator[Numbered]:
    """Tables and figures with captions are numbered in their order, in HTML as in Markdown."""
    counts: dict[type[Block], int] = {Table: 0, Figure: 0}
    for block in blocks:
        if isinstance(block, Table | Figure) and block.caption:
            counts[type(block)] += 1
            yield Numbered(block, f"{type(block).__name__} {counts[type(block)]}")
        else:
            yield Numbered(block, "")


def sections(blocks: Iterable[Block]) -> list[tuple[Heading, list[Numbered]]]:
    """Blocks by the headings of level 2 that they stand under."""
    found: list[tuple[Heading, list[Numbered]]] = []
    for each in numbered(blocks):
        if isinstance(each.block, Heading) and each.block.level == 2:
            found.append((each.block, []))
        else:
            found[-1][1].append(each)
    return found


def plain(*words: str) -> tuple[Entry, ...]:
    return tuple(Entry(each) for each in words)


def quoted(words: str) -> str:
    """As code, whatever it holds."""
    return "`" + words.replace("`", "'") + "`" if words else ""


def slug(words: str) -> str:
    """Words made fit for a file name or an anchor."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "x"


def pieces(words: str) -> list[tuple[str, bool]]:
    """Words cut at their backticks: (text, is it code)."""
    return [(text, place % 2 == 1) for place, text in enumerate(words.split("`")) if text]


# -- rendering ---------------------------------------------------------------------------------------


def html(document: Document, template: str, policies: Sequence[str] = ()) -> str:
    """The whole page, by a template that extends `base.html`; `policies` in the order of their colours."""
    return _environment().get_template(template).render(
        document=document, sections=sections(document.blocks), policies=policies, short=SHORT
    )  # fmt: skip


def markdown(document: Document) -> str:
    """The same as Markdown, with its figures as files beside it."""
    text = _environment().get_template("document.md").render(
        document=document, blocks=list(numbered(document.blocks)), figures=FIGURES
    )  # fmt: skip
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader
    from markupsafe import Markup

    loader = PackageLoader("trainmaster.report")
    environment = Environment(
        autoescape=lambda name: name is not None and name.endswith(".html"),
        loader=loader, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters |= {
        "inline": _inline,
        "md": markdown_words,
        "md_field": _field,
        "alt": _alt,
    }
    environment.globals |= {
        "palette_css": lambda: Markup(palette.css()),
        "asset": lambda name: Markup(loader.get_source(environment, name)[0]),
    }
    return environment


def _inline(words: str) -> Markup:
    from markupsafe import Markup

    return Markup("".join(
        f"<code>{_breakable(escape(text))}</code>" if is_code else escape(text)
        for text, is_code in pieces(words)
    ))  # fmt: skip


def _breakable(code: str) -> str:
    """Settings may go on in the next line after a sign, not inside a number."""
    return code.replace("=", "=<wbr>").replace(",", ",<wbr>")


def markdown_words(words: str) -> str:
    """Words in which nothing but code means anything to Markdown."""
    return "".join(
        f"`{text}`" if is_code else SPECIAL.sub(r"\\\1", text) for text, is_code in pieces(words)
    )


def _field(entry: Any, is_bold: bool = False) -> str:
    """A pipe would end the field, in code too."""
    words = markdown_words(entry.replace("\n", " ")).replace("\\|", "|").replace("|", "\\|")
    return f"**{words}**" if is_bold and words else words


def _alt(caption: str) -> str:
    return re.sub(r"[\[\]\n`]", "", caption.split(". ", maxsplit=1)[0])
