"""The footnote to marked ratios, put where there are some."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from trainmaster.evaluation.report.document_model import Block, Listing, Paragraph, Table
from trainmaster.evaluation.report.number_format import DAGGER, FOOTNOTE


def footnoted(blocks: Iterable[Block]) -> Iterator[Block]:
    """The same blocks: tables with marks explain them in their caption, lists in a line below."""
    for block in blocks:
        match block:
            case Table() if _is_marked(entry.words for row in block.rows for entry in row.entries):
                yield replace(block, caption=f"{block.caption} {FOOTNOTE}")
            case Listing() if _is_marked(block.items):
                yield block
                yield Paragraph(FOOTNOTE)
            case _:
                yield block


def _is_marked(words: Iterable[str]) -> bool:
    return any(DAGGER in each for each in words)
