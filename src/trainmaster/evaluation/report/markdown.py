"""The report as Markdown, its figures as SVG files beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainmaster.evaluation.report.document_model import (
    Article,
    Entry,
    Figure,
    Heading,
    Listing,
    Numbered,
    Paragraph,
    Row,
    Table,
    Tone,
    numbered,
    pieces,
)

FIGURES = "figures"
SPECIAL = re.compile(r"([\\*_<>\[\]#|~])")
BOLD = (Tone.BEST, Tone.MISSED)


def markdown(article: Article) -> str:
    """The whole page."""
    parts = [f"# {inline(article.title)}", inline(article.kicker)]
    parts += [inline(words) for words in article.abstract]
    parts.append("\n".join(f"- {inline(name)}: {inline(value)}" for name, value in article.facts))
    for each in numbered(article.blocks):
        parts += _block(each)
    return "\n\n".join(part for part in parts if part) + "\n"


def inline(words: str) -> str:
    """Words in which nothing but code means anything to Markdown."""
    return "".join(
        f"`{text}`" if is_code else SPECIAL.sub(r"\\\1", text) for text, is_code in pieces(words)
    )


def _block(each: Numbered) -> Iterator[str]:
    block = each.block
    match block:
        case Heading():
            yield f"{'#' * block.level} {inline(block.words)}"
        case Paragraph():
            yield inline(block.words)
        case Listing():
            yield "\n".join(f"- {inline(item)}" for item in block.items)
        case Table():
            yield f"**{each.name}.** {inline(block.caption)}"
            yield _table(block)
        case Figure():
            alt = re.sub(r"[\[\]\n`]", "", block.caption.split(". ")[0])
            yield f"![{each.name}: {alt}]({FIGURES}/{block.slug}.svg)"
            yield f"**{each.name}.** {inline(block.caption)}"


def _table(table: Table) -> str:
    titles = " | ".join(_field(column.title) for column in table.columns)
    sides = " | ".join("---:" if column.is_number else "---" for column in table.columns)
    lines = [f"| {titles} |", f"| {sides} |"]
    lines += [f"| {' | '.join(_row(row))} |" for row in table.rows]
    return "\n".join(lines)


def _row(row: Row) -> Iterator[str]:
    for place, entry in enumerate(row.entries):
        is_bold = entry.tone in BOLD or (place == 0 and row.is_emphasised)
        yield _entry(entry, is_bold)


def _entry(entry: Entry, is_bold: bool) -> str:
    words = _field(entry.words)
    return f"**{words}**" if is_bold and words else words


def _field(words: str) -> str:
    """A pipe would end the field, in code too."""
    return inline(words.replace("\n", " ")).replace("\\|", "|").replace("|", "\\|")
