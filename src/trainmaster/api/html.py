"""Small pieces of HTML: everything that is put in is escaped, unless it is HTML already."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Content = str | int | float | None


def safe(value: Content) -> Html:
    """As HTML shows it; nothing for None."""
    if isinstance(value, Html):
        return value
    return Html("" if value is None else escape(str(value)))


def tag(name: str, *inside: Content, css: str = "") -> Html:
    attribute = f' class="{escape(css)}"' if css else ""
    return Html(f"<{name}{attribute}>{''.join(safe(each) for each in inside)}</{name}>")


def link(address: str, words: Content) -> Html:
    return Html(f'<a href="{escape(address)}">{safe(words)}</a>')


def joined(pieces: Iterable[Content], between: str = "") -> Html:
    return Html(escape(between).join(safe(piece) for piece in pieces))


def table(headings: Iterable[str], rows: Iterable[Iterable[Content]], empty: str) -> Html:
    """A table, or a sentence where it would have no rows."""
    body = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    if not body:
        return tag("p", empty, css="quiet")
    head = tag("tr", *(tag("th", each) for each in headings))
    return tag("div", tag("table", tag("thead", head), tag("tbody", *body)), css="wide")


STYLE = """
:root { color-scheme: light dark; --line: #8884; --quiet: #777; --used: #3b7dd8; --bad: #c0392b; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 1.8rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--line);
         vertical-align: top; }
th { font-weight: 600; color: var(--quiet); }
.quiet { color: var(--quiet); } .bad { color: var(--bad); }
.device { display: inline-block; border: 1px solid var(--line); border-radius: .25rem;
          padding: 0 .4rem; margin: 0 .25rem .25rem 0; min-width: 1.5rem; text-align: center; }
.used { border-color: var(--used); } a { color: var(--used); text-decoration: none; }
a:hover { text-decoration: underline; }
pre { border: 1px solid var(--line); border-radius: .25rem; padding: .7rem; overflow-x: auto;
      max-height: 30rem; }
"""


def document(title: str, *body: Content, refresh_s: int) -> str:
    """A whole page that loads itself again."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="refresh" content="{refresh_s}">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body>{''.join(safe(each) for each in body)}</body></html>\n"
    )
