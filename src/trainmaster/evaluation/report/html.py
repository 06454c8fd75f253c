"""The report as one page that fetches nothing, and its figures as files that stand alone."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from importlib.resources import files

from trainmaster.evaluation.report.document_model import (
    Article,
    Column,
    Entry,
    Figure,
    Heading,
    Listing,
    Numbered,
    Paragraph,
    Row,
    Table,
    numbered,
    pieces,
)
from trainmaster.report.style import asset, drawing_styles

SVG_OPEN = "<svg "
MARK = 'class="paper" data-by="trainmaster-compare"'
"""Tells a figure of ours from any other."""
SHORT = 26
"""Letters of a row's name that stay on one line."""


def html(article: Article, policies: int) -> str:
    """The whole page."""
    style = f"{drawing_styles(policies)}{asset('page.css')}{_own('chart.css')}{_own('article.css')}"
    blocks = "".join(part for each in numbered(article.blocks) for part in _block(each))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(article.kicker)}</title><style>{style}</style></head><body>"
        f"{_header(article)}{_contents(article)}<main>{blocks}</main></body></html>\n"
    )


def standalone(figure: Figure, policies: int) -> str:
    """A figure as an SVG file with its own looks, light or dark as the reader's system is."""
    style = f"<style>{drawing_styles(policies)}{_own('chart.css')}</style>"
    box = figure.svg.split('viewBox="0 0 ', 1)[1].split('"', 1)[0]
    width, height = box.split(" ")
    size = f'xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" {MARK} '
    head, rest = figure.svg[len(SVG_OPEN) :].split(">", 1)
    paper = '<rect width="100%" height="100%" class="sheet"/>'
    return f"{SVG_OPEN}{size}{head}>{style}{paper}{rest}\n"


def inline(words: str) -> str:
    return "".join(
        f"<code>{_breakable(escape(text))}</code>" if is_code else escape(text)
        for text, is_code in pieces(words)
    )


def _breakable(code: str) -> str:
    """Settings may go on in the next line after a sign, not inside a number."""
    return code.replace("=", "=<wbr>").replace(",", ",<wbr>")


def _own(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _header(article: Article) -> str:
    details = "".join(f'<p class="detail">{inline(words)}</p>' for words in article.abstract)
    facts = "".join(
        f"<div><dt>{inline(name)}</dt><dd>{inline(value)}</dd></div>"
        for name, value in article.facts
    )
    return (
        f'<header><p class="kicker">{inline(article.kicker)}</p><h1>{inline(article.title)}</h1>'
        f'{details}<dl class="facts">{facts}</dl></header>'
    )


def _contents(article: Article) -> str:
    headings = [b for b in article.blocks if isinstance(b, Heading) and b.level == 2]
    links = "".join(
        f'<li><a href="#{escape(each.anchor)}">{inline(each.words)}</a></li>' for each in headings
    )
    return f'<aside aria-label="Contents"><ol>{links}</ol></aside>'


def _block(each: Numbered) -> Iterator[str]:
    block = each.block
    match block:
        case Heading():
            level = f"h{block.level}"
            yield f'<{level} id="{escape(block.anchor)}">{inline(block.words)}</{level}>'
        case Paragraph():
            css = ' class="lead"' if block.is_lead else ""
            yield f"<p{css}>{inline(block.words)}</p>"
        case Listing():
            items = "".join(f"<li>{inline(item)}</li>" for item in block.items)
            yield f"<ul>{items}</ul>"
        case Table():
            yield _table(block, each.name)
        case Figure():
            caption = f"<b>{each.name}.</b> {inline(block.caption)}"
            yield f'<figure><div class="scroll">{block.svg}</div>'
            yield f"<figcaption>{caption}</figcaption></figure>"


def _table(table: Table, name: str) -> str:
    head = "".join(_column(column) for column in table.columns)
    body = "".join(_row(row, table.columns) for row in table.rows)
    caption = f"<b>{name}.</b> {inline(table.caption)}"
    drawn = (
        '<div class="scroll"><table class="results">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
    if table.is_folded:
        return f"<details><summary>{caption}</summary>{drawn}</details>"
    return f'<figure class="tabular"><figcaption>{caption}</figcaption>{drawn}</figure>'


def _column(column: Column) -> str:
    css = "" if column.is_number else ' class="words"'
    return f'<th scope="col"{css}>{inline(column.title)}</th>'


def _row(row: Row, columns: tuple[Column, ...]) -> str:
    fields = "".join(
        _entry(entry, column, place == 0)
        for place, (entry, column) in enumerate(zip(row.entries, columns, strict=True))
    )
    css = ' class="ours"' if row.is_emphasised else ""
    return f"<tr{css}>{fields}</tr>"


def _entry(entry: Entry, column: Column, is_first: bool) -> str:
    is_short = is_first and len(entry.words) <= SHORT
    words = "" if column.is_number else "words"
    classes = " ".join(
        name for name in (entry.tone.value, words, "short" if is_short else "") if name
    )
    css = f' class="{classes}"' if classes else ""
    if is_first:
        return f'<th scope="row"{css}>{inline(entry.words)}</th>'
    return f"<td{css}>{inline(entry.words)}</td>"
