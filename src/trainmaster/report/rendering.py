"""Reports from templates: pages of HTML, and articles that one template gives as Markdown and as a page.

Words may hold `code` between backticks; everything else in them is shown as it is written.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainmaster.report import palette

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from trainmaster.report.charts import Chart

FIGURES = "figures"
TEMPLATES = Path(__file__).with_name("templates")
SPECIAL = re.compile(r"([\\*_<>\[\]#|~])")
BLOCK = re.compile(r"<!--block (\d+)-->")


@dataclass(frozen=True, slots=True)
class Cell:
    """One field of a table that is more than words."""

    words: str
    tone: str = ""
    """Its style: best, met, missed or soft."""
    value: float | None = None
    """What it is sorted by."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading. The first column holds words, the others numbers unless they say otherwise."""

    heading: str
    is_words: bool = False
    hint: str = ""
    group: str = ""
    """A heading over this column and its neighbours of the same group."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table; an emphasised one is ours, one of a policy has its colour."""

    cells: Sequence[str | Cell]
    is_ours: bool = False
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class Table:
    columns: Sequence[str | Column]
    rows: Sequence[Row | Sequence[str | Cell]]
    is_folded: bool = False
    """On the page behind a summary line, to be opened; in print and Markdown always open."""
    is_sortable: bool = False

    def groups(self) -> list[tuple[str, int]]:
        """Headings over columns, with the number of columns under each; none without groups."""
        runs = groupby(getattr(column, "group", "") for column in self.columns)
        found = [(group, len(list(run))) for group, run in runs]
        return found if len(found) > 1 else []


@dataclass(frozen=True, slots=True)
class Figure:
    slug: str
    chart: Chart

    @property
    def svg(self) -> str:
        """As the page shows it."""
        return self.chart.svg()


@dataclass(frozen=True, slots=True)
class Header:
    """The head of a report."""

    title: str
    kicker: str
    abstract: Sequence[str]
    facts: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Article:
    markdown: str
    page: str
    figures: Sequence[Figure]
    """Those of the page, which the Markdown has as files beside it."""


def page(template: str, **context: object) -> str:
    """A page of HTML, by a template that extends `base.html`."""
    return _environment(TEMPLATES, is_html=True).get_template(template).render(**context)


def article(
    header: Header,
    template: Path,
    context: Mapping[str, object],
    notes: Mapping[str, str],
    folders: Sequence[Path] = (),
) -> Article:
    """The report that a template of Markdown makes; `show` puts a table or a figure into it.

    Tables and figures are numbered in their order. A table with one of the marks of `notes` explains it.
    """
    shown: list[dict[str, Any]] = []
    numbers: Counter[str] = Counter()

    def show(block: Table | Figure, caller: Callable[[], str]) -> str:
        kind = type(block).__name__
        numbers[kind] += 1
        caption = " ".join(caller().split())
        marked = [note for mark, note in notes.items() if mark in str(block)]
        name, caption = f"{kind} {numbers[kind]}", " ".join([caption, *marked])
        shown.append({"kind": kind, "block": block, "name": name, "caption": caption})
        return f"\n\n<!--block {len(shown) - 1}-->\n\n"

    def filled(text: str, name: str, *, is_html: bool) -> str:
        block = _environment(TEMPLATES, is_html=is_html).get_template(name)
        return BLOCK.sub(lambda place: block.render(**shown[int(place[1])]), text)

    sources = _environment(template.parent, *folders, is_html=False).get_template(template.name)
    body = sources.render(**context, show=show)
    head = _environment(TEMPLATES, is_html=False).get_template("head.md").render(header=header)
    text = re.sub(r"\n{3,}", "\n\n", head + filled(body, "block.md", is_html=False))
    sections = re.split(r"(?=<h2 )", filled(_html(body), "block.html", is_html=True))[1:]
    headings = [re.findall(r'<h2 id="(.*?)">(.*?)</h2>', each)[0] for each in sections]
    return Article(
        text.strip() + "\n",
        page("comparison.html", header=header, sections=sections, headings=headings),
        [each["block"] for each in shown if each["kind"] == "Figure"],
    )


def quoted(words: str) -> str:
    """As code, whatever it holds."""
    return "`" + words.replace("`", "'") + "`" if words else ""


def slug(words: str) -> str:
    """Words made fit for a file name or an anchor."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "x"


@cache
def _environment(*folders: Path, is_html: bool) -> Environment:
    from jinja2 import Environment, FileSystemLoader
    from markupsafe import Markup

    environment = Environment(
        autoescape=is_html, loader=FileSystemLoader(folders), trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, finalize=None if is_html else markdown_words,
    )  # fmt: skip
    environment.filters |= {
        "inline": _inline,
        "field": _field,
        "alt": _alt,
        "caption": _caption,
        "raw": Raw,
    }
    environment.globals |= {
        "palette_css": lambda: Markup(palette.css()),
        "asset": lambda name: Markup((TEMPLATES / name).read_text(encoding="utf-8")),
    }
    return environment


# -- Markdown ----------------------------------------------------------------------------------------


class Raw(str):
    """Markdown already."""

    __slots__ = ()


def markdown_words(words: object) -> str:
    """Words in which nothing but code means anything to Markdown."""
    if isinstance(words, Raw):
        return words
    pieces = _pieces(str(words).replace("\n", " "))
    return "".join(
        f"`{text}`" if is_code else SPECIAL.sub(r"\\\1", text) for text, is_code in pieces
    )


def _pieces(words: str) -> list[tuple[str, bool]]:
    """Words cut at their backticks: (text, is it code)."""
    return [(text, place % 2 == 1) for place, text in enumerate(words.split("`")) if text]


def _field(words: str, is_bold: bool = False) -> Raw:
    """A pipe would end the field, in code too."""
    field = markdown_words(words).replace("\\|", "|").replace("|", "\\|")
    return Raw(f"**{field}**" if is_bold and field else field)


def _alt(caption: str) -> Raw:
    return Raw(re.sub(r"[\\\[\]`]", "", caption.split(". ", maxsplit=1)[0]))


# -- HTML --------------------------------------------------------------------------------------------


@cache
def _parser() -> Any:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark")
    parser.add_render_rule(
        "code_inline", lambda self, tokens, place, *rest: _code(tokens[place].content)
    )
    return parser


def _html(markdown: str) -> str:
    """With an anchor for each heading."""
    tokens, taken = _parser().parse(markdown), Counter[str]()
    for opening, words in pairwise(tokens):
        if opening.type == "heading_open":
            anchor = slug(words.content)
            taken[anchor] += 1
            opening.attrSet("id", anchor if taken[anchor] == 1 else f"{anchor}-{taken[anchor]}")
    html: str = _parser().renderer.render(tokens, _parser().options, {})
    return html


def _caption(markdown: str) -> Markup:
    from markupsafe import Markup

    return Markup(_parser().renderInline(markdown))


def _inline(words: str) -> Markup:
    from markupsafe import Markup

    return Markup(
        "".join(_code(text) if is_code else escape(text) for text, is_code in _pieces(words))
    )


def _code(text: str) -> str:
    """Settings may go on in the next line after a sign, not inside a number."""
    breakable = escape(text).replace("=", "=<wbr>").replace(",", ",<wbr>")
    return f"<code>{breakable}</code>"
